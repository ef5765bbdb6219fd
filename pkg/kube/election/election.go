package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	typed "github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/typed/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

// LeaseName is the name of the Lease that the deciding server holds.
const LeaseName = "globalreserve"

// Times are those of the Lease; see DefaultTimes.
type Times struct {
	// Lease is after how long another server may take a Lease that is not renewed. Renew is how long its holder tries
	// to renew it before it gives up. Retry is the time between tries.
	Lease, Renew, Retry time.Duration
}

// DefaultTimes are those of Kubernetes' own components. 4s, 3s and 1s are for a cluster that would rather be without a
// leader for a shorter time, and ask the API server more often.
func DefaultTimes() Times {
	return Times{Lease: 15 * time.Second, Renew: 10 * time.Second, Retry: 2 * time.Second}
}

// Validate returns what is wrong with the times, given how long one write of a leader may take.
func (t Times) Validate(write time.Duration) error {
	switch {
	case t.Lease < time.Second || t.Lease%time.Second != 0:
		return fmt.Errorf("the duration of the Lease, %s, must be whole seconds and at least 1s", t.Lease)
	case t.Renew >= t.Lease || t.Renew <= 0:
		return fmt.Errorf("the time to renew the Lease, %s, must lie between 0 and the Lease's duration of %s", t.Renew,
			t.Lease)
	case t.Retry <= 0 || float64(t.Retry)*leaderelection.JitterFactor >= float64(t.Renew):
		return fmt.Errorf("the pause between tries to renew the Lease, %s, must be above 0 and below %s", t.Retry,
			time.Duration(float64(t.Renew)/leaderelection.JitterFactor))
	case write > t.Renew:
		return fmt.Errorf("one request of a bind may take %s, which is longer than the Lease is tried to be renewed, %s: "+
			"shorten the bind timeout, or lengthen the Lease's times", write, t.Renew)
	}
	return nil
}

// writeMargin is by how much a write may be seen later than the time limit of its request: the time from the API
// server's write to its arrival here.
const writeMargin = time.Second

// Options are what an Elector works with. All are required.
type Options struct {
	Client kubernetes.Interface
	Terms  typed.LedgerTermInterface
	// Namespace is that of the Lease.
	Namespace string
	// Clock has an Uptime that deadlines of the Lease run on.
	Clock *steady.Clock
	// Identity distinguishes this process from all others.
	Identity string
	Times    Times
	// Bind is the time limit of a request that binds a pod, and Object that of one that creates a Reservation. Where the
	// API server does not refuse what comes late, the next leader waits for as long.
	Bind, Object time.Duration
	// Follow is called each time that another server is seen to lead: this one can prepare itself to take over.
	Follow func()
	// Stale returns the kinds of which this server has received nothing for too long to decide, or "". The server does not
	// take the Lease while there are some.
	Stale func() string
	// StandBy reports whether another server is there that may take over.
	StandBy func() bool
	// TakeOver makes the account. It is called once, when no other server can write any
	// more, and decisions wait for it. led is how long ago another server was last known to lead; ever where none
	// was. Its ctx ends with the leadership.
	TakeOver func(ctx context.Context, led time.Duration) error
	// Resume brings the account up to date. It is called when the Lease could not be renewed for some time, is renewed
	// again, and no other server had it meanwhile. Decisions wait for it. Its ctx ends with the Lease.
	Resume func(ctx context.Context) error
	// Alone makes this server decide without the Lease. Only the administrator keeps a second
	// server from deciding beside it.
	Alone bool
	Log   logrus.FieldLogger
}

// leadership is the one that this server has, or had last.
type leadership struct {
	fence atomic.Pointer[Fence]
	state atomic.Int32
}

// The states of a leadership.
const (
	takingOver = iota
	deciding
	ended
)

// errLost is why a server that decided has to end: it could not renew its Lease, and another one had it since. What it
// remembers may be wrong by now.
var errLost = errors.New("the lease of the ledger is lost: another server may be deciding now")

// errStale is why a server that decided has to end: it knows too little to decide, and gave the Lease up so that
// another server can.
var errStale = errors.New("this server may not know of the latest changes, and has given the lease of the ledger up")

// ever is longer ago than anything.
const ever = time.Duration(math.MaxInt64)

// poll is how often a server that does not lead looks whether the Lease was given up.
const poll = 500 * time.Millisecond

// Elector takes part in the election of the server that decides. Make one with New.
type Elector struct {
	o      Options
	lease  *lease
	writes *Writes
	term   *OwnTerm
	// led is nil until this server begins to take over.
	led atomic.Pointer[leadership]
	// unraised is the right that was missing when the term was raised the last time; nil: none.
	unraised atomic.Pointer[string]
	// decides is closed when this server decides for the first time.
	decides chan struct{}
	moved   chan struct{} // see Moved
	decided sync.Once     // closes decides
	// followed is the server that led when Follow was called last. One goroutine uses it.
	followed string
	// url and publicKey are those of Advertise.
	url       string
	publicKey v1alpha1.PublicKey
}

