package local

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

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
)

// lock makes sure that one process of the cluster serves.
type lock struct{ lease resourcelock.Interface }

func newLock(client kubernetes.Interface, s *schedulerplugin.ServerArgs) (*lock, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding the name of this host, under which the lease %s is held: %w", leaseName, err)
	}
	return &lock{&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: cmp.Or(s.LeaseNamespace, metav1.NamespaceSystem), Name: leaseName},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host},
	}}, nil
}

// run calls serve once the lease is held, with a context that ends with ctx or with
// the lease, and waits for it. It reports whether the lease was lost.
func (l *lock) run(ctx context.Context, serve func(context.Context)) (lost bool) {
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
				mu.Unlock()
				if serving {
					serve(ctx)
					close(served)
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	mu.Lock()
	over = true
	mu.Unlock()
	if !serving {
		return false
	}
	lost = ctx.Err() == nil
	<-served
	if !lost {
		l.release(context.WithoutCancel(ctx))
	}
	return lost
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
