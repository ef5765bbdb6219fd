package mirror

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// columns finds or makes the column of a resource.
type columns func(v1.ResourceName) (resources.Column, bool)

// amounts turns what the wire has into what the ledger counts, ordered by column.
func amounts(wire reserver.Amounts, column columns) []resources.Amount {
	list := make([]resources.Amount, 0, len(wire))
	for name, value := range wire {
		if value == 0 {
			continue
		}
		if c, ok := column(v1.ResourceName(name)); ok {
			list = append(list, resources.Amount{Column: c, Value: value})
		}
	}
	slices.SortFunc(list, func(a, b resources.Amount) int { return int(a.Column) - int(b.Column) })
	return list
}

// request turns the amounts and host ports of a claim or a slot into a request.
func request(t *resources.Table, wire reserver.Amounts, ports []string) (*resources.Request, error) {
	r := &resources.Request{Amounts: amounts(wire, t.InternUse)}
	for _, text := range ports {
		port, err := hostPort(text)
		if err != nil {
			return nil, err
		}
		r.Ports = append(r.Ports, port)
	}
	return r, nil
}

// hostPort reads the form "TCP/0.0.0.0:80"; an IPv6 address has no brackets there.
func hostPort(text string) (resources.HostPort, error) {
	protocol, address, ok := strings.Cut(text, "/")
	at := strings.LastIndexByte(address, ':')
	if !ok || at < 0 || net.ParseIP(address[:at]) == nil {
		return resources.HostPort{}, fmt.Errorf("host port %q is none such as TCP/0.0.0.0:80", text)
	}
	port, err := strconv.ParseInt(address[at+1:], 10, 32)
	if err != nil {
		return resources.HostPort{}, fmt.Errorf("host port %q: %w", text, err)
	}
	return resources.HostPort{
		PortKey: resources.PortKey{Protocol: v1.Protocol(protocol), Port: int32(port)}, IP: address[:at],
	}, nil
}

// states are those of claims. What is kept for a pod in memory comes as a claim without one.
var states = map[string]ledger.State{
	ledger.ReservedState: ledger.NoClaim, ledger.Binding.String(): ledger.Binding, ledger.Bound.String(): ledger.Bound,
}

func podOf(c *reserver.Claim) ledger.PodRef {
	return ledger.PodRef{Namespace: c.Namespace, Name: c.Pod, UID: types.UID(c.UID)}
}

// claim turns a claim of the wire into the ledger's.
func claim(t *resources.Table, c *reserver.Claim) (*ledger.ClaimView, error) {
	state, ok := states[c.State]
	if !ok {
		return nil, fmt.Errorf("the claim of pod %s/%s has the unknown state %q", c.Namespace, c.Pod, c.State)
	}
	r, err := request(t, c.Requests, c.HostPorts)
	if err != nil {
		return nil, fmt.Errorf("the claim of pod %s/%s: %w", c.Namespace, c.Pod, err)
	}
	hold, err := holdRef(c.Reservation)
	if err != nil {
		return nil, fmt.Errorf("the claim of pod %s/%s: %w", c.Namespace, c.Pod, err)
	}
	return &ledger.ClaimView{
		Pod: podOf(c), Node: c.Node, State: state, Scheduler: c.Scheduler, Priority: c.Priority, Request: r, Hold: hold,
		Given: given(c.Devices),
	}, nil
}

// inMemory turns a claim of the wire in state Reserved into the ledger's slot.
func inMemory(c *ledger.ClaimView) *ledger.HoldView {
	return &ledger.HoldView{Within: c.Hold, Given: c.Given, Hold: ledger.Hold{
		Pod: c.Pod, Node: c.Node, Request: c.Request, Policy: ledger.Once, Scheduler: c.Scheduler, Priority: c.Priority,
	}}
}

// holdRef reads namespace/name/slot; nothing is the empty ref.
func holdRef(text string) (ledger.HoldRef, error) {
	if text == "" {
		return ledger.HoldRef{}, nil
	}
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return ledger.HoldRef{}, fmt.Errorf("%q is not namespace/name/slot", text)
	}
	return ledger.HoldRef{Namespace: parts[0], Name: parts[1], Slot: parts[2]}, nil
}

// hold turns a slot of the wire into the ledger's hold.
func hold(t *resources.Table, s *reserver.NodeSlot) (*ledger.HoldView, error) {
	r, err := request(t, s.Slot.Requests, s.Slot.HostPorts)
	if err != nil {
		return nil, fmt.Errorf("slot %s of reservation %s/%s: %w", s.Slot.Name, s.Namespace, s.Reservation, err)
	}
	h := &ledger.HoldView{Overdue: s.Slot.Overdue, Given: given(s.Slot.Devices), Hold: ledger.Hold{
		Ref: refOf(s), Node: s.Slot.Node, Request: r, Policy: ledger.AllocatePolicy(s.Policy),
		Scheduler: s.Scheduler, Priority: s.Priority, Preemptible: s.Preemptible,
	}}
	if s.Slot.Pod != "" {
		h.Pod = ledger.PodRef{Namespace: s.Namespace, Name: s.Slot.Pod, UID: types.UID(s.Slot.UID)}
	}
	return h, nil
}

func refOf(s *reserver.NodeSlot) ledger.HoldRef {
	return ledger.HoldRef{Namespace: s.Namespace, Name: s.Reservation, Slot: s.Slot.Name}
}

// given turns the devices of a claim or a slot into the ledger's.
func given(wire []reserver.GivenDevices) []ledger.GivenDevices {
	if len(wire) == 0 {
		return nil
	}
	list := make([]ledger.GivenDevices, len(wire))
	for i := range wire {
		w := &wire[i]
		list[i] = ledger.GivenDevices{
			Claim:    ledger.DeviceClaimRef{Namespace: w.Namespace, Name: w.Claim, UID: types.UID(w.UID)},
			Resource: w.Resource, IDs: w.IDs,
		}
	}
	return list
}

func device(d *reserver.Device) devices.Device {
	return devices.Device{Name: d.Name, Resource: d.Resource, ID: d.ID, Properties: d.Properties, Unschedulable: d.Unschedulable}
}

func devicesOf(n *reserver.Node) []devices.Device {
	list := make([]devices.Device, len(n.Devices))
	for i := range list {
		list[i] = device(&n.Devices[i].Device)
	}
	return list
}
