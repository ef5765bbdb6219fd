package election

import (
	"context"
	"errors"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// errRestored is why a server has to end and start anew: what it has read may not be so any more. Its watches wait for
// versions that are long gone, and bring nothing.
var errRestored = errors.New("the resource version of the lease of the ledger went back: etcd was restored from a " +
	"backup, and what this server knows is not what there is; it starts anew. API servers that have run since before " +
	"that have to be restarted, too")

// versions is the Leases of a namespace. It records the version in each answer. The Lease, which its holder writes
// every few seconds, has a version that only grows, even if deleted, unless etcd was restored. One goroutine uses it.
type versions struct {
	v1.LeaseInterface

	l    *lease
	last string
}

// Leases implements v1.LeasesGetter.
func (v *versions) Leases(string) v1.LeaseInterface { return v }

// Get reads the Lease.
func (v *versions) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	return v.note(v.LeaseInterface.Get(ctx, name, o))
}

// Create makes the Lease.
func (v *versions) Create(
	ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions,
) (*coordinationv1.Lease, error) {
	return v.note(v.LeaseInterface.Create(ctx, lease, o))
}

// Update renews the Lease, or gives it up.
func (v *versions) Update(
	ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions,
) (*coordinationv1.Lease, error) {
	return v.note(v.LeaseInterface.Update(ctx, lease, o))
}

func (v *versions) note(lease *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	if err != nil {
		return lease, err //nolint:wrapcheck // client-go's leaderelection looks at it
	}
	if order, err := resourceversion.CompareResourceVersion(lease.ResourceVersion, v.last); err == nil && order < 0 {
		v.l.restored.Store(true)
	}
	v.last = lease.ResourceVersion
	return lease, nil
}
