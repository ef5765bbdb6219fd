package httpjson

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	// intakeWait is how long a request waits for memory or a processor. It is less than the time after which
	// kube-scheduler gives up on an extender (5 s).
	intakeWait = 3 * time.Second
	firstRead  = 4 << 10
	// smallAnswer is the length in bytes of answers that the kernel takes whether or not the client reads.
	smallAnswer = 64 << 10
	// maxInFlight is how many requests of one caller are served at one time. kube-scheduler has one for each pod that
	// it binds.
	maxInFlight = 1024
)

var errInFlight = Errorf(http.StatusTooManyRequests, "%d of your requests are being served: send fewer at a time", maxInFlight)

// Intake shares what a server has among the requests that come in: memory for bodies and answers, and processors.
// All integration paths of a server use one. It is for callers who may send requests, to whom it is fair: others
// are to be refused before.
type Intake struct {
	caller func(*http.Request) string
	memory *memory
	// normal are the processors for bodies of normal size, and large for all else that takes one for long, which so
	// never has all of them.
	normal, large *Seats
	rates         *Rates
	// tooFast and tooMany count what was refused because its caller sends too many requests in a second, and has too many
	// under way.
	tooFast, tooMany atomic.Int64

	mu       sync.Mutex     // guards inFlight
	inFlight map[string]int // requests, by caller
}

// NewIntake returns an Intake with so many bytes of memory. caller names who sent a request.
func NewIntake(size int64, caller func(*http.Request) string) *Intake {
	processors := max(2, runtime.GOMAXPROCS(0))
	return &Intake{
		caller: caller, inFlight: map[string]int{}, memory: newMemory(size, intakeWait),
		normal: NewSeats(processors, intakeWait), large: NewSeats(processors/2, intakeWait),
		rates: NewRates(maxRate, maxBurst),
	}
}

// Used is how many bytes requests have at present.
func (in *Intake) Used() int64 {
	in.memory.mu.Lock()
	defer in.memory.mu.Unlock()
	return in.memory.used
}

// Decode reads the whole body of r, at most limit bytes, as one JSON value into the pointer into, in its turn. Until
// release is called, which has to be, once or more, the memory of the body counts as used. After an error into may be
// half filled and is not to be used. Every error is an *Error:
//
//   - 400: no body, no JSON, more than one value, invalid UTF-8, nested deeper than 10,000 levels,
//     or a value that does not fit its field;
//   - 408: the body did not arrive as fast as it has to;
//   - 413: the body is longer than limit;
//   - 415: Content-Type names something else than JSON (none at all is allowed), or the body is
//     compressed;
//   - 429: too many requests of the caller wait for a processor;
//   - 503: others need the memory or the processors.
//
// Decode checks form only. Whether the values make sense is for the caller to say.
func (in *Intake) Decode(w http.ResponseWriter, r *http.Request, limit int64, into any, options ...json.Options) (release func(), err error) {
	if err := checkHeader(r); err != nil {
		return func() {}, err
	}
	buf := newBuffer()
	defer putBuffer(buf)
	release, err = in.read(w, r, limit, buf)
	if err != nil {
		return release, err
	}
	processors := in.normal
	if buf.Len() > normalSize {
		processors = in.large
	}
	leave, err := processors.Take(r.Context(), in.caller(r))
	if err != nil {
		return release, err
	}
	defer leave()
	return release, Unmarshal(buf.Bytes(), into, options...)
}

// Body returns the whole body of a request, at most limit bytes, for who does not decode it. Its errors are those of
// Decode, as is release.
func (in *Intake) Body(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, release func(), err error) {
	var buf bytes.Buffer
	release, err = in.read(w, r, limit, &buf)
	return buf.Bytes(), release, err
}

// Work waits for a processor, for what takes one for long. leave gives it back.
func (in *Intake) Work(ctx context.Context, caller string) (leave func(), err error) {
	return in.large.Take(ctx, caller)
}

// Hold has memory count as used that waits for a client, until release is called, once or more. cut is called where
// others need it: it has to end the waiting, and must not block.
func (in *Intake) Hold(ctx context.Context, caller string, size int64, cut func()) (release func(), err error) {
	p := in.memory.begin(caller, func(deadline time.Time) {
		if deadline.Equal(past) {
			cut()
		}
	})
	if err := p.grow(ctx, size); err != nil {
		p.giveBack()
		return nil, err
	}
	return p.giveBack, nil
}

