package reserve

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// mayReserve says why the caller must not reserve for the scheduler of a gang in the namespaces of its pods, nil if it
// may. Most callers may in all namespaces, so that is asked first, and once.
func (a *Arbiter) mayReserve(ctx context.Context, g *Request) error {
	if err := a.o.Arbiter.MayUse(ctx, g.Scheduler); err != nil {
		return err
	}
	caller, asked := auth.Of(ctx), map[string]bool{}
	err := a.o.Rights.MayReserve(ctx, caller, "")
	if !errors.As(err, new(*auth.DeniedError)) {
		return err
	}
	for i := range g.Pods {
		namespace := g.Pods[i].Ref.Namespace
		if asked[namespace] {
			continue
		}
		asked[namespace] = true
		if err := a.o.Rights.MayReserve(ctx, caller, namespace); err != nil {
			return err
		}
	}
	return nil
}

// mayReserveFor says why the caller must not reserve for the pods of a gang that exist: it has to act for the scheduler
// of each.
func (a *Arbiter) mayReserveFor(ctx context.Context, g *Request, pods []found) error {
	asked := map[string]bool{g.Scheduler: true}
	for i := range pods {
		pod := pods[i].info
		if pod == nil || asked[pod.Scheduler] {
			continue
		}
		asked[pod.Scheduler] = true
		if err := a.o.Arbiter.MayUse(ctx, pod.Scheduler); err != nil {
			return fmt.Errorf("nothing was reserved, pod %s is one of scheduler %q: %w", pod.Ref, pod.Scheduler, err)
		}
	}
	return nil
}

// notYours refuses a caller what another one has reserved.
func notYours(what string) error {
	return &auth.DeniedError{Message: fmt.Sprintf("%s was reserved by another caller; only that one may give it back",
		what)}
}

// mayReleasePods says why a gang's caller must not give back what is kept for its pods, nil if it may.
func (a *Arbiter) mayReleasePods(ctx context.Context, g *Request, placements []ledger.Placement,
	held map[types.NamespacedName][]heldPod,
) error {
	if ledger.MayAll(g.Caller) {
		return nil
	}
	for i := range placements {
		if caller, ok := a.o.Ledger.CallerOf(placements[i].Pod); ok && caller != g.Caller {
			return notYours(fmt.Sprintf("the capacity of pod %s", placements[i].Pod))
		}
	}
	for key := range held {
		if err := a.mayReleaseObject(ctx, g, key); err != nil {
			return err
		}
	}
	return nil
}

// mayReleaseObject is mayReleasePods for a reservation. One that cannot be read is not refused here.
func (a *Arbiter) mayReleaseObject(ctx context.Context, g *Request, key types.NamespacedName) error {
	if ledger.MayAll(g.Caller) || !a.Durable() {
		return nil
	}
	object, err := a.o.Store.Get(ctx, key.Namespace, key.Name)
	if err != nil || ownedBy(object, g.Caller) {
		return nil //nolint:nilerr // the release reads it again, and returns the error
	}
	return notYours("reservation " + key.String())
}

// ownedBy reports whether a reservation is a caller's to give back.
func ownedBy(object *v1alpha1.Reservation, caller string) bool {
	return ledger.MayAll(caller) || object.Annotations[v1alpha1.CallerAnnotation] == caller
}
