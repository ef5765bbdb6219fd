package election

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	typed "github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/typed/globalreserve/v1alpha1"
)

// LeaseName is the name of the Lease that the server holds which decides.
const LeaseName = "globalreserve"

// Times are those of the Lease; see DefaultTimes.
type Times struct {
	// Lease is after how long a Lease that is not renewed may be taken by another
	// server, Renew how long its holder tries to renew it before it gives up, and Retry
	// how often it is tried.
	Lease, Renew, Retry time.Duration
}

// DefaultTimes are those of Kubernetes' own components. A cluster that would rather be
// without a leader for a shorter time, and asks the API server more often, takes 4s, 3s
// and 1s.
func DefaultTimes() Times {
	return Times{Lease: 15 * time.Second, Renew: 10 * time.Second, Retry: 2 * time.Second}
}

// Validate returns what is wrong with the times, given how long one write of a leader may
// take.
func (t Times) Validate(write time.Duration) error {
	switch {
	case t.Lease < time.Second || t.Lease%time.Second != 0:
		return fmt.Errorf("the duration of the Lease, %s, must be whole seconds and at least 1s", t.Lease)
	case t.Renew >= t.Lease || t.Renew <= 0:
		return fmt.Errorf("the time to renew the Lease, %s, must lie between 0 and the Lease's duration of %s", t.Renew, t.Lease)
	case t.Retry <= 0 || float64(t.Retry)*leaderelection.JitterFactor >= float64(t.Renew):
		return fmt.Errorf("the pause between tries to renew the Lease, %s, must be above 0 and below %s", t.Retry,
			time.Duration(float64(t.Renew)/leaderelection.JitterFactor))
	case write > t.Renew:
		return fmt.Errorf("one request of a bind may take %s, which is longer than the Lease is tried to be renewed, %s: shorten the bind timeout, or lengthen the Lease's times", write, t.Renew)
	}
	return nil
}

// Options are what an Elector works with. All are required.
type Options struct {
	Client kubernetes.Interface
	Terms  typed.LedgerTermInterface
	// Namespace is that of the Lease.
	Namespace string
	// Identity tells this process from all others. URL is where they reach it.
	Identity, URL string
	Times         Times
	// Write is how long one write of a leader may take until it is carried out or never
	// will be, where the API server does not refuse it for its term.
	Write time.Duration
	// TakeOver brings the account up to date: it is called with each new term, when
	// nobody else can write any more, and decisions wait for it. Its ctx ends with the
	// leadership. Lost is called when a leadership has ended.
	TakeOver func(ctx context.Context, term Term) error
	Lost     func()
	Log      logrus.FieldLogger
}

// leadership is one term in which this server decides.
type leadership struct {
	term  Term
	fence Fence
}

// Elector takes part in the election of the server that decides. Make one with New.
type Elector struct {
	o     Options
	lease *lease
	// leads is nil unless this server holds the Lease and has taken over.
	leads atomic.Pointer[leadership]
}

// New returns an Elector that does not run. It takes part only in Run.
func New(o Options) (*Elector, error) {
	if o.Client == nil || o.Terms == nil || o.Namespace == "" || o.Identity == "" || o.TakeOver == nil || o.Lost == nil || o.Log == nil {
		return nil, errors.New("election: all Options are required")
	}
	if err := o.Times.Validate(o.Write); err != nil {
		return nil, err
	}
	e := &Elector{o: o, lease: &lease{
		now: uptime, sure: o.Times.Lease - o.Times.Retry,
		Interface: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: LeaseName}, Client: o.Client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: o.Identity},
		},
	}}
	return e, nil
}

// Leads returns "" while this server decides, else why it does not.
func (e *Elector) Leads() string {
	switch leader := e.lease.holder(); {
	case e.lease.held() && e.leads.Load() != nil:
		return ""
	case leader == e.o.Identity && e.lease.held():
		return "this server has just become the one that decides, and is taking over; ask again in a moment"
	case leader == e.o.Identity:
		return "another server may be deciding by now, because this one could not renew its lease; ask again in a moment"
	case leader == "":
		return "no server decides now; ask again in a moment"
	default:
		return fmt.Sprintf("server %s decides, and not this one", leader)
	}
}

// Term returns the term in which this server decides; 0 where it does not, or the
// cluster knows no terms.
func (e *Elector) Term() Term {
	if l := e.leads.Load(); l != nil {
		return l.term
	}
	return 0
}

// Fence says whether the API server refuses what earlier leaders send; ok is false
// where this server does not decide.
func (e *Elector) Fence() (f Fence, ok bool) {
	if l := e.leads.Load(); l != nil {
		return l.fence, true
	}
	return Fence{}, false
}

// Run takes part in the election until ctx ends. If this server leads then, it gives
// the Lease up, so that another one need not wait for its end: nothing that it decided
// may be under way any more.
func (e *Elector) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := e.once(ctx); err != nil {
			return err
		}
	}
	return nil
}

// once waits for the Lease, and leads until it is lost or ctx ends.
func (e *Elector) once(ctx context.Context) error {
	ctx, resign := context.WithCancel(ctx)
	defer resign()
	led := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e.lease, Name: LeaseName, ReleaseOnCancel: true,
		LeaseDuration: e.o.Times.Lease, RenewDeadline: e.o.Times.Renew, RetryPeriod: e.o.Times.Retry,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				defer close(led)
				if err := e.lead(ctx); err != nil && ctx.Err() == nil {
					e.o.Log.WithError(err).Error("could not take over: the lease is given up, so that another server can try")
					resign()
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("taking part in the election of the server that decides: %w", err)
	}
	e.lease.acquired = false
	elector.Run(ctx)
	if e.lease.acquired {
		<-led
	}
	return nil
}

// lead makes this server the one that decides until ctx ends.
func (e *Elector) lead(ctx context.Context) error {
	term, err := e.raise(ctx)
	if err != nil {
		return err
	}
	fence, err := e.prove(ctx, term)
	if err != nil {
		return err
	}
	log := e.o.Log.WithField("term", term)
	if !fence.Up {
		log.WithField("wait", e.o.Write).Warn("the API server does not refuse what a server before this one sent, so this one waits before it decides: " + fence.Why)
		if err := sleep(ctx, e.o.Write); err != nil {
			return err
		}
	}
	if err := e.o.TakeOver(ctx, term); err != nil {
		return fmt.Errorf("bringing the account up to date: %w", err)
	}
	e.leads.Store(&leadership{term: term, fence: fence})
	log.Info("this server decides")
	<-ctx.Done()
	e.leads.Store(nil)
	e.o.Lost()
	log.Info("this server does not decide any more")
	return nil
}