// Limit refuses a caller who has too many requests under way.
func (in *Intake) Limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := in.caller(r)
		if !in.count(caller, 1) {
			in.tooMany.Add(1)
			WriteError(w, errInFlight)
			return
		}
		defer in.count(caller, -1)
		next.ServeHTTP(w, r)
	})
}

// Pace refuses a request whose caller has sent too many in the last seconds.
func (in *Intake) Pace(r *http.Request) error {
	if in.rates.Take(in.caller(r), time.Now()) {
		return nil
	}
	in.tooFast.Add(1)
	return errRate
}

// Paced passes a handler the requests that Pace does not refuse.
func (in *Intake) Paced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := in.Pace(r); err != nil {
			WriteError(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// TooFast and TooMany are how many requests were refused because their callers sent too many in a second, and had too
// many under way.
func (in *Intake) TooFast() int64 { return in.tooFast.Load() }

// TooMany is described there.
func (in *Intake) TooMany() int64 { return in.tooMany.Load() }

// count counts requests of a caller, unless there are too many.
func (in *Intake) count(caller string, more int) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := in.inFlight[caller] + more
	switch {
	case n > maxInFlight:
		return false
	case n == 0:
		delete(in.inFlight, caller)
	default:
		in.inFlight[caller] = n
	}
	return true
}

// Caller names who sent a request.
func (in *Intake) Caller(r *http.Request) string { return in.caller(r) }

// Send is Answer.Send for answers of any length.
func (in *Intake) Send(w http.ResponseWriter, r *http.Request, a Answer) error {
	if a.body.Len() <= smallAnswer {
		a.Send(w)
		return nil
	}
	control := http.NewResponseController(w)
	p := in.memory.begin(in.caller(r), func(deadline time.Time) {
		_ = control.SetWriteDeadline(deadline) // a writer that knows no deadlines, as in tests, has none to set
	})
	defer p.giveBack()
	if err := p.grow(r.Context(), int64(a.body.Len())); err != nil {
		putBuffer(a.body)
		return err
	}
	a.Send(w)
	p.settle(true)
	return nil
}

// read appends the body of r to buf.
func (in *Intake) read(w http.ResponseWriter, r *http.Request, limit int64, buf *bytes.Buffer) (release func(), err error) {
	if r.Body == nil || r.ContentLength == 0 {
		return func() {}, nil
	}
	if r.ContentLength > limit {
		// The rest is not worth reading, and without that the connection cannot be used again.
		w.Header().Set("Connection", "close")
		return func() {}, tooLarge(limit)
	}
	control := http.NewResponseController(w)
	p := in.memory.begin(in.caller(r), func(deadline time.Time) {
		_ = control.SetReadDeadline(deadline) // as in Send
	})
	err = p.fill(r, http.MaxBytesReader(w, r.Body, limit), buf)
	if !p.settle(err == nil) { // it was not the client who had the body read no further
		err = errBusy
	}
	if err != nil {
		p.giveBack()
		return func() {}, readError(w, err, limit, buf.Len())
	}
	return p.giveBack, nil
}

// fill reads a body to its end. It has the memory for what comes before that comes.
func (p *portion) fill(r *http.Request, body io.Reader, buf *bytes.Buffer) error {
	for {
		// Twice as much each time, and one byte more than there is to come, which finds the end.
		next := max(firstRead, buf.Len())
		if r.ContentLength > 0 {
			next = min(next, int(r.ContentLength)-buf.Len()+1)
		}
		if err := p.grow(r.Context(), int64(buf.Len()+next)); err != nil {
			return err
		}
		buf.Grow(next)
		n, err := body.Read(buf.AvailableBuffer()[:next])
		buf.Write(buf.AvailableBuffer()[:n])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readError is what a client is told whose body could not be read.
func readError(w http.ResponseWriter, err error, limit int64, got int) error {
	var refused *Error
	var tooLong *http.MaxBytesError
	var netErr net.Error
	w.Header().Set("Connection", "close") // what is left of the body cannot be told from the next request
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &tooLong):
		return tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return Errorf(http.StatusRequestTimeout,
			"the request body did not arrive in time (%d bytes did): send it faster or in smaller requests", got)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Errorf(http.StatusBadRequest, "the request body ended after %d bytes: send as many as Content-Length says", got)
	default:
		return Errorf(http.StatusBadRequest, "the request body cannot be read: %s", Clip(err.Error()))
	}
}
