package ledger

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/devices"
)

// deviceViews returns the node's devices as readers see them.
func (n *node) deviceViews() []DeviceView {
	if n.devices == nil {
		return nil
	}
	views := make([]DeviceView, n.devices.pool.Len())
	for k := range views {
		views[k] = DeviceView{Device: *n.devices.pool.Device(k), Free: n.devices.free.Has(k)}
	}
	for c := n.claims; c != nil; c = c.next {
		if c.devices != nil {
			n.devices.visit(c.devices.given, func(k int) { views[k].Pods = append(views[k].Pods, c.pod) })
		}
	}
	for _, h := range n.holds {
		n.devices.visit(h.given, func(k int) {
			if h.InMemory() {
				views[k].Pods = append(views[k].Pods, h.Pod)
			} else if views[k].Hold.Name == "" || compareHolds(h.Ref, views[k].Hold) < 0 {
				views[k].Hold = h.Ref
			}
		})
	}
	for k := range views {
		slices.SortFunc(views[k].Pods, func(a, b PodRef) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
		})
		views[k].Pods = slices.Compact(views[k].Pods) // a pod may say that it has a device twice
	}
	return views
}

func compareHolds(a, b HoldRef) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Slot, b.Slot))
}

// explainDevices says which of the pod's claims of devices was the matter; h is the hold
// it was to use.
func (l *account) explainDevices(r *Rejection, i int32, p *Placement, h *hold) {
	switch r.Reason {
	case DeviceClaimUnusable:
		r.Detail = p.Devices.Err
		return
	case DeviceClaimInUse:
		ref, owner := l.ownerOf(p, h)
		r.DeviceClaim = ref
		switch {
		case owner == nil:
		case owner.hold != nil:
			r.Holders = []Holder{owner.hold.holder(1)}
		default:
			r.Holders = []Holder{owner.claim.holder(1)}
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
