package schedulerplugin

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// groupKey is where the pods placed so far of a pod group that is tried out are kept.
const groupKey fwk.StateKey = "GlobalReserve/group"

// group is the pods of a pod group that have been given a node in a cycle that tries the group out, and after it what
// was reserved for them. A nil group is empty.
type group struct {
	mu   sync.RWMutex // guards what follows
	pods []placed
	// on is how many of pods count on a node.
	on map[string]int
	// decided: the arbiter was asked for all of them, and err is its answer, at a revision of the ledger.
	decided  bool
	err      error
	revision uint64
	// made are the pods that the server has made an allocation for, until their own Reserve or Unreserve takes it over.
	made map[types.UID]bool
}

// placed is a member that was given a node. undone: Unreserve was called for it, because it cannot be there, or at the
// end of the trial.
type placed struct {
	ledger.Placement
	undone bool
}

// Clone implements fwk.StateData.
func (g *group) Clone() fwk.StateData { return g }

// groupOf returns the group a pod is tried out in, nil where it is none. A group that is tried out in several
// parts of the cluster is another one in each.
func groupOf(state fwk.CycleState) *group {
	if !state.IsPodGroupSchedulingCycle() {
		return nil
	}
	shared := state.GetPlacementCycleState()
	if data, err := shared.Read(groupKey); err == nil {
		g, _ := data.(*group)
		return g
	}
	g := &group{on: map[string]int{}, made: map[types.UID]bool{}}
	shared.Write(groupKey, g)
	return g
}

// isOn reports whether a pod of the group has been given a node.
func (g *group) isOn(node string) bool {
	if g == nil {
		return false
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.on[node] > 0
}

// placedOn returns the pods that have been given a node.
func (g *group) placedOn(node string) (pods []ledger.Placement) {
	if !g.isOn(node) {
		return nil
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	for i := range g.pods {
		if p := &g.pods[i]; !p.undone && p.Node == node {
			pods = append(pods, p.Placement)
		}
	}
	return pods
}

// add gives a pod a node. It drops pods that were taken back before: that was not the end of the trial.
func (g *group) add(p *ledger.Placement) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pods = slices.DeleteFunc(g.pods, func(p placed) bool { return p.undone })
	g.pods = append(g.pods, placed{Placement: *p})
	g.on[p.Node]++
}

// remove takes a pod's node back. It is remembered: at the end of a trial all are taken back.
func (g *group) remove(pod types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.pods {
		if p := &g.pods[i]; p.Pod.UID == pod && !p.undone {
			p.undone = true
			g.on[p.Node]--
		}
	}
}

// reserve asks the arbiter, once, for capacity for all pods of the group where they were placed at the end of the
// trial. It reports whether that was made for pod.
func (g *group) reserve(s *server, pod types.UID) (made bool, revision uint64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.decided {
		g.decided = true
		gang := make([]ledger.Placement, len(g.pods))
		for i := range g.pods {
			gang[i] = g.pods[i].Placement
		}
		var all []bool
		all, g.revision, g.err = s.arbiter.KeepAll(gang, s.ttl)
		for i := range all {
			g.made[gang[i].Pod.UID] = all[i]
		}
	}
	made = g.made[pod]
	delete(g.made, pod)
	return made, g.revision, g.err
}

// isRefused reports whether the server has refused the group.
func (g *group) isRefused() bool {
	if g == nil {
		return false
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.err != nil
}

// gaveBack reports whether capacity was made for a pod that no call has taken over yet, and takes it over.
func (g *group) gaveBack(pod types.UID) (made bool) {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	made = g.made[pod]
	delete(g.made, pod)
	return made
}

// isGang reports whether kube-scheduler has placed a pod together with the others of its gang: then they are reserved
// together, too. In other pod groups each pod is useful alone.
func (p *Plugin) isGang(c *cycle, pod *v1.Pod) bool {
	if c.group == nil || pod.Spec.SchedulingGroup == nil || pod.Spec.SchedulingGroup.PodGroupName == nil {
		return false
	}
	group, err := p.handle.PodGroupManager().PodGroups().Get(pod.Namespace, *pod.Spec.SchedulingGroup.PodGroupName)
	return err == nil && group.Spec.SchedulingPolicy.Gang != nil
}
