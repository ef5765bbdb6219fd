package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/globalreserve/globalreserve/pkg/version"
)

const (
	// maxAnswer bounds what is read of one answer, in bytes.
	maxAnswer = 256 << 20

	// pageSize is how many nodes or allocations are asked for at once.
	pageSize = "1000"
)

// server is a connection to GlobalReserve.
type server struct {
	url     string
	client  *http.Client
	timeout time.Duration
	tunnel  *tunnel // nil with --server
}

// connectServer reaches the server at --server or through a tunnel to its Service. The caller closes it.
func (e *environment) connectServer(ctx context.Context) (*server, error) {
	timeout, err := e.timeout()
	if err != nil {
		return nil, err
	}
	s := &server{client: &http.Client{}, timeout: timeout}
	if e.serverURL != "" {
		if err := checkServerURL(e.serverURL); err != nil {
			return nil, err
		}
		s.url = strings.TrimRight(e.serverURL, "/")
		return s, nil
	}
	ref, err := parseService(e.service)
	if err != nil {
		return nil, err
	}
	cluster, err := e.cluster()
	if err != nil {
		return nil, err
	}
	target, err := choosePod(ctx, cluster.kube, ref)
	if err != nil {
		return nil, err
	}
	if s.tunnel, err = e.forward(ctx, target); err != nil {
		return nil, err
	}
	s.url = s.tunnel.url
	return s, nil
}

// Close ends the tunnel, if there is one.
func (s *server) Close() {
	s.client.CloseIdleConnections()
	if s.tunnel != nil {
		s.tunnel.Close()
	}
}

// get reads one JSON answer. A refusal of the server becomes an error with the server's words.
func (s *server) get(ctx context.Context, path string, query url.Values, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	address := s.url + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return usageErrorf("%s is no address: %w", address, err)
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "kubectl-reserve/"+version.Get().GitVersion)
	response, err := s.client.Do(request)
	if err != nil {
		return s.unreachable(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return s.unreachable(err)
	case len(body) > maxAnswer:
		return fmt.Errorf("the answer of %s is longer than %d bytes: ask for less", s.url, maxAnswer)
	case response.StatusCode != http.StatusOK:
		return s.refused(path, response.StatusCode, body)
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("what answers at %s does not speak as GlobalReserve does: %w: check --server", s.url, err)
	}
	return nil
}

// unreachable says that no answer came, and how the server was looked for.
func (s *server) unreachable(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted")
	}
	var netErr net.Error
	if errors.Is(err, context.DeadlineExceeded) || (errors.As(err, &netErr) && netErr.Timeout()) {
		err = fmt.Errorf("no answer within %s (--request-timeout)", s.timeout)
	}
	if s.tunnel != nil {
		return unreachablef("the GlobalReserve server does not answer through the forwarded port: %w: "+
			"see the log of its pod, or give its address with --server URL", err)
	}
	return unreachablef("the GlobalReserve server does not answer at %s: %w: check --server; "+
		"without it, a port is forwarded to the Service %s", s.url, err, defaultService)
}

// refused turns an answer that is not 200 into an error.
func (s *server) refused(path string, status int, body []byte) error {
	var said struct{ Error string }
	text := strings.TrimSpace(string(body))
	known := json.Unmarshal(body, &said) == nil && said.Error != ""
	if known {
		text = said.Error
	}
	switch {
	case status == http.StatusServiceUnavailable:
		return unreachablef("the GlobalReserve server at %s cannot answer now: %s", s.url, clip(text))
	case known:
		return errors.New(text)
	case status == http.StatusNotFound:
		return fmt.Errorf("the server at %s has no %s: it is older than this plugin, or no GlobalReserve: check --server", s.url, path)
	default:
		return fmt.Errorf("the server at %s answers %s with status %d: %s", s.url, path, status, clip(text))
	}
}

// clip keeps a message of unknown origin short and on one line.
func clip(text string) string {
	const most = 200
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// getPages reads a route that answers in pages. take keeps one page and returns where the next one
// starts, or nothing at the end.
func getPages[A any](ctx context.Context, s *server, path string, query url.Values, take func(page *A) (next string)) error {
	query.Set("limit", pageSize)
	for {
		page := new(A)
		if err := s.get(ctx, path, query, page); err != nil {
			return err
		}
		next := take(page)
		if next == "" {
			return nil
		}
		query.Set("continue", next)
	}
}
