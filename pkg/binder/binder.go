package binder

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// Pods is the informer's view of the cluster's pods.
type Pods interface {
	// Pod returns the pod of that name, and false where the informer has none.
	Pod(namespace, name string) (*podinfo.Info, bool)
}

// Reservations says which reserved room pods may use.
type Reservations interface {
	// Candidates returns the holds a pod may use, the preferred ones first.
	Candidates(pod *podinfo.Info) []ledger.HoldRef
	// Origin is what pods bound with a reservation are told of it.
	Origin(namespace, name string) podinfo.Origin
}

// Devices says what the claims of devices that pods name ask for.
type Devices interface {
	// Devices returns nil for a pod that names no claims.
	Devices(pod *podinfo.Info) *ledger.DeviceRequest
}

// Options configures a Binder.
type Options struct {
	Ledger *ledger.Ledger // required
	Client Client         // required
	Pods   Pods           // required
	// Recent holds the pods of the last filter calls; nil where there is none.
	Recent *Recent
	// Reservations is nil where no pod uses holds but those kept for it alone.
	Reservations Reservations
	// Devices is nil where no pod may have devices: those with claims are refused.
	Devices Devices
	// Preemptors are the pods that may end preemptible holds; nil means none.
	Preemptors *Preemptors
	// Timeout is after how long callers get an answer whatever happens; 0 means
	// 8s. It must lie below the callers' own timeout, and one request to the API
	// server may take a third of it.
	Timeout time.Duration
	// Settle is after how long no request can still be waiting in the API server;
	// 0 means 90s. It must not lie below the API server's --request-timeout.
	Settle time.Duration
	// MaxInFlight bounds the binds whose outcome is not known; 0 means 4096.
	MaxInFlight int
	Log         logrus.FieldLogger // nil means none
	// OnOutcome is told how each bind ended for which a Binding was sent. One
	// that is Unknown at its deadline is reported again when it is known. nil
	// means nobody is told.
	OnOutcome func(Outcome)
	// Now is the clock the ledger's deadlines are compared with; nil means
	// time.Now.
	Now func() time.Time
}

const (
	defaultTimeout     = 8 * time.Second
	defaultSettle      = 90 * time.Second
	defaultMaxInFlight = 4096
)

// RequestTimeout returns how long one request to the API server may take within
// a bind that may take timeout: there is time for a repeat and a re-read.
func RequestTimeout(timeout time.Duration) time.Duration { return timeout / 3 }

