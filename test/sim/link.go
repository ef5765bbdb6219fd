package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// errLost is what a client hears of a request, or an answer, that the network loses.
var errLost = errors.New("the connection was lost")

// link is the network between one server and the API server, or those who ask it. It implements http.RoundTripper.
type link struct {
	to     http.RoundTripper
	gate   *gate // of the process
	cut    *gate // closed while the network is cut
	writes int   // how often more happens to writes: there are fewer of them
	fates  []string
	// without are those that do not happen.
	without []string
	note    func(format string, args ...any)
	// sending are the requests that arrive late.
	sending sync.WaitGroup

	mu     sync.Mutex // guards what follows
	random *rand.Rand
	// trouble is how many of a hundred requests something happens to.
	trouble int
	late    int // the longest that a request is late, in milliseconds
	// doomed has all writes arrive late: what a process sent before it died.
	doomed bool
}

// isRepeated is the key of the context of a request that is sent twice. Others want both, or none: who has sent it
// takes a refusal for that of the first one.
var isRepeated = new(int)

// fate is what becomes of one request.
type fate struct {
	what          string        // one of those below; "" for none
	before, after time.Duration // the time of its way there, and of the answer's back
	lag           time.Duration // by how much each piece of a watch is late
	carried       bool          // it is carried out, although the answer is an error
}

// The fates of requests. Of those that are lost or late the client cannot tell whether they are carried out.
const (
	requestLost = "request lost"
	answerLost  = "answer lost"
	late        = "late"
	slow        = "slow"
	twice       = "sent twice"
	throttled   = "429"
	failed      = "500"
	unavailable = "503"
	stalled     = "watch stalls"
	cut         = "watch is cut"
)

var (
	fates      = []string{requestLost, answerLost, late, slow, throttled, failed, unavailable, twice}
	watchFates = []string{requestLost, throttled, unavailable}
	// pieceFates are those of what is heard of a watch, one after the other.
	pieceFates = []string{stalled, cut}
	// askedFates are those of what servers are asked. Who asks twice knows that.
	askedFates = []string{requestLost, answerLost, late, slow, slow, slow, slow, throttled, failed, unavailable}
)

// Longest times of what happens, in milliseconds. A watch that stalls is silent for longer than decisions may rest on
// it, others lag for a shorter time.
const (
	longestWay   = 4000
	usualLag     = 100
	longestLag   = 2000
	longestStall = 180000
)

// setTrouble says how many of a hundred requests something happens to.
func (l *link) setTrouble(percent int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble = percent
}

// doom has all writes arrive late from now on.
func (l *link) doom() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doomed = true
}

// draw draws the fate of a request.
func (l *link) draw(watch, write bool) fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := fate{before: milliseconds(l.random, 3), after: milliseconds(l.random, 3)}
	if f.lag = milliseconds(l.random, usualLag); l.trouble > 0 && l.random.IntN(2) == 0 {
		f.lag = milliseconds(l.random, longestLag)
	}
	percent := l.trouble
	if write {
		percent *= l.writes
	}
	if l.random.IntN(100) >= percent && !(write && l.doomed) {
		return f
	}
	list := l.fates
	if watch {
		list = watchFates
	}
	f.what = list[l.random.IntN(len(list))]
	if slices.Contains(l.without, f.what) {
		f.what = ""
		return f
	}
	if f.what == slow || l.random.IntN(4) == 0 {
		f.before = milliseconds(l.random, longestWay)
	}
	if f.what == slow || l.random.IntN(4) == 0 {
		f.after = milliseconds(l.random, longestWay)
	}
	if f.what == late {
		f.before = milliseconds(l.random, l.late)
	}
	if write && l.doomed {
		f.what, f.before = late, milliseconds(l.random, l.late)
	}
	f.carried = f.what == failed && l.random.IntN(2) == 0
	return f
}

// pieces is of how many pieces of a watch something happens to one, where it happens to all requests.
const pieces = 50

// drawPiece draws what becomes of a piece of a watch, and by how much it is late.
func (l *link) drawPiece(usual time.Duration) (what string, lag time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.random.IntN(100*pieces) >= l.trouble {
		return "", usual
	}
	what, lag = pieceFates[l.random.IntN(len(pieceFates))], usual
	if slices.Contains(l.without, what) {
		return "", usual
	}
	if what == stalled {
		lag = milliseconds(l.random, longestStall)
	}
	l.note("%s for %s", what, lag)
	return what, lag
}

