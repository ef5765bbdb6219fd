//go:build e2e || soak

package dra

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// device names a device of a slice.
type device struct{ driver, pool, name string }

// verdict looks, after every single event of a ResourceClaim, whether a device has more than one owner. Events come in
// the order in which they were committed.
type verdict struct {
	mu     sync.Mutex // guards what follows
	claims map[types.UID]*resourcev1.ResourceClaim
	owners map[device]map[types.UID]bool
	double map[device]bool // had more than one owner at some event
	lost   error           // the watch has missed events
}

// newVerdict begins to look, and ends with the test.
func newVerdict(t *testing.T, client kubernetes.Interface) *verdict {
	t.Helper()
	v := &verdict{
		claims: map[types.UID]*resourcev1.ResourceClaim{}, owners: map[device]map[types.UID]bool{}, double: map[device]bool{},
	}
	all := client.ResourceV1().ResourceClaims(metav1.NamespaceAll)
	list, err := all.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range list.Items {
		v.look(&list.Items[i], false)
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(t.Context(), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return all.Watch(ctx, o)
		},
	})
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for event := range watcher.ResultChan() {
			claim, ok := event.Object.(*resourcev1.ResourceClaim)
			if !ok {
				v.lose(fmt.Errorf("the watch of ResourceClaims ended: %v", event.Object))
				return
			}
			v.look(claim, event.Type == watch.Deleted)
		}
	})
	t.Cleanup(func() { watcher.Stop(); running.Wait() })
	return v
}

func (v *verdict) lose(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lost = err
}

// look takes in one event.
func (v *verdict) look(claim *resourcev1.ResourceClaim, gone bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if former := v.claims[claim.UID]; former != nil {
		for _, d := range devicesOf(former) {
			delete(v.owners[d], claim.UID)
		}
	}
	delete(v.claims, claim.UID)
	if gone {
		return
	}
	v.claims[claim.UID] = claim
	for _, d := range devicesOf(claim) {
		if v.owners[d] == nil {
			v.owners[d] = map[types.UID]bool{}
		}
		v.owners[d][claim.UID] = true
		if len(v.owners[d]) > 1 {
			v.double[d] = true
		}
	}
}

// devicesOf are the devices that a claim has for itself.
func devicesOf(claim *resourcev1.ResourceClaim) (all []device) {
	if claim.Status.Allocation == nil {
		return nil
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		if (r.AdminAccess == nil || !*r.AdminAccess) && r.ShareID == nil {
			all = append(all, device{r.Driver, r.Pool, r.Device})
		}
	}
	return all
}

// catchUp returns when all that the API server has committed is known.
func (v *verdict) catchUp(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	list, err := client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.NoError(t, controlplane.Await(t.Context(), "the watch of ResourceClaims catches up",
		func(context.Context) error { return v.lacks(list.Items) }))
}

// lacks says what is not known of claims, or that there are more.
func (v *verdict) lacks(claims []resourcev1.ResourceClaim) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost != nil || len(v.claims) > len(claims) {
		return fmt.Errorf("%d of %d claims are known: %w", len(v.claims), len(claims), v.lost)
	}
	for i := range claims {
		if seen := v.claims[claims[i].UID]; seen == nil || version(seen) < version(&claims[i]) {
			return fmt.Errorf("claim %s is not known as it is", claims[i].Name)
		}
	}
	return nil
}

func version(claim *resourcev1.ResourceClaim) uint64 {
	n, _ := strconv.ParseUint(claim.ResourceVersion, 10, 64)
	return n
}

// doubles are the devices that had more than one owner at some event.
func (v *verdict) doubles() []device {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Keys(v.double))
}

// taken is how many devices have an owner now.
func (v *verdict) taken() (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, owners := range v.owners {
		if len(owners) > 0 {
			n++
		}
	}
	return n
}

// forget forgets what was found so far.
func (v *verdict) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.double)
}