func (o *Options) setDefaults() error {
	if o.Ledger == nil || o.Client == nil || o.Pods == nil {
		return errors.New("binder: Options.Ledger, Client and Pods are required")
	}
	if o.Timeout < 0 || o.Settle < 0 || o.MaxInFlight < 0 {
		return errors.New("binder: Options.Timeout, Settle and MaxInFlight must not be negative")
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Settle == 0 {
		o.Settle = defaultSettle
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = defaultMaxInFlight
	}
	if o.Recent == nil {
		o.Recent = NewRecent(1)
	}
	if o.Reservations == nil {
		o.Reservations = noReservations{}
	}
	if o.Devices == nil {
		o.Devices = noDevices{}
	}
	if o.Preemptors == nil {
		o.Preemptors = NewPreemptors(1)
	}
	if o.Log == nil {
		o.Log = silentLogger()
	}
	if o.OnOutcome == nil {
		o.OnOutcome = func(Outcome) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return nil
}

// Binder binds pods; see the package comment. Make one with New and end it with
// Stop.
type Binder struct {
	o      Options
	ctx    context.Context // of all flights; ends with Stop
	cancel context.CancelFunc
	wg     sync.WaitGroup // the flights' goroutines

	// mu guards the rest.
	mu      sync.Mutex
	stopped bool
	flights map[flightKey]*flight
}

type flightKey struct {
	pod  ledger.PodRef
	node string
}

// flight is one bind under way.
type flight struct {
	flightKey
	// overdue ends at the deadline for answering the callers, and with the flight.
	overdue context.Context
	cancel  context.CancelFunc
	info    atomic.Pointer[podinfo.Info] // nil until the pod was found
	// annotations tell with the Binding what the pod was bound with.
	annotations map[string]string
	done        chan struct{}
	err         error // to be read after done

	// Of the flight's goroutine only:
	deadline time.Time // when overdue ends
	posted   bool
	reported bool      // that it is overdue
	lost     time.Time // when the last POST was sent whose fate is unknown; zero if none
}

// New returns a Binder. It starts nothing.
func New(o Options) (*Binder, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Binder{o: o, ctx: ctx, cancel: cancel, flights: map[flightKey]*flight{}}, nil
}

// Bind binds a pod to a node, or joins the same bind where one is under way. It
// returns what is known of the pod, nil where nothing is, and an *Error where
// the pod was not bound or is not known to be. The end of ctx ends the waiting,
// not the bind.
func (b *Binder) Bind(ctx context.Context, pod ledger.PodRef, node string) (*podinfo.Info, error) {
	f, err := b.join(flightKey{pod, node})
	if err != nil {
		return nil, err
	}
	select {
	case <-f.done:
		return f.info.Load(), f.err
	case <-ctx.Done():
		return f.info.Load(), &Error{Outcome: Unknown, Pod: pod, Node: node, Cause: ctx.Err()}
	case <-f.overdue.Done():
	}
	select {
	case <-f.done: // both had ended
		return f.info.Load(), f.err
	default:
		return f.info.Load(), &Error{Outcome: Unknown, Pod: pod, Node: node}
	}
}

// join returns the flight of a bind and starts it if there is none.
func (b *Binder) join(key flightKey) (*flight, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f, ok := b.flights[key]; ok {
		return f, nil
	}
	if b.stopped {
		return nil, &Error{Outcome: Stopping, Pod: key.pod, Node: key.node}
	}
	if len(b.flights) >= b.o.MaxInFlight {
		return nil, &Error{Outcome: Busy, Pod: key.pod, Node: key.node}
	}
	f := &flight{flightKey: key, done: make(chan struct{}), deadline: time.Now().Add(b.o.Timeout)}
	f.overdue, f.cancel = context.WithDeadline(b.ctx, f.deadline)
	b.flights[key] = f
	b.wg.Go(func() { b.run(f) })
	return f, nil
}

// run carries out a flight and tells everybody.
func (b *Binder) run(f *flight) {
	f.err = b.bind(f)
	outcome := Bound
	var e *Error
	if errors.As(f.err, &e) {
		outcome = e.Outcome
	}
	if f.posted && (outcome != Unknown || !f.reported) {
		b.o.OnOutcome(outcome)
	}
	if f.reported {
		b.log(f).WithField("outcome", outcome).Info("A bind whose outcome was not known in time has ended")
	}
	b.mu.Lock()
	delete(b.flights, f.flightKey)
	b.mu.Unlock()
	close(f.done)
	f.cancel() // after done: whoever waits must see the answer, not the deadline
}

// Stop refuses new binds, waits until those under way have answered their
// callers, or ctx ends, and then ends what is left: binds of which the outcome
// is unknown. It returns an error where it cut off binds within their time.
func (b *Binder) Stop(ctx context.Context) error {
	b.mu.Lock()
	b.stopped = true
	waiting := make([]*flight, 0, len(b.flights))
	for _, f := range b.flights {
		waiting = append(waiting, f)
	}
	b.mu.Unlock()
	var err error
	for k, f := range waiting {
		select {
		case <-f.done:
		case <-f.overdue.Done():
		case <-ctx.Done():
			err = fmt.Errorf("binder: stopped before up to %d binds had an answer; their pods may be bound nevertheless: %w",
				len(waiting)-k, ctx.Err())
		}
		if err != nil {
			break
		}
	}
	b.cancel()
	b.wg.Wait()
	return err
}

func (b *Binder) log(f *flight) logrus.FieldLogger {
	return b.o.Log.WithFields(logrus.Fields{"pod": f.pod.String(), "uid": f.pod.UID, "node": f.node})
}

func (f *flight) fail(outcome Outcome, cause error) *Error {
	return &Error{Outcome: outcome, Pod: f.pod, Node: f.node, Cause: cause}
}