// New returns an Elector that does not run. It takes part only in Run.
func New(o Options) (*Elector, error) {
	if err := o.Times.Validate(o.Bind); err != nil {
		return nil, err
	}
	answers := &versions{LeaseInterface: o.Client.CoordinationV1().Leases(o.Namespace)}
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: LeaseName}, Client: answers,
		LockConfig: resourcelock.ResourceLockConfig{Identity: o.Identity},
	}
	e := &Elector{o: o, term: NewOwnTerm(0), decides: make(chan struct{}), moved: make(chan struct{}, 1)}
	e.writes = NewWrites(o.Times.write(), e.mayWrite)
	e.lease = &lease{
		o: &e.o, writes: e.writes, others: func() {}, running: context.Background(),
		sure: o.Times.Lease - o.Times.Retry, lock: lock, Interface: lock,
	}
	answers.l = e.lease
	return e, nil
}

// Advertise sets where other servers reach this one, and with which key it answers them. It must be called
// before Run, if at all.
func (e *Elector) Advertise(url string, key v1alpha1.PublicKey) { e.url, e.publicKey = url, key }

// Identity is the name under which this server takes part.
func (e *Elector) Identity() string { return e.o.Identity }

// Writes returns the Writes that carry out what this server decides.
func (e *Elector) Writes() *Writes { return e.writes }

// mayWrite reports whether this server leads or is about to, and no other server can lead yet.
func (e *Elector) mayWrite() bool {
	led := e.led.Load()
	return led != nil && led.state.Load() != ended && (e.o.Alone || e.lease.held())
}

// Leads returns "" while this server decides, else why it does not.
func (e *Elector) Leads() string {
	led := e.led.Load()
	held, leader := e.o.Alone || e.lease.held(), e.lease.holder()
	trouble := cmp.Or(e.lease.trouble.Load(), e.unraised.Load())
	switch {
	case e.lease.restored.Load():
		return errRestored.Error()
	case led != nil && led.state.Load() == deciding && held:
		return ""
	case led != nil && (led.state.Load() == ended || !held):
		return "another server may be deciding by now, because this one could not renew its lease, or gave it up; ask " +
			"again in a moment"
	case held && trouble != nil:
		return "this server cannot take over: " + *trouble
	case held:
		return "this server has just become the one that decides, and is taking over; ask again in a moment"
	case leader == "":
		if trouble != nil {
			return "no server decides now: " + *trouble
		}
		return "no server decides now; ask again in a moment"
	default:
		return fmt.Sprintf("server %s decides, and not this one", leader)
	}
}

