package schedulerplugin

import (
	"slices"
	"sync/atomic"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// stateKey is where the plugin keeps its data of a scheduling cycle.
const stateKey fwk.StateKey = "GlobalReserve"

// cycle is what the plugin knows of a pod for the length of one scheduling cycle.
type cycle struct {
	pod *cluster.Pod
	// placement asks for the pod's room; its Node is not set.
	placement ledger.Placement
	// surveyed: refusals tell of every node whether it has room, as of the revision.
	surveyed bool
	refusals map[string]ledger.Reason
	// bypass: the account is not available and the policy is to go on without.
	bypass bool
	// revision is the ledger's from before the first decision of the cycle.
	revision uint64
	// refused says that the pod waits to be woken already. Clones share it.
	refused *atomic.Bool
	// preferred are the nodes that keep room for the pod, the best one first.
	preferred []string
	// reserved: Reserve has made a claim, which Unreserve has to give back.
	reserved bool
	// bound: the plugin has bound the pod, and no other one.
	bound bool
	// whatif is what the cycle imagines away and added.
	whatif whatif
	// group is the pod group that is tried out; nil where the cycle is for real.
	group *group
}

// Clone implements fwk.StateData. Of the copies a cycle makes, each imagines
// something else.
func (c *cycle) Clone() fwk.StateData {
	clone := *c
	clone.whatif.removed = slices.Clone(c.whatif.removed)
	clone.whatif.added = slices.Clone(c.whatif.added)
	return &clone
}

// cycleOf returns the plugin's data of a cycle, nil where PreFilter has not run.
func cycleOf(state fwk.CycleState) *cycle {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil
	}
	c, _ := data.(*cycle)
	return c
}

// on asks for the pod's room on a node.
func (c *cycle) on(node string) *ledger.Placement {
	placement := c.placement
	placement.Node = node
	return &placement
}
