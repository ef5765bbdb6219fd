package ledgertest

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

const (
	gpu = "example.com/gpu"
	nic = "example.com/nic"
)

// deviceClaims are what claims of devices may ask for.
var deviceClaims = []v1alpha1.ExtendedResourceClaimSpec{
	{ResourceName: gpu, Count: 1},
	{ResourceName: gpu, Count: 1, Selector: model("a")},
	{ResourceName: gpu, Count: 1, Selector: model("b")},
	{ResourceName: gpu, Count: 2},
	{ResourceName: nic, Count: 1},
	{ResourceName: gpu, Count: 1, ExtendedResourceNames: []string{"d0"}},
}

func model(name string) *v1alpha1.DeviceSelector {
	return &v1alpha1.DeviceSelector{MatchProperties: map[string]string{"model": name}}
}

// compile makes the request of a claim's spec anew.
func compile(spec *v1alpha1.ExtendedResourceClaimSpec) *devices.Request {
	request, err := devices.Compile(nil, spec)
	if err != nil {
		panic(err)
	}
	return request
}

// NodeDevices draws the devices of a node: mostly the same ones.
func (w *World) NodeDevices(t *rapid.T) []devices.Device {
	var list []devices.Device
	for k := range 6 {
		if Pick(t, "absent", 5) == 4 {
			continue
		}
		d := devices.Device{
			Name: fmt.Sprintf("d%d", k), ID: fmt.Sprintf("id%d", k), Resource: gpu,
			Properties:    map[string]string{"model": []string{"a", "b"}[k%2]},
			Unschedulable: Pick(t, "unschedulable", 12) == 11,
		}
		if k >= 4 {
			d.Resource = nic
		}
		if Pick(t, "same device", 16) == 15 {
			d.ID = "id0"
		}
		list = append(list, d)
	}
	if Pick(t, "none", 12) == 11 {
		return nil
	}
	return list
}

// DevicesOf draws what a pod asks for: mostly what it has asked for before.
func (w *World) DevicesOf(t *rapid.T, pod ledger.PodRef) *ledger.DeviceRequest {
	if !w.Devices {
		return nil
	}
	known, ok := w.allocations[pod.Name]
	if ok && Pick(t, "other devices", 8) < 7 {
		return w.again(t, known)
	}
	r := w.deviceRequest(t)
	w.allocations[pod.Name] = r
	return r
}

// again returns a request as it is, or an equal one.
func (w *World) again(t *rapid.T, r *ledger.DeviceRequest) *ledger.DeviceRequest {
	if r == nil || rapid.Bool().Draw(t, "same pointer") {
		return r
	}
	same := *r
	return &same
}

func (w *World) deviceRequest(t *rapid.T) *ledger.DeviceRequest {
	switch Pick(t, "claims devices", 16) {
	case 0, 1, 2:
		return nil
	case 3:
		return &ledger.DeviceRequest{Claims: []ledger.DeviceClaimRef{w.deviceClaim(t)}, Err: "there is no such claim"}
	}
	r := &ledger.DeviceRequest{}
	for range 1 + Pick(t, "claims", 4)/3 {
		ref := w.deviceClaim(t)
		if slices.ContainsFunc(r.Claims, func(o ledger.DeviceClaimRef) bool { return o.Name == ref.Name }) {
			continue
		}
		r.Claims = append(r.Claims, ref)
		r.Requests = append(r.Requests, compile(&deviceClaims[Pick(t, "spec", len(deviceClaims))]))
	}
	return r
}

func (w *World) deviceClaim(t *rapid.T) ledger.DeviceClaimRef {
	return ledger.DeviceClaimRef{
		Namespace: "ns", Name: fmt.Sprintf("c%d", Pick(t, "claim", 8)),
		UID: oneOf(t, "claim uid", []types.UID{"1", "1", "1", "2", ""}),
	}
}

// heldDevices draws what a slot asks for; few are for certain claims.
func (w *World) heldDevices(t *rapid.T, pod ledger.PodRef) *ledger.DeviceRequest {
	if !w.Devices {
		return nil
	}
	if pod.Name != "" && rapid.Bool().Draw(t, "the pod's") {
		return w.DevicesOf(t, pod)
	}
	r := w.deviceRequest(t)
	if r != nil && Pick(t, "for claims", 4) < 3 {
		r.Claims = nil
	}
	return r
}

// heldBefore draws what a slot says that it was given: mostly as many as it asks for.
func (w *World) heldBefore(t *rapid.T, r *ledger.DeviceRequest) *ledger.DeviceRequest {
	var ids []string
	for _, request := range r.Requests {
		for range request.Count() {
			ids = append(ids, fmt.Sprintf("id%d", Pick(t, "held id", 7)))
		}
	}
	if len(ids) > 0 && Pick(t, "one less", 8) == 7 {
		ids = ids[1:]
	}
	before := *r
	before.Given = strings.Join(ids, ",")
	return &before
}

// observedDevices draws what a pod that is bound says of its devices: mostly what it was given, if it was.
func (w *World) observedDevices(t *rapid.T, pod ledger.PodRef, l *ledger.Ledger) *ledger.DeviceRequest {
	r := w.DevicesOf(t, pod)
	if !w.Devices || (r == nil && Pick(t, "says nothing", 3) == 2) {
		return nil
	}
	if r == nil {
		r = &ledger.DeviceRequest{} // it has some for what it asks for by count
	}
	o := *r
	var ids []string
	allocation, ok := l.Allocation(pod)
	if ok && Pick(t, "other ids", 6) < 5 {
		for _, g := range allocation.Given {
			ids = append(ids, g.IDs...)
		}
		if Pick(t, "claims unknown by now", 8) == 7 {
			o.Requests, o.Err = nil, "deleted meanwhile"
		}
	} else {
		for range Pick(t, "ids", 4) {
			ids = append(ids, fmt.Sprintf("id%d", Pick(t, "id", 7)))
		}
	}
	o.Given = strings.Join(ids, ",")
	return &o
}
