package decide

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/kube/apiwrite"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics/tracing"
)

type flightKey struct {
	pod  ledger.PodRef
	node string
}

// flight is one bind under way.
type flight struct {
	flightKey
	caller string // the one that asked first
	chosen bool   // the server, and not a scheduler, has chosen the node
	// ctx is the Arbiter's, with the span of the first request.
	ctx context.Context
	// overdue ends at the deadline for answering the callers, and with the flight.
	overdue context.Context
	cancel  context.CancelFunc
	info    atomic.Pointer[cluster.Pod] // nil until the pod was found
	// version is that of info once it was granted something. The Binding is carried out on no other version.
	version string
	// annotations record with the Binding what the pod was bound with.
	annotations map[string]string
	done        chan struct{}
	err         error // to be read after done

	// Of the flight's goroutine only:
	deadline       time.Time // when overdue ends
	apiwrite.Write           // of the Binding
	posted         bool
	hurried        bool // it was sent again without a pause
	reported       bool // as overdue
}

// Bind binds a pod to a node, or joins the same bind where one is under way. It returns what is known of the pod, nil
// where nothing is, and an *Error where the pod was not bound or is not known to be. The end of ctx ends the waiting,
// not the bind. Where the caller may not act for the pod's scheduler, the error is that of MayUse.
func (a *Arbiter) Bind(ctx context.Context, pod ledger.PodRef, node string) (*cluster.Pod, error) {
	if err := a.o.Ledger.Ready(); err != nil {
		return nil, err.Of(pod, node)
	}
	pod, err := a.mayBind(ctx, pod)
	if err != nil {
		return nil, err
	}
	f, err := a.join(ctx, flightKey{pod, node})
	if err != nil {
		return nil, err
	}
	if !f.await(ctx) {
		return f.info.Load(), &gates.Error{Outcome: gates.Unknown, Pod: pod, Node: node, Cause: ctx.Err()}
	}
	return f.info.Load(), f.err
}

// AwaitBind waits until a bind of a pod to a node has ended, if one is under way. It reports false where that is not
// known in time.
func (a *Arbiter) AwaitBind(ctx context.Context, pod ledger.PodRef, node string) bool {
	a.mu.Lock()
	f := a.flights[flightKey{pod, node}]
	a.mu.Unlock()
	return f == nil || f.await(ctx)
}

// await waits until a flight has ended, and reports false where it has not in time.
func (f *flight) await(ctx context.Context) bool {
	select {
	case <-f.done:
	case <-ctx.Done():
	case <-f.overdue.Done():
	}
	select {
	case <-f.done: // perhaps at the same time as another channel
		return true
	default:
		return false
	}
}

// join returns the flight of a bind and starts it if there is none.
func (a *Arbiter) join(ctx context.Context, key flightKey) (*flight, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f, ok := a.flights[key]; ok {
		return f, nil
	}
	if a.stopped {
		return nil, &gates.Error{Outcome: gates.Stopping, Pod: key.pod, Node: key.node}
	}
	if len(a.flights) >= a.o.MaxInFlight {
		return nil, &gates.Error{Outcome: gates.Busy, Pod: key.pod, Node: key.node}
	}
	return a.start(tracing.Carry(a.ctx, ctx), &flight{flightKey: key, caller: auth.Name(ctx)}), nil
}

// start starts a flight. mu is held.
func (a *Arbiter) start(ctx context.Context, f *flight) *flight {
	f.ctx, f.done, f.deadline = ctx, make(chan struct{}), time.Now().Add(a.o.BindTimeout)
	f.overdue, f.cancel = context.WithDeadline(a.ctx, f.deadline)
	a.flights[f.flightKey] = f
	a.wg.Go(func() { a.run(f) })
	return f
}

// run carries out a flight, counts its outcome and releases its callers.
func (a *Arbiter) run(f *flight) {
	f.err = a.bind(f)
	if f.err != nil {
		a.bindRefused(f)
	}
	outcome := gates.Bound
	var e *gates.Error
	if errors.As(f.err, &e) {
		outcome = e.Outcome
	}
	if f.posted && (outcome != gates.Unknown || !f.reported) {
		a.o.Metrics.ObserveBindOutcome(string(outcome))
	}
	if f.reported {
		a.log(f).WithField("outcome", outcome).Info("A bind whose outcome was not known in time has ended")
	}
	a.mu.Lock()
	delete(a.flights, f.flightKey)
	a.mu.Unlock()
	close(f.done)
	f.cancel() // after done: callers must see the answer, not the deadline
}

// Stop refuses new binds, waits until those under way have answered their callers, or ctx ends, and then ends what is
// left: binds of which the outcome is unknown. Meanwhile it settles what was allowed at the API server. It returns an
// error where it cut off binds within their time.
func (a *Arbiter) Stop(ctx context.Context) error {
	a.wg.Go(func() { a.stopAllowances(ctx) })
	a.mu.Lock()
	a.stopped = true
	waiting := make([]*flight, 0, len(a.flights))
	for _, f := range a.flights {
		waiting = append(waiting, f)
	}
	a.mu.Unlock()
	var err error
	for k, f := range waiting {
		select {
		case <-f.done:
		case <-f.overdue.Done():
		case <-ctx.Done():
			err = fmt.Errorf("arbiter: stopped before up to %d binds had an answer; their pods may be bound nevertheless: %w",
				len(waiting)-k, ctx.Err())
		}
		if err != nil {
			break
		}
	}
	a.cancel()
	a.wg.Wait()
	return err
}

func (a *Arbiter) log(f *flight) logrus.FieldLogger {
	return a.o.Log.WithFields(logrus.Fields{"pod": f.pod.String(), "uid": f.pod.UID, "node": f.node})
}

func (f *flight) fail(outcome gates.Outcome, cause error) *gates.Error {
	return &gates.Error{Outcome: outcome, Pod: f.pod, Node: f.node, Cause: cause}
}
