package gates

import (
	"fmt"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/policy"
)

// Reason is the reason that lists of refusals show where a gate refused.
const Reason = "Refused"

// Gates are the rules under the policy in force.
type Gates struct{ policy *policy.Store }

// New returns the gates under the policies of a store.
func New(p *policy.Store) *Gates { return &Gates{p} }

// Refuse returns why something must not be given capacity under the policy, nil if it may. asked has the pod's
// namespace and name, or the namespace alone for a slot that several pods may use. It has the scheduler that the pod
// names, and the caller that it would be charged to. The caller has no name where it is the server itself, or not
// known: see ledger.MayAll. The node is empty where many nodes are asked about. The error is an *Error.
//
// Only the callers that the policy lists act for a scheduler that has limits, because the limits are those of these
// callers.
func (g *Gates) Refuse(asked *ledger.Placement) error {
	scheduler := g.policy.Current().Scheduler(asked.Scheduler)
	if !scheduler.Limited() || ledger.MayAll(asked.Caller) || scheduler.Lists(asked.Caller) {
		return nil
	}
	return &Error{
		Outcome: Refused, Pod: asked.Pod, Node: asked.Node,
		Why: fmt.Sprintf("caller %q may not act for scheduler %q, which has limits: the policy "+
			"file has to list it among the scheduler's callers", asked.Caller, asked.Scheduler),
	}
}
