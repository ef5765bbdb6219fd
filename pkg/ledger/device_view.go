package ledger

import (
	"fmt"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/devices"
)

// DeviceUsers returns what has a claim of devices, except the slots of reservations: allocations, and slots in memory,
// whose State is NoAllocation.
func (l Reader) DeviceUsers(namespace, name string) (users []AllocationView) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, o := range l.deviceOwners[nameKey{namespace, name}] {
		if o.by.slot == nil {
			users = append(users, l.allocationView(o.by))
		}
	}
	return users
}

// deviceViews returns the node's devices as readers see them.
func (n *node) deviceViews() []DeviceView {
	if n.devices == nil {
		return nil
	}
	views := make([]DeviceView, n.devices.pool.Len())
	for k := range views {
		views[k] = DeviceView{Device: *n.devices.pool.Device(k), Free: n.devices.free.Has(k)}
	}
	for e := n.first; e != nil; e = e.next {
		n.devices.visit(e.given(), func(k int) {
			if e.slot == nil {
				views[k].Pods = append(views[k].Pods, e.pod)
			} else if views[k].Slot.Name == "" || compareSlots(e.slot.ref, views[k].Slot) < 0 {
				views[k].Slot = e.slot.ref
			}
		})
	}
	for k := range views {
		slices.SortFunc(views[k].Pods, comparePods)
		views[k].Pods = slices.Compact(views[k].Pods) // a pod may say that it has a device twice
	}
	return views
}

// explainDevices says which of the pod's claims of devices was the matter; h is the slot it was to use.
func (l *account) explainDevices(r *Rejection, i int32, p *Placement, h *entry) {
	switch r.Reason {
	case DeviceClaimUnusable:
		r.Detail = p.Devices.Err
		return
	case DeviceClaimInUse:
		ref, owner := l.ownerOf(p, h)
		if r.DeviceClaim = ref; owner != nil {
			r.Holders = []Holder{owner.holder(1)}
		}
		return
	}
	n := l.nodes[i]
	at, have := 0, 0
	if n.devices == nil {
		r.Detail = fmt.Sprintf("%s: the node has no devices", p.Devices.Requests[0])
	} else {
		v := n.devices.pool.Fits(n.freeDevices(h), p.Devices.Requests)
		at, have = v.Request, v.Have
		r.Detail = v.Explain(p.Devices.Requests)
		if v.Reason == devices.Fits {
			r.Detail = "one of the devices it was given is gone, or in use"
		}
	}
	r.Resource, r.Requested, r.Free = p.Devices.Requests[at].Resource(), int64(p.Devices.Requests[at].Count()), int64(have)
	if at < len(p.Devices.Claims) {
		r.DeviceClaim = p.Devices.Claims[at]
	}
}
