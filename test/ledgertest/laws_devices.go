package ledgertest

import (
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// deviceExcess adds the devices that more than one has, and the claims of devices that serve more than one. What a slot
// and its pods have is had once.
func deviceExcess(x excess, s *ledger.Snapshot) {
	owners := map[string]map[string]bool{}
	add := func(owner, format string, args ...any) {
		name := fmt.Sprintf(format, args...)
		if owners[name] == nil {
			owners[name] = map[string]bool{}
		}
		owners[name][owner] = true
	}
	type device struct {
		slot         ledger.SlotRef
		resource, id string
	}
	used := map[device]bool{} // by pods of a slot
	own := func(node, owner string, pod ledger.PodRef, slot ledger.SlotRef, given []ledger.GivenDevices) {
		for _, g := range given {
			if g.Claim.UID != "" && pod.Name != "" { // one of another UID is another claim
				add(pod.Name, "claim %s (%s) of devices", g.Claim, g.Claim.UID)
			}
			for _, id := range g.IDs {
				if pod.Name != "" || !used[device{slot, g.Resource, id}] {
					add(owner, "device %s %s of node %s", g.Resource, id, node)
				}
				used[device{slot, g.Resource, id}] = used[device{slot, g.Resource, id}] || pod.Name != ""
			}
		}
	}
	for i := range s.Allocations {
		a := &s.Allocations[i]
		own(a.Node, a.Pod.Name, a.Pod, a.Slot, a.Given)
	}
	for i := range s.Slots {
		if h := &s.Slots[i]; h.InMemory() {
			own(h.Node, h.Pod.Name, h.Pod, h.Within, h.Given)
		}
	}
	for i := range s.Slots {
		if h := &s.Slots[i]; !h.InMemory() {
			owner := h.Pod.Name
			if owner == "" {
				owner = h.Ref.String()
			}
			own(h.Node, owner, h.Pod, h.Ref, h.Given)
		}
	}
	for name, all := range owners {
		x.add(int64(len(all)-1), "%s", name)
	}
}

// isGiven checks that somebody has devices of a node as it asked for.
func (e *Explorer) isGiven(who fmt.Stringer, node string, asked *ledger.DeviceRequest, given []ledger.GivenDevices) {
	if asked == nil {
		return
	}
	s, _ := e.NodeSnapshot(node)
	rest := slices.Clone(given)
	for k, r := range asked.Requests {
		is := func(g ledger.GivenDevices) bool {
			return g.Resource == r.Resource() && (len(asked.Claims) == 0 || g.Claim.Name == asked.Claims[k].Name) &&
				serves(&s.Nodes[0], r, g.IDs)
		}
		at := slices.IndexFunc(rest, is)
		require.GreaterOrEqual(e.t, at, 0, "nothing of %+v serves %s of %s, which asks for %+v, on %+v", given, r,
			who, asked, s.Nodes[0].Devices)
		rest = slices.Delete(rest, at, at+1)
	}
}

// serves reports whether devices of a node are what is asked for.
func serves(node *ledger.NodeView, asked *devices.Request, ids []string) bool {
	var list []devices.Device
	for _, d := range node.Devices {
		if d.Resource == asked.Resource() && slices.Contains(ids, d.ID) {
			d.Unschedulable = false
			list = append(list, d.Device)
		}
	}
	pool := devices.NewPool(list)
	return pool.Len() == asked.Count() && pool.Fits(pool.Schedulable(), []*devices.Request{asked}).Reason == devices.Fits
}

// devicesAsCounted checks what is said of a pod that asks for devices by its claims alone, and has nothing, by what is
// free on the node.
func (e *Explorer) devicesAsCounted(at *ledger.Placement, v ledger.Verdict) {
	s, ok := e.NodeSnapshot(at.Node)
	if !ok || at.Devices == nil || at.Devices.Err != "" || !e.hasNothing(at) || at.Preempt {
		return
	}
	var free []devices.Device
	for _, d := range s.Nodes[0].Devices {
		if d.Free {
			free = append(free, d.Device)
		}
	}
	pool := devices.NewPool(free)
	fits := pool.Fits(pool.Schedulable(), at.Devices.Requests).Reason == devices.Fits
	wrong := ledger.Fits
	if fits {
		wrong = ledger.InsufficientDevices
	}
	require.NotEqual(e.t, wrong, v.Reason, "%v of %+v", at.Devices.Requests, s.Nodes[0].Devices)
}

// keepDevices checks that a decision about some pods changes nothing that others have.
func (e *Explorer) keepDevices(before *ledger.Snapshot, pods ...ledger.PodRef) {
	after := e.Snapshot()
	for i := range before.Allocations {
		was := &before.Allocations[i]
		is := func(a ledger.AllocationView) bool { return a.Pod == was.Pod && a.Node == was.Node }
		k := slices.IndexFunc(after.Allocations, is)
		other := func(pod ledger.PodRef) bool { return pod.Name == was.Pod.Name }
		if k >= 0 && !slices.ContainsFunc(pods, other) {
			require.Equal(e.t, was.Given, after.Allocations[k].Given, "of %s, which nobody decided about", was.Pod)
		}
	}
}
