package httpjson

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	// intakeWait is how long a request waits for memory or a processor. It is less than the time after which
	// kube-scheduler gives up on an extender (5 s).
	intakeWait = 3 * time.Second
	firstRead  = 4 << 10
	// normalSize is the size in bytes up to which decoding a body is normal work: the names of 5,000 nodes take a third
	// of it.
	normalSize = 1 << 20
	// smallAnswer is the length in bytes of answers that the kernel takes whether or not the client reads.
	smallAnswer = 64 << 10
	// grace and leastRate are how slow the other side of a connection may be: it has the time grace, and a second
	// more for every leastRate bytes. Without both a few slow ones could keep what others wait for.
	grace     = 3 * time.Second
	leastRate = 4 << 20
	// maxInFlight is how many requests of one caller are served at one time. kube-scheduler has one for each pod that
	// it binds.
	maxInFlight = 1024
)

// past is a deadline that is over.
var past = time.Unix(1, 0)

var errInFlight = Errorf(http.StatusTooManyRequests, "%d of your requests are being served: send fewer at a time",
	maxInFlight)

// Intake shares what a server has among the requests that come in: memory for bodies and answers, and processors. All
// integration paths of a server use one. A caller has half of each at most. It is for callers who may send requests:
// others are to be refused before.
type Intake struct {
	// TooFast counts requests that were refused because their caller sends too many in a second, and TooMany those
	// whose caller has too many under way.
	TooFast, TooMany atomic.Int64

	caller func(*http.Request) string
	// reads are the memory for answers to GET, and memory is for bodies and all other answers: a caller that only
	// reads, and is slow at it, takes nothing from callers that need a decision.
	memory, reads *Shares
	// normal are the processors for bodies of normal size, and large for all else that takes one for long, which so
	// never has all of them.
	normal, large *Shares
	inFlight      *Shares
	rates         *Rates
	grace         time.Duration
}

// NewIntake returns an Intake with so many bytes of memory. caller names who sent a request.
func NewIntake(size int64, caller func(*http.Request) string) *Intake {
	half := func(size int64) *Shares { return NewShares(size, max(1, size/2), intakeWait) }
	processors := int64(max(2, runtime.GOMAXPROCS(0)))
	return &Intake{
		caller: caller, memory: half(size - size/3), reads: half(size / 3),
		normal: half(processors), large: half(processors / 2),
		inFlight: NewShares(math.MaxInt64, maxInFlight, 0), rates: NewRates(maxRate, maxBurst), grace: grace,
	}
}

// Used is how many bytes requests have at present.
func (in *Intake) Used() int64 { return in.memory.Had() + in.reads.Had() }

// Decode reads the whole body of r, at most limit bytes, as one JSON value into the pointer into, in its turn. The
// memory of the body counts as used until release is called, which has to be, once or more. After an error into may be
// half filled and is not to be used. Every error is an *Error:
//
//   - 400: no body, no JSON, more than one value, invalid UTF-8, nested deeper than 10,000 levels,
//     or a value that does not fit its field;
//   - 408: the body did not arrive as fast as it has to;
//   - 413: the body is longer than limit;
//   - 415: Content-Type names something else than JSON (none at all is allowed), or the body is
//     compressed;
//   - 503: there was no memory or no processor for it in time.
//
// Decode checks form only. Whether the values make sense is for the caller to say.
func (in *Intake) Decode(w http.ResponseWriter, r *http.Request, limit int64, into any,
	options ...json.Options,
) (release func(), err error) {
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
	leave, err := processors.Take(r.Context(), in.caller(r), 1)
	if err != nil {
		return release, err
	}
	defer leave()
	return release, Unmarshal(buf.Bytes(), into, options...)
}

// Body returns the whole body of a request, at most limit bytes, for a caller that does not decode it. Its errors are
// those of Decode, as is release.
func (in *Intake) Body(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, release func(), err error) {
	var buf bytes.Buffer
	release, err = in.read(w, r, limit, &buf)
	return buf.Bytes(), release, err
}

// Work waits for a processor, for what takes one for long. leave gives it back.
func (in *Intake) Work(ctx context.Context, caller string) (leave func(), err error) {
	return in.large.Take(ctx, caller, 1)
}

