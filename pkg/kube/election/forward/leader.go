package forward

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

const (
	dialTimeout = time.Second
	// leaveTimeout is how long a leader that another one has followed may take to answer the requests that it has.
	leaveTimeout = time.Second
	// answerTimeout is how long the leader may take to begin an answer. It is above what a bind may take, and
	// below what the server has for its own answer.
	answerTimeout = 18 * time.Second
	idleTimeout   = 90 * time.Second // below the server's own: it is never the server that closes first
	keptConns     = 512
	bufferSize    = 16 << 10
)

// leader is a server that decides, or did.
type leader struct {
	term int64
	name string
	// url is nil where it cannot be reached; failure says why.
	url       *url.URL
	transport *http.Transport
	// gone ends when another one leads.
	gone context.Context
	stop context.CancelFunc

	mu      sync.Mutex // guards what follows
	failure error      // why the last try failed; nil after one that did not
	failed  time.Time
}

// errUntried is why it is not known whether a leader can be asked.
var errUntried = errors.New("it was not asked yet")

// dialError says that no connection was made: nothing was sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

func newLeader(dialer Dialer, key *Key, spec *v1alpha1.LedgerTermSpec, dialFor time.Duration) *leader {
	l := &leader{term: spec.Term, name: spec.Leader, failure: errUntried}
	l.gone, l.stop = context.WithCancel(context.Background())
	address, err := url.Parse(spec.URL)
	switch {
	case spec.URL == "" || spec.PublicKey == "":
		l.failure = fmt.Errorf("it has no address for other servers (--peer-address)")
	case err != nil || address.Scheme != "https" || address.Host == "":
		l.failure = fmt.Errorf("its address %q is not an https URL", spec.URL)
	default:
		l.url = &url.URL{Scheme: address.Scheme, Host: address.Host}
	}
	config := key.clientTLS(spec.PublicKey)
	l.transport = &http.Transport{
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialFor)
			defer cancel()
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, &dialError{err}
			}
			secure := tls.Client(conn, config)
			if err := secure.HandshakeContext(ctx); err != nil {
				_ = conn.Close() // the handshake says why
				return nil, &dialError{err}
			}
			return secure, nil
		},
		MaxIdleConnsPerHost: keptConns, IdleConnTimeout: idleTimeout, ResponseHeaderTimeout: answerTimeout,
		DisableCompression: true, ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
	}
	return l
}

// send sends a request with a body.
func (l *leader) send(out *http.Request, body []byte) (*http.Response, error) {
	ctx, cancel := context.WithCancel(out.Context())
	detach := context.AfterFunc(l.gone, cancel)
	end := func() { detach(); cancel() }
	out = out.WithContext(ctx)
	to := *out.URL
	to.Scheme, to.Host = l.url.Scheme, l.url.Host
	out.URL, out.Host = &to, ""
	out.ContentLength, out.Body, out.GetBody = int64(len(body)), http.NoBody, nil
	if len(body) > 0 {
		// With GetBody the transport takes another connection where one was closed before anything was written.
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		out.Body, _ = out.GetBody() // it has no errors
	}
	response, err := l.transport.RoundTrip(out)
	if err != nil {
		end()
		return nil, err
	}
	response.Body = &endingBody{response.Body, end}
	return response, nil
}

// endingBody calls end when it is closed, so that a request's context can be released once the answer has been read.
type endingBody struct {
	io.ReadCloser
	end func()
}

func (b *endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// leave ends, after a while, the requests under way to a leader that another one has followed. Until then, a leader
// that is alive answers that it has done nothing, and the outcome is known.
func (l *leader) leave(after time.Duration) {
	time.AfterFunc(after, func() {
		l.stop()
		l.transport.CloseIdleConnections()
	})
}

// tried records how a try ended.
func (l *leader) tried(failure error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure, l.failed = failure, time.Now()
}

// why says whether the leader need not be tried now, and why it cannot be asked.
func (l *leader) why() (rest bool, failure error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.url == nil || (l.failure != nil && time.Since(l.failed) < askAfter), l.failure
}
