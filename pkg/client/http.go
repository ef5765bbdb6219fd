package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const (
	// quotedAnswer bounds, in bytes, what an error repeats of an answer it cannot read.
	quotedAnswer = 100
	// longestRetryAfter bounds what a server may ask to wait.
	longestRetryAfter = time.Hour
)

// try sends a request once and reads its answer. after is how long the server asks to
// wait before the next try, if there is one. The errors are those of package reserver.
func (c *Client) try(ctx context.Context, r *request, body []byte, answer any) (after time.Duration, err error) {
	if err := ctx.Err(); err != nil {
		return 0, &reserver.UnavailableError{Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	post, err := c.newRequest(ctx, r, body)
	if err != nil {
		return 0, err
	}
	response, err := c.http.Do(post)
	if err != nil {
		// Without a connection not a byte of it can have been sent.
		if connected.Load() {
			return 0, r.failed(fmt.Errorf("asking GlobalReserve: %w", err))
		}
		return 0, c.unreached(err)
	}
	c.reached.Store(true)
	defer response.Body.Close()
	// Read to its end, also where it is of no use: the connection is used again.
	content, err := io.ReadAll(io.LimitReader(response.Body, c.options.MaxAnswer+1))
	switch {
	case err != nil:
		return 0, r.failed(fmt.Errorf("reading the answer to %s: %w", r.path, err))
	case int64(len(content)) > c.options.MaxAnswer:
		return 0, r.failed(fmt.Errorf("the answer to %s is longer than %d bytes", r.path, c.options.MaxAnswer))
	case response.StatusCode != http.StatusOK:
		return retryAfter(response), r.refused(response, content)
	}
	if err := json.Unmarshal(content, answer); err != nil {
		return 0, r.failed(fmt.Errorf("the answer to %s is not one of GlobalReserve: %w: %s", r.path, err, quote(content)))
	}
	return retryAfter(response), nil
}

func (c *Client) newRequest(ctx context.Context, r *request, body []byte) (*http.Request, error) {
	target := *c.base
	target.Path += r.path
	target.RawQuery = r.query.Encode()
	post, err := http.NewRequestWithContext(ctx, r.method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, &reserver.BadRequestError{Message: err.Error()}
	}
	if r.body != nil {
		post.Header.Set("Content-Type", "application/json")
	}
	return post, nil
}

// unreached is the error of a try that found no server. What no repeat mends is permanent, and says what does. Where
// the server has answered before, the options are right, and a repeat may mend anything: a name that is not there for a
// moment, a certificate that is being renewed.
func (c *Client) unreached(err error) error {
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	var advice string
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		advice = "the server speaks no TLS there: begin its URL with http://, or give the port that has TLS"
	case errors.As(err, &name) && name.IsNotFound:
		advice = "there is no such host: mend the host of the server's URL"
	case errors.As(err, new(x509.UnknownAuthorityError)):
		advice = "CAFile is to have the authority that the server's certificate comes from"
	case errors.As(err, new(x509.HostnameError)):
		advice = "ServerName is to be a name that the server's certificate has, or the certificate to have the host of " +
			"the URL"
	case errors.As(err, &certificate):
		advice = "mend the server's certificate"
	default:
		return &reserver.UnavailableError{Err: fmt.Errorf("asking GlobalReserve: %w", err)}
	}
	return &reserver.UnavailableError{
		Permanent: !c.reached.Load(),
		Err:       fmt.Errorf("asking GlobalReserve: %w: %s", err, advice),
	}
}

// failed is the error of a try that was sent and got no answer.
func (r *request) failed(err error) error {
	if r.writes {
		return &reserver.UnknownOutcomeError{RequestID: r.id, Err: err}
	}
	return &reserver.UnavailableError{Err: err}
}

// toTLSServer is what Go's server answers on a port for TLS to a client without TLS.
const toTLSServer = "HTTP request to an HTTPS server"

// refused is the error that an answer of another status than 200 stands for.
func (r *request) refused(response *http.Response, content []byte) error {
	var said struct{ Error string }
	if json.Unmarshal(content, &said) != nil || said.Error == "" {
		advice := "what answers is no GlobalReserve, or another version of it"
		if response.TLS == nil && strings.Contains(string(content), toTLSServer) {
			advice = "begin the server's URL with https://"
		}
		said.Error = fmt.Sprintf("the answer to %s has status %s: %s: %s", r.path, response.Status, quote(content), advice)
	}
	elsewhere := response.Header.Get("Location")
	switch status := response.StatusCode; {
	case status >= 300 && status < 400 && elsewhere != "":
		return &reserver.BadRequestError{
			Status:  status,
			Message: fmt.Sprintf("the answer to %s is that the server is elsewhere, at %q: give its own URL", r.path, elsewhere),
		}
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return &reserver.UnauthorizedError{Status: status, Message: said.Error}
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests,
		status == http.StatusServiceUnavailable:
		return &reserver.UnavailableError{RetryAfter: retryAfter(response), Err: errors.New(said.Error)}
	case status >= 400 && status < 500:
		return &reserver.BadRequestError{Status: status, Message: said.Error}
	default: // of something on the way, or of a server that failed half-way
		return r.failed(errors.New(said.Error))
	}
}

// retryAfter is how long a server asks to wait; 0 where it does not say so in seconds.
func retryAfter(response *http.Response) time.Duration {
	seconds, err := strconv.ParseUint(response.Header.Get("Retry-After"), 10, 31)
	if err != nil {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, longestRetryAfter)
}

func quote(content []byte) string {
	return fmt.Sprintf("%q", content[:min(len(content), quotedAnswer)])
}