// Hold waits for memory for what is sent to a client that only reads. release, to be called once or more, gives it
// back.
func (in *Intake) Hold(ctx context.Context, caller string, size int64) (release func(), err error) {
	return in.reads.Take(ctx, caller, size)
}

// Limit refuses a caller who has too many requests under way.
func (in *Intake) Limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leave, err := in.inFlight.Take(r.Context(), in.caller(r), 1)
		if err != nil {
			in.TooMany.Add(1)
			WriteError(w, errInFlight)
			return
		}
		defer leave()
		next.ServeHTTP(w, r)
	})
}

// Pace refuses a request whose caller has sent too many in the last seconds.
func (in *Intake) Pace(r *http.Request) error {
	if in.rates.Take(in.caller(r), time.Now()) {
		return nil
	}
	in.TooFast.Add(1)
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

// Caller names who sent a request.
func (in *Intake) Caller(r *http.Request) string { return in.caller(r) }

// Send is Answer.Send for answers of any length.
func (in *Intake) Send(w http.ResponseWriter, r *http.Request, a Answer) error {
	if a.body.Len() <= smallAnswer {
		a.Send(w)
		return nil
	}
	from := in.memory
	if r.Method == http.MethodGet {
		from = in.reads
	}
	release, err := from.Take(r.Context(), in.caller(r), int64(a.body.Len()))
	if err != nil {
		putBuffer(a.body)
		return err
	}
	defer release()
	// A writer that knows no deadlines, as in tests, has none to set.
	_ = http.NewResponseController(w).SetWriteDeadline(in.deadline(time.Now(), a.body.Len()))
	a.Send(w)
	return nil
}

// deadline is when a client is too slow to send or to take so many bytes.
func (in *Intake) deadline(begun time.Time, size int) time.Time {
	return begun.Add(in.grace + time.Duration(size)*time.Second/leastRate)
}

// read appends the body of r to buf. It takes the memory for each part before it reads the part, and takes none on the
// word of a header.
func (in *Intake) read(w http.ResponseWriter, r *http.Request, limit int64,
	buf *bytes.Buffer,
) (release func(), err error) {
	if r.Body == nil || r.ContentLength == 0 {
		return func() {}, nil
	}
	if isOwn(r.Context()) {
		limit = math.MaxInt64
	}
	if r.ContentLength > limit {
		// The rest is not worth reading, and without that the connection cannot be used again.
		w.Header().Set("Connection", "close")
		return func() {}, tooLarge(limit)
	}
	memory, begun := in.memory.begin(in.caller(r)), time.Now()
	part, control := io.LimitedReader{R: http.MaxBytesReader(w, r.Body, limit)}, http.NewResponseController(w)
	for err == nil && part.N == 0 { // until there is less than what was asked for
		// Twice as much each time, and one byte more than there is to come, which finds the end.
		next := max(firstRead, buf.Len())
		if r.ContentLength > 0 {
			next = min(next, int(r.ContentLength)-buf.Len()+1)
		}
		if err = memory.grow(r.Context(), int64(buf.Len()+next)); err == nil {
			_ = control.SetReadDeadline(in.deadline(begun, buf.Len()+next)) // as in Send
			buf.Grow(next + bytes.MinRead)
			part.N = int64(next)
			_, err = buf.ReadFrom(&part)
		}
	}
	if err == nil {
		_ = control.SetReadDeadline(time.Time{}) // or the request ends with it
		return memory.giveBack, nil
	}
	_ = control.SetReadDeadline(past) // nobody waits for the rest
	memory.giveBack()
	return func() {}, readError(w, err, limit, buf.Len())
}

// readError is the error for a client whose body could not be read.
func readError(w http.ResponseWriter, err error, limit int64, got int) error {
	var refused *Error
	var tooLong *http.MaxBytesError
	var netErr net.Error
	w.Header().Set("Connection", "close") // what is left of the body cannot be distinguished from the next request
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &tooLong):
		return tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return Errorf(http.StatusRequestTimeout,
			"the request body did not arrive in time (%d bytes did): send it faster or in smaller requests", got)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Errorf(http.StatusBadRequest, "the request body ended after %d bytes: send as many as Content-Length says",
			got)
	default:
		return Errorf(http.StatusBadRequest, "the request body cannot be read: %s", Clip(err.Error()))
	}
}
