package local

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/app"
	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
)

// leaseName is the Lease that the process with the ledger holds.
const leaseName = "globalreserve"

// The times of the Lease, those of kube-scheduler's own. Binds end long before
// another process may decide: a bind's requests time out in less than the difference
// of the first two.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
	// surelyHeld is how long after a renewal was sent no other process can have the lease,
	// with some time for a decision to be carried out.
	surelyHeld = leaseDuration - retryPeriod
)

// lock makes sure that one process of the cluster serves.
type lock struct {
	lease *fence
	log   logrus.FieldLogger
}

func newLock(client kubernetes.Interface, s *schedulerplugin.ServerArgs, log logrus.FieldLogger) (*lock, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding the name of this host, under which the lease %s is held: %w", leaseName, err)
	}
	// Two on one host serve on different ports, and must not take each other for themselves.
	identity := fmt.Sprintf("%s_%d", host, ptr.Deref(s.Port, app.DefaultOptions().Port))
	return &lock{lease: &fence{Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: cmp.Or(s.LeaseNamespace, metav1.NamespaceSystem), Name: leaseName},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}}, log: log}, nil
}

// held reports whether no other process can have the lease yet. A process that was
// suspended learns of that here first.
func (l *lock) held() bool {
	renewed := l.lease.renewed.Load()
	if renewed == nil {
		return false
	}
	now := time.Now()
	// Of the two clocks, one may have stood still.
	return now.Sub(*renewed) < surelyHeld && now.Round(0).Sub(renewed.Round(0)) < surelyHeld
}

// fence is the lease, and knows when it was renewed last.
type fence struct {
	resourcelock.Interface
	renewed atomic.Pointer[time.Time] // nil while it is not held
}

// Create implements resourcelock.Interface.
func (f *fence) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return f.write(ctx, record, f.Interface.Create)
}

// Update implements resourcelock.Interface.
func (f *fence) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return f.write(ctx, record, f.Interface.Update)
}

// write renews or releases the lease. It counts from before the request: when that was
// carried out is not known.
func (f *fence) write(
	ctx context.Context, record resourcelock.LeaderElectionRecord, do func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	now := time.Now()
	if record.HolderIdentity != f.Identity() {
		f.renewed.Store(nil)
	}
	err := do(ctx, record)
	if err == nil && record.HolderIdentity == f.Identity() {
		f.renewed.Store(&now)
	}
	return err
}

// run calls serve once the lease is held, with a context that ends with ctx or with
// the lease, and waits for it. lost is called as soon as the lease is lost: what serve has
// under way must not go on then.
func (l *lock) run(ctx context.Context, serve func(context.Context), lost func()) {
	var mu sync.Mutex // guards what follows
	var serving, over bool
	served := make(chan struct{})
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: l.lease, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Name: leaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				mu.Lock()
				serving = !over
				start := serving
				mu.Unlock()
				if start {
					serve(ctx)
					close(served)
				}
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(holder string) {
				if holder != "" && holder != l.lease.Identity() {
					l.log.WithFields(logrus.Fields{"lease": l.lease.Describe(), "holder": holder}).
						Warn("Another process has the ledger: this scheduler schedules nothing until it has the lease; run one scheduler in mode local")
				}
			},
		},
	})
	mu.Lock()
	over = true
	started := serving
	mu.Unlock()
	if !started {
		return
	}
	isLost := ctx.Err() == nil
	if isLost {
		lost()
	}
	<-served
	if !isLost {
		l.release(context.WithoutCancel(ctx))
	}
}

// release lets another process have the lease at once. Where that fails, it has to
// wait until the lease ends.
func (l *lock) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, retryPeriod)
	defer cancel()
	record, _, err := l.lease.Get(ctx)
	if err != nil || record.HolderIdentity != l.lease.Identity() {
		return
	}
	now := metav1.Now()
	record.HolderIdentity, record.LeaseDurationSeconds = "", 1
	record.RenewTime, record.AcquireTime = now, now
	_ = l.lease.Update(ctx, *record)
}
