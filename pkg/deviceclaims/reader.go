package deviceclaims

import (
	"context"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/follow"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Reader knows what the claims ask for, and writes nothing: it is for a process that has its ledger from a
// server elsewhere. Make one with NewReader. Until the claims have been read, no pod can use one.
type Reader struct {
	kind     *follow.Kind
	watch    *follow.Watch
	claims   claimSet
	onChange func(namespace, name string)
}

// NewReader returns a Reader that is not running. kind is that of ExtendedResourceClaims. onChange is told of
// claims that came, went or were made anew; it is called without a lock, and must not block.
func NewReader(client versioned.Interface, kind *follow.Kind, onChange func(namespace, name string), log logrus.FieldLogger) *Reader {
	r := &Reader{kind: kind, onChange: onChange, claims: newClaimSet()}
	r.watch = follow.NewWatch(kind, log, follow.NewSource(client, "extendedresourceclaims",
		client.GlobalreserveV1alpha1().ExtendedResourceClaims(metav1.NamespaceAll), &v1alpha1.ExtendedResourceClaim{}, r.set, r.forget))
	return r
}

// Devices is Controller.Devices.
func (r *Reader) Devices(pod *cluster.Pod) *ledger.DeviceRequest {
	return r.claims.resolve(pod, pod.Devices, r.kind.Installed())
}

// Run follows the claims, while the API server knows the kind, until ctx ends.
func (r *Reader) Run(ctx context.Context) error {
	nothing := func(context.Context) {}
	return r.watch.Run(ctx, nothing, nothing)
}

func (r *Reader) set(claim *v1alpha1.ExtendedResourceClaim, _ bool) {
	if r.claims.set(claim) {
		r.onChange(claim.Namespace, claim.Name)
	}
}

func (r *Reader) forget(claim *v1alpha1.ExtendedResourceClaim) {
	if r.claims.remove(claim) {
		r.onChange(claim.Namespace, claim.Name)
	}
}
