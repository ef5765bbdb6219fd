package decide

import (
	"context"

	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// MayUse says why the caller must not act for a scheduler, nil if it may. Where the scheduler has limits, a gate asks
// for more.
func (a *Arbiter) MayUse(ctx context.Context, scheduler string) error {
	caller, rules := auth.Of(ctx), a.o.Policy.Current().Scheduler(scheduler)
	switch {
	case auth.Trusted(caller), rules.Lists(caller.GetName()):
		return nil
	default:
		return a.o.Rights.MayUse(ctx, caller, scheduler)
	}
}

// mayBind says why the caller must not bind a pod: it has to act for the pod's scheduler. mayBind returns the pod with
// the UID by which it was looked at. Another pod of the same name may be another scheduler's.
func (a *Arbiter) mayBind(ctx context.Context, pod ledger.PodRef) (ledger.PodRef, error) {
	if auth.Trusted(auth.Of(ctx)) {
		return pod, nil
	}
	info, err := a.pods.find(ctx, pod, 0)
	if err != nil {
		return pod, err
	}
	return info.Ref, a.MayUse(ctx, info.Scheduler)
}
