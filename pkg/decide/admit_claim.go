package decide

import (
	"context"
	"errors"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/dra"
	"github.com/globalreserve/globalreserve/pkg/dra/account"
)

// ResourceClaimQuery is a write of a ResourceClaim's devices that the API server asks about before it carries it out.
type ResourceClaimQuery struct {
	// Claim is as it is to be. Version is the one that the write is made on, and Size is that version's bytes in JSON.
	Claim   *resourcev1.ResourceClaim
	Version string
	Size    int
	DryRun  bool
}

// DevicesRefusedError says why a ResourceClaim is not given its devices.
type DevicesRefusedError struct {
	Claim   string
	Refusal *account.Refusal
}

// Error says who has them, and what happens next.
func (e *DevicesRefusedError) Error() string {
	return "ResourceClaim " + e.Claim + " is not given its devices: " + e.Refusal.Message() +
		". Its scheduler tries the pod again, and takes others as soon as it has seen that"
}

// AdmitResourceClaim decides whether a ResourceClaim may be given the devices in its status. What it grants counts as
// taken until it is known whether it was written; see pkg/dra. A refusal is a *DevicesRefusedError.
func (a *Arbiter) AdmitResourceClaim(ctx context.Context, q *ResourceClaimQuery) error {
	if err := a.o.Ledger.Ready(); err != nil {
		return err
	}
	refusal, err := a.o.ResourceClaims.Grant(ctx, q.Claim, account.Version(q.Version), q.Size, q.DryRun)
	if undecided := new(dra.UndecidedError); errors.As(err, &undecided) {
		return &gates.Error{Outcome: gates.NotReady, Why: undecided.Why}
	}
	if err != nil {
		return err
	}
	// Another server may decide by now, and have read all claims before this one was granted anything.
	if err := a.o.Ledger.Ready(); err != nil {
		return err
	}
	if refusal != nil {
		return &DevicesRefusedError{Claim: q.Claim.Namespace + "/" + q.Claim.Name, Refusal: refusal.In(q.Claim.Namespace)}
	}
	return nil
}