func milliseconds(random *rand.Rand, most int) time.Duration {
	return time.Duration(random.IntN(most+1)) * time.Millisecond
}

// RoundTrip implements http.RoundTripper.
func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	watch := r.URL.Query().Has("watch")
	f := l.draw(watch, r.Method != http.MethodGet)
	if f.what != "" {
		l.note("%s: %s %s", f.what, r.Method, r.URL.RequestURI())
	}
	body, err := readAll(r.Body)
	if err != nil {
		return nil, err
	}
	if f.what == late {
		return nil, l.sendLate(r, body, f)
	}
	if err = l.travel(ctx, f.before); err != nil {
		return nil, err
	}
	switch f.what {
	case requestLost:
		return nil, errLost
	case throttled, failed, unavailable:
		if f.carried {
			if response, err := l.to.RoundTrip(with(ctx, r, body)); err == nil {
				discard(response)
			}
		}
		if err := l.travel(ctx, f.after); err != nil {
			return nil, err
		}
		return refusal(r, f.what), nil
	case twice:
		ctx = context.WithValue(ctx, isRepeated, true)
		if first, err := l.to.RoundTrip(with(ctx, r, body)); err == nil {
			discard(first) // the client hears of the second
		}
	}
	response, err := l.to.RoundTrip(with(ctx, r, body))
	if err != nil {
		return nil, err
	}
	if err = l.travel(ctx, f.after); err == nil && f.what == answerLost {
		err = errLost
	}
	if err != nil {
		_ = response.Body.Close() // nobody reads it
		return nil, err
	}
	if watch {
		response.Body = &watchBody{ReadCloser: response.Body, link: l, ctx: ctx, lag: f.lag}
	}
	return response, nil
}

// sendLate sends a request that arrives after a while, when its client may have given up. That one hears nothing.
func (l *link) sendLate(r *http.Request, body []byte, f fate) error {
	l.sending.Go(func() {
		// What a process has sent travels on when it is paused or dead.
		time.Sleep(f.before)
		if response, err := l.to.RoundTrip(with(context.WithoutCancel(r.Context()), r, body)); err == nil {
			discard(response)
		}
	})
	if err := l.travel(r.Context(), f.before+f.after); err != nil {
		return err
	}
	return errLost
}

// travel takes the time of a way, for which the process must run.
func (l *link) travel(ctx context.Context, takes time.Duration) error {
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return ctx.Err()
	case <-l.gate.dead:
		return errDead
	}
	if err := l.cut.pass(ctx); err != nil {
		return err
	}
	return l.gate.pass(ctx)
}

func readAll(body io.ReadCloser) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	defer body.Close()
	return io.ReadAll(body)
}

func discard(response *http.Response) {
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
}

// with returns a request with a context and a body of its own.
func with(ctx context.Context, r *http.Request, body []byte) *http.Request {
	r = r.Clone(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r
}

// refusal is what an API server answers that has too much to do, or has trouble itself.
func refusal(r *http.Request, status string) *http.Response {
	code := map[string]int{
		throttled: http.StatusTooManyRequests, failed: http.StatusInternalServerError,
		unavailable: http.StatusServiceUnavailable,
	}[status]
	header := http.Header{"Content-Type": {"text/plain"}}
	if code == http.StatusTooManyRequests {
		header.Set("Retry-After", "1")
	}
	return &http.Response{
		StatusCode: code, Status: status, Header: header, Request: r, ProtoMajor: 2,
		Body: io.NopCloser(strings.NewReader(fmt.Sprintf("the API server says %s", status))),
	}
}

// watchBody is what a server hears of a watch.
type watchBody struct {
	io.ReadCloser
	link  *link
	ctx   context.Context
	lag   time.Duration
	begun bool
}

// Read implements io.Reader. What is late delays all after it: a watch is in order. Nothing happens to its begin.
func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	what, lag := "", time.Duration(0)
	if b.begun {
		what, lag = b.link.drawPiece(b.lag)
	}
	b.begun = true
	if late := b.link.travel(b.ctx, lag); late != nil {
		return 0, late
	}
	if what == cut {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}
