package schedulerplugin

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// stateKey is where the plugin keeps its data of a scheduling cycle.
const stateKey fwk.StateKey = "GlobalReserve"

// cycle is what the plugin knows of a pod for the length of one scheduling cycle.
type cycle struct {
	pod *cluster.Pod
	// placement asks for the pod's capacity; its Node is not set.
	placement ledger.Placement
	// surveyed: refusals say of every node whether it has capacity, as of the revision.
	surveyed bool
	refusals map[string]ledger.Reason
	// revision is the ledger's from before the first decision of the cycle.
	revision uint64
	// refused says that the pod waits to be woken already. Clones share it.
	refused *atomic.Bool
	// preferred are the nodes that keep capacity for the pod, the best one first.
	preferred []string
	// reserved: Reserve has made an allocation, which Unreserve has to give back.
	reserved bool
	// bound: the plugin has bound the pod, and no other one.
	bound bool
	// whatif is what the cycle imagines away and added.
	whatif whatif
	// group is the pod group that is, or was, tried out; nil where the pod is scheduled alone.
	group *group
	// gang is the gang that the pod says it is a member of; zero where there is none.
	gang kinds.Key
}

// Clone implements fwk.StateData. Of the copies a cycle makes, each imagines something else.
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

// on asks for the pod's capacity on a node.
func (c *cycle) on(node string) *ledger.Placement {
	placement := c.placement
	placement.Node = node
	return &placement
}

// whatif is how the cluster that a cycle imagines differs from the ledger's account.
type whatif struct {
	removed []types.UID        // pods taken to be gone
	added   []ledger.Placement // pods taken to be on their nodes
}

func (w *whatif) empty() bool { return len(w.removed) == 0 && len(w.added) == 0 }

// AddPod implements fwk.PreFilterExtensions: a nominated pod is taken to be on its node, or a victim is spared.
func (p *Plugin) AddPod(_ context.Context, state fwk.CycleState, _ *v1.Pod, toAdd fwk.PodInfo,
	node fwk.NodeInfo,
) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return nil
	}
	pod := toAdd.GetPod()
	if at := slices.Index(c.whatif.removed, pod.UID); at >= 0 {
		c.whatif.removed = slices.Delete(c.whatif.removed, at, at+1)
		return nil
	}
	info, err := p.server.question.Reader.NewPod(pod)
	if err != nil {
		return nil // it asks for more than can be counted, so it can be bound nowhere
	}
	// A slot that is kept for it there is what it takes.
	c.whatif.added = append(c.whatif.added, p.server.question.For(info, node.Node().Name))
	return nil
}

// RemovePod implements fwk.PreFilterExtensions: a victim is taken to be gone.
func (p *Plugin) RemovePod(_ context.Context, state fwk.CycleState, _ *v1.Pod, toRemove fwk.PodInfo,
	_ fwk.NodeInfo,
) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return nil
	}
	uid := toRemove.GetPod().UID
	is := func(a ledger.Placement) bool { return a.Pod.UID == uid }
	if at := slices.IndexFunc(c.whatif.added, is); at >= 0 {
		c.whatif.added = slices.Delete(c.whatif.added, at, at+1)
		return nil
	}
	c.whatif.removed = append(c.whatif.removed, uid)
	return nil
}

// fitsImagined asks whether the pod would fit a node of the imagined cluster. Pods
// that were imagined there and do not fit themselves are left out.
func (p *Plugin) fitsImagined(c *cycle, node string) (reason ledger.Reason) {
	others := c.group.placedOn(node)
	for i := range c.whatif.added {
		if c.whatif.added[i].Node == node {
			others = append(others, c.whatif.added[i])
		}
	}
	plan := ledger.NewPlan(others, ledger.Partial, time.Time{})
	p.server.ledger.Try(func(t *ledger.Trial) {
		t.Remove(c.whatif.removed...)
		t.Reserve(plan)
		reason = t.AppendFit(nil, c.on(node), []string{node})[0].Reason
	})
	return reason
}
