package kubectl

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const (
	// maxAnswer bounds what is read of one answer, in bytes.
	maxAnswer = 256 << 20

	// pageSize is how many nodes or allocations are asked for at once.
	pageSize = "1000"
)

// server is a connection to GlobalReserve.
type server struct {
	url    string
	client *client.Client
	tunnel *tunnel // nil with --server
}

// connectServer reaches the server at --server or through a tunnel to its Service. The caller closes it.
func (e *environment) connectServer(ctx context.Context) (*server, error) {
	timeout, err := e.timeout()
	if err != nil {
		return nil, err
	}
	s := &server{url: e.serverURL}
	if s.url == "" {
		if s.tunnel, err = e.findServer(ctx); err != nil {
			return nil, err
		}
		s.url = s.tunnel.url
	}
	// A person tries again, or not.
	s.client, err = client.New(client.Options{URL: s.url, Timeout: timeout, RetryFor: time.Nanosecond, MaxAnswer: maxAnswer})
	if err != nil {
		return nil, usageErrorf("--server: %w (for another Kubernetes cluster use --context or --kubeconfig)", err)
	}
	return s, nil
}

// findServer opens a tunnel to a pod of --service.
func (e *environment) findServer(ctx context.Context) (*tunnel, error) {
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
	return e.forward(ctx, target)
}

// Close ends the tunnel, if there is one.
func (s *server) Close() {
	s.client.Close()
	if s.tunnel != nil {
		s.tunnel.Close()
	}
}

// get reads one JSON answer.
func get[A any](ctx context.Context, s *server, path string, query url.Values) (*A, error) {
	answer, err := client.Get[A](ctx, s.client, path, query)
	var away *reserver.UnavailableError
	switch {
	case errors.Is(err, context.Canceled):
		return nil, errors.New("interrupted")
	case errors.As(err, &away) && s.tunnel != nil:
		return nil, unreachablef("the GlobalReserve server does not answer through the forwarded port: %w: "+
			"see the log of its pod, or give its address with --server URL", away.Err)
	case errors.As(err, &away):
		return nil, unreachablef("the GlobalReserve server does not answer at %s: %w: check --server and --request-timeout; "+
			"without --server, a port is forwarded to the Service %s", s.url, away.Err, defaultService)
	}
	return answer, err
}

// getPages reads a route that answers in pages. take keeps one page and returns where the next one
// starts, or nothing at the end.
func getPages[A any](ctx context.Context, s *server, path string, query url.Values, take func(page *A) (next string)) error {
	query.Set("limit", pageSize)
	for {
		page, err := get[A](ctx, s, path, query)
		if err != nil {
			return err
		}
		next := take(page)
		if next == "" {
			return nil
		}
		query.Set("continue", next)
	}
}
