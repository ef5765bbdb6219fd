package mirror

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// amounts turns what the wire has into what the ledger counts, ordered by column. column finds or
// makes that of a resource.
func amounts(wire reserver.Amounts, column func(v1.ResourceName) (resources.Column, bool)) []resources.Amount {
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

// request turns the amounts and host ports of an allocation or a slot into a request.
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

// states are those of allocations.
var states = map[string]ledger.State{ledger.Binding.String(): ledger.Binding, ledger.Bound.String(): ledger.Bound}

func podOf(c *reserver.Allocation) ledger.PodRef {
	return ledger.PodRef{Namespace: c.Namespace, Name: c.Pod, UID: types.UID(c.UID)}
}

// allocation turns an allocation of the wire into the ledger's.
func allocation(t *resources.Table, c *reserver.Allocation) (*ledger.AllocationView, error) {
	state, ok := states[c.State]
	if !ok {
		return nil, fmt.Errorf("the allocation of pod %s/%s has the unknown state %q", c.Namespace, c.Pod, c.State)
	}
	r, err := request(t, c.Requests, c.HostPorts)
	if err != nil {
		return nil, fmt.Errorf("the allocation of pod %s/%s: %w", c.Namespace, c.Pod, err)
	}
	slot, err := slotRef(c.Reservation)
	if err != nil {
		return nil, fmt.Errorf("the allocation of pod %s/%s: %w", c.Namespace, c.Pod, err)
	}
	return &ledger.AllocationView{
		Pod: podOf(c), Node: c.Node, State: state, Scheduler: c.Scheduler, Priority: c.Priority, Request: r, Slot: slot,
		Given: given(c.Devices),
	}, nil
}

// slotRef reads namespace/name/slot; nothing is the empty ref.
func slotRef(text string) (ledger.SlotRef, error) {
	if text == "" {
		return ledger.SlotRef{}, nil
	}
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return ledger.SlotRef{}, fmt.Errorf("%q is not namespace/name/slot", text)
	}
	return ledger.SlotRef{Namespace: parts[0], Name: parts[1], Slot: parts[2]}, nil
}

// slot turns a slot of the wire into the ledger's slot.
func slot(t *resources.Table, s *reserver.NodeSlot) (*ledger.SlotView, error) {
	r, err := request(t, s.Slot.Requests, s.Slot.HostPorts)
	if err != nil {
		return nil, fmt.Errorf("slot %s of reservation %s/%s: %w", s.Slot.Name, s.Namespace, s.Reservation, err)
	}
	within, err := slotRef(s.Slot.Within)
	if err != nil {
		return nil, fmt.Errorf("the slot in memory of pod %s/%s: %w", s.Namespace, s.Slot.Pod, err)
	}
	return &ledger.SlotView{Within: within, Overdue: s.Slot.Overdue, Given: given(s.Slot.Devices), Slot: ledger.Slot{
		Ref: refOf(s), Pod: slotPod(s), Node: s.Slot.Node, Request: r, Policy: ledger.AllocatePolicy(s.Policy),
		Scheduler: s.Scheduler, Priority: s.Priority, Preemptible: s.Preemptible, Movable: s.Slot.Movable,
	}}, nil
}

// slotPod is the only pod that may use a slot, if it is for one.
func slotPod(s *reserver.NodeSlot) ledger.PodRef {
	if s.Slot.Pod == "" {
		return ledger.PodRef{}
	}
	return ledger.PodRef{Namespace: s.Namespace, Name: s.Slot.Pod, UID: types.UID(s.Slot.UID)}
}

// slotKey is what a slot is known by: its ref, or, in memory, its pod.
type slotKey struct {
	ref ledger.SlotRef
	pod ledger.PodRef
}

func keyOf(ref ledger.SlotRef, pod ledger.PodRef) slotKey {
	if ref != (ledger.SlotRef{}) {
		pod = ledger.PodRef{}
	}
	return slotKey{ref, pod}
}

func refOf(s *reserver.NodeSlot) ledger.SlotRef {
	if s.Reservation == "" {
		return ledger.SlotRef{}
	}
	return ledger.SlotRef{Namespace: s.Namespace, Name: s.Reservation, Slot: s.Slot.Name}
}

// given turns the devices of a claim or a slot into the ledger's.
func given(wire []reserver.GivenDevices) []ledger.GivenDevices {
	var list []ledger.GivenDevices
	for i := range wire {
		w := &wire[i]
		list = append(list, ledger.GivenDevices{
			Claim:    ledger.DeviceClaimRef{Namespace: w.Namespace, Name: w.Claim, UID: types.UID(w.UID)},
			Resource: w.Resource, IDs: w.IDs,
		})
	}
	return list
}

// offered is what a node of a snapshot offers, as a node event tells it.
func offered(n *reserver.Node) *reserver.WatchedNode {
	w := &reserver.WatchedNode{
		Name: n.Name, UID: n.UID, Unschedulable: n.Unschedulable, Labels: n.Labels, Allocatable: reserver.Amounts{},
	}
	for name, amount := range n.Resources {
		w.Allocatable[name] = amount.Allocatable
	}
	for i := range n.Devices {
		w.Devices = append(w.Devices, n.Devices[i].Device)
	}
	return w
}