// Wait returns when this server decides for the first time, or ctx ends.
func (e *Elector) Wait(ctx context.Context) error {
	select {
	case <-e.decides:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Term is the term in which this server decides, or decided.
func (e *Elector) Term() *OwnTerm { return e.term }

// Fence says whether the API server refuses what earlier leaders send, as was found last; ok is false
// before this server has taken over.
func (e *Elector) Fence() (f Fence, ok bool) {
	if l := e.led.Load(); l != nil {
		return *l.fence.Load(), true
	}
	return Fence{}, false
}

// Run takes part in the election until ctx ends. If this server leads then, it gives
// the Lease up, so that another one need not wait for its end: no write may be under way any more, and none is sent
// later. It returns errLost where another server has led since this one did, errStale where this one let another one
// lead, and errRestored where etcd was restored from a backup.
func (e *Elector) Run(ctx context.Context) error {
	if e.o.Alone {
		e.o.Log.Warn("this server does not take part in an election: a second one beside it would give the same capacity " +
			"away twice; it waits while another one holds the lease")
		switch err := e.lease.awaitFree(ctx, e.o.Times.Lease, poll, e.follow); {
		case errors.Is(err, errRestored):
			return err
		case err != nil:
			return nil //nolint:nilerr // ctx has ended
		}
		return e.lead(ctx)
	}
	for ctx.Err() == nil {
		if err := e.once(ctx); err != nil {
			return err
		}
		_ = sleep(ctx, e.o.Times.Retry) // ended by ctx, as the loop is
	}
	return nil
}

// once waits for the Lease, and leads until it is lost or ctx ends. Where it cannot take
// over it gives the Lease up, for others to try. A server that led leads again only if nobody else did.
func (e *Elector) once(ctx context.Context) error {
	var err error
	if every := min(e.o.Times.Retry, poll); e.led.Load() == nil {
		err = e.lease.awaitFree(ctx, e.o.Times.Lease, every, e.follow)
	} else {
		err = e.lease.awaitOwn(ctx, every)
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	running, resign := context.WithCancel(ctx)
	defer resign()
	e.lease.acquired, e.lease.others, e.lease.running = false, resign, running
	led := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e.lease, Name: LeaseName, ReleaseOnCancel: true,
		LeaseDuration: e.o.Times.Lease, RenewDeadline: e.o.Times.Renew, RetryPeriod: e.o.Times.Retry,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				err := e.lead(leading)
				led <- err
				if err != nil {
					resign()
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("taking part in the election of the server that decides: %w", err)
	}
	elector.Run(running)
	if !e.lease.acquired {
		return nil // ctx has ended, or another server was faster
	}
	switch err := <-led; {
	case err == nil && ctx.Err() == nil:
		e.o.Log.Warn("the lease could not be renewed: this server decides nothing, unless it turns out that no other one " +
			"did meanwhile")
	case err != nil && e.led.Load() != nil && ctx.Err() == nil:
		return err // what was begun cannot be begun again
	case err != nil:
		e.o.Log.WithError(err).Error("could not take over; another server can try now")
	}
	return nil
}

// Moved says that the LedgerTerm may have another term than this server's, or be gone. Without that call a leader would
// find out only when it looks the next time.
func (e *Elector) Moved() {
	select {
	case e.moved <- struct{}{}:
	default:
	}
}

// follow is called while another server leads.
func (e *Elector) follow() {
	e.unraised.Store(nil) // the right may be given by now
	if leader := e.lease.holder(); leader != e.followed {
		e.followed = leader
		e.o.Log.WithField("leader", leader).Info("another server decides, and this one stands by")
	}
	e.o.Follow()
}

// lead makes this server the one that decides until ctx ends. An error means that it does not decide.
func (e *Elector) lead(ctx context.Context) error {
	if led := e.led.Load(); led != nil {
		return e.resume(ctx, led)
	}
	term, err := e.raise(ctx)
	if err != nil {
		return err
	}
	fence, err := e.prove(ctx, term)
	if err != nil {
		return err
	}
	log := e.o.Log.WithField("term", term)
	if err := e.awaitWrites(ctx, &fence, log); err != nil {
		return err
	}
	led := &leadership{}
	led.fence.Store(&fence)
	e.term.set(term)
	e.led.Store(led)
	defer led.state.Store(ended)
	if err := e.o.TakeOver(ctx, e.lease.ledAgo()); err != nil {
		return fmt.Errorf("making the account: %w", err)
	}
	log.Info("this server decides")
	return e.decide(ctx, led)
}

// resume goes on with a leadership, in its term. The account is what it was: nobody else has decided.
func (e *Elector) resume(ctx context.Context, led *leadership) error {
	led.state.Store(takingOver)
	defer led.state.Store(ended)
	for {
		err := e.keep(ctx)
		if errors.Is(err, errLost) {
			return err
		}
		if e.lease.restored.Load() {
			return errRestored
		}
		if err = e.o.Resume(ctx); err == nil {
			break
		}
		e.o.Log.WithError(err).Warn("could not bring the account up to date; trying again")
		if sleep(ctx, poll) != nil {
			return nil // lost again, or stopping
		}
	}
	e.o.Log.WithField("term", e.term.Get()).Info("this server decides again: no other one did meanwhile")
	return e.decide(ctx, led)
}

// decide makes this server decide. It returns an error when its leadership has to end, and nil when ctx does.
func (e *Elector) decide(ctx context.Context, led *leadership) error {
	led.state.Store(deciding)
	e.decided.Do(func() { close(e.decides) })
	hears, keep := time.NewTicker(e.o.Times.Retry), time.NewTicker(e.o.Times.Lease)
	defer hears.Stop()
	defer keep.Stop()
	fresh := e.o.Clock.Uptime()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.moved:
			if err := e.keep(ctx); err != nil {
				return err
			}
		case <-keep.C:
			if err := e.keep(ctx); err != nil {
				return err
			}
			e.look(ctx, led)
		case <-hears.C:
			if e.lease.restored.Load() {
				return errRestored
			}
			now, what := e.o.Clock.Uptime(), e.o.Stale()
			if what == "" {
				fresh = now
			}
			// By then all that this server decided before has come to its end: a bind takes less than the Lease lasts.
			if now-fresh >= e.o.Times.Lease && !e.o.Alone && e.o.StandBy() {
				return fmt.Errorf("%w: %s", errStale, what)
			}
		}
	}
}

// awaitWrites returns when no write of a leader before this one can be carried out any more. The fence refuses writes
// that arrive from now on. Writes that are past the fence already are abandoned by the API server after a while. A
// leader that has given the Lease up itself has left no such writes.
func (e *Elector) awaitWrites(ctx context.Context, fence *Fence, log logrus.FieldLogger) error {
	var wait time.Duration
	switch {
	case !fence.Up:
		wait = max(e.o.Bind, e.o.Object) + writeMargin
		log.WithField("wait", wait).
			Warn("the API server does not refuse what a server before this one sent, so this one waits before it decides: " +
				fence.Why)
	case e.lease.over.Load():
		wait = e.o.Times.write()
	}
	if wait > 0 {
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
	e.lease.over.Store(false)
	return nil
}
