package debugger

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// maxListed is how many things one line lists, so that no line of a log is too long.
const maxListed = 20

// lines yields an account in lines of text, in a stable order: nodes with their devices, allocations, slots.
func lines(d *reserver.DumpAnswer) iter.Seq[string] {
	return func(yield func(string) bool) {
		a := &d.Account
		more := yield(headline(d))
		for i := 0; more && i < len(a.Nodes); i++ {
			more = yield(nodeLine(&a.Nodes[i]))
			for k := 0; more && k < len(a.Nodes[i].Devices); k++ {
				more = yield(deviceLine(a.Nodes[i].Name, &a.Nodes[i].Devices[k]))
			}
		}
		for i := 0; more && i < len(a.Allocations); i++ {
			more = yield(allocationLine(&a.Allocations[i]))
		}
		for i := 0; more && i < len(a.Slots); i++ {
			more = yield(slotLine(&a.Slots[i]))
		}
	}
}

func headline(d *reserver.DumpAnswer) string {
	has, decides := "with reservations and devices", "decides"
	switch {
	case !d.Pods:
		has = "before all pods and nodes have been read"
	case !d.Objects:
		has = "pods and nodes only"
	}
	if d.Undecided != "" {
		decides = "does not decide: " + d.Undecided
	}
	return fmt.Sprintf("server %s at revision %d, %s: %d nodes, %d allocations, %d slots; it %s", d.Server,
		d.Account.Revision, has,
		len(d.Account.Nodes), len(d.Account.Allocations), len(d.Account.Slots), decides)
}

func nodeLine(n *reserver.Node) string {
	words := []string{fmt.Sprintf("node %s: UID %s, %d allocations", n.Name, n.UID, n.AllocationCount)}
	for _, name := range slices.Sorted(maps.Keys(n.Resources)) {
		r := n.Resources[name]
		words = append(words, fmt.Sprintf("%s %d: bound %d, reserved %d, free %d", name, r.Allocatable, r.Bound, r.Reserved,
			r.Free))
	}
	words = addIf(words, !n.Exists, "does not exist")
	words = addIf(words, n.Unschedulable, "cordoned")
	words = addIf(words, n.Overcommitted, "overcommitted")
	return join(words)
}

func deviceLine(node string, d *reserver.NodeDevice) string {
	words := []string{fmt.Sprintf("device %s on node %s: %s of %s", d.Name, node, d.ID, d.Resource)}
	words = addIf(words, d.Free, "free")
	words = addIf(words, d.Unschedulable, "unschedulable")
	words = addIf(words, d.Reservation != "", "kept by "+d.Reservation)
	for _, pod := range d.Pods {
		words = append(words, "pod "+pod.Namespace+"/"+pod.Pod)
	}
	return join(words)
}

func allocationLine(a *reserver.Allocation) string {
	words := []string{fmt.Sprintf("allocation of pod %s/%s on node %s: %s, UID %s, scheduler %s, priority %d",
		a.Namespace, a.Pod, a.Node, a.State, a.UID, a.Scheduler, a.Priority)}
	words = addIf(words, a.Reservation != "", "uses "+a.Reservation)
	return join(append(words, describe(a.Requests, a.HostPorts, a.Devices)...))
}

func slotLine(s *reserver.NodeSlot) string {
	name := "in memory"
	if s.Reservation != "" {
		name = s.Namespace + "/" + s.Reservation + "/" + s.Slot.Name
	}
	words := []string{fmt.Sprintf("slot %s on node %s: %s, scheduler %s, priority %d", name, s.Slot.Node, s.Policy,
		s.Scheduler, s.Priority)}
	words = append(words, describe(s.Slot.Requests, s.Slot.HostPorts, s.Slot.Devices)...)
	words = addIf(words, s.Slot.Pod != "", "for pod "+s.Namespace+"/"+s.Slot.Pod)
	words = addIf(words, s.Slot.Within != "", "part of "+s.Slot.Within)
	words = addIf(words, !s.Slot.ExpiresAt.IsZero(), "until "+s.Slot.ExpiresAt.UTC().Format(time.RFC3339))
	words = addIf(words, s.Slot.Overdue, "overdue")
	for _, c := range s.Slot.Consumers {
		words = append(words, "used by pod "+s.Namespace+"/"+c.Pod)
	}
	return join(words)
}

// describe says what is asked for: amounts, cpu in milli-CPU, host ports and devices.
func describe(amounts reserver.Amounts, ports []string, given []reserver.GivenDevices) (words []string) {
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		words = append(words, fmt.Sprintf("%s %d", name, amounts[name]))
	}
	for _, port := range ports {
		words = append(words, "port "+port)
	}
	for i := range given {
		for _, id := range given[i].IDs {
			words = append(words, "device "+id)
		}
	}
	return words
}

func addIf(words []string, is bool, word string) []string {
	if is {
		return append(words, word)
	}
	return words
}

func join(words []string) string {
	if more := len(words) - maxListed; more > 0 {
		words = append(words[:maxListed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, "; ")
}
