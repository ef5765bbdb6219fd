package mirror

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// apply takes in an event that changes the account.
func (m *Mirror) apply(e *reserver.Event) error {
	switch {
	case e.Snapshot != nil:
		return m.takeSnapshot(e)
	case e.Node != nil:
		m.applyNode(e.Node)
		return nil
	case e.Claim != nil:
		return m.applyClaim(e.Claim)
	case e.Slot != nil:
		return m.applySlot(e.Slot)
	default:
		return nil
	}
}

// takeSnapshot collects the parts of a snapshot and takes it in when it is whole.
// Until then the replica is what it was.
func (m *Mirror) takeSnapshot(e *reserver.Event) error {
	if e.First {
		m.parts = nil
	}
	m.parts = append(m.parts, e.Snapshot)
	if e.Snapshot.More {
		return nil
	}
	parts := m.parts
	m.parts = nil
	return m.replace(parts)
}

// replace makes the replica what a snapshot says. What is there and right is left as
// it is; what is not in the snapshot goes, claims before the holds they use. Holds
// are placed before the claims that use them.
func (m *Mirror) replace(parts []*reserver.WatchSnapshot) error {
	var errs []error
	nodes, holds, claims := map[string]bool{}, map[ledger.HoldRef]bool{}, map[ledger.PodRef]bool{}
	for _, part := range parts {
		for i := range part.Nodes {
			nodes[part.Nodes[i].Name] = part.Nodes[i].Exists
		}
		for i := range part.Claims {
			claims[podOf(&part.Claims[i])] = true
		}
		for i := range part.Slots {
			holds[refOf(&part.Slots[i])] = true
		}
	}
	m.prune(nodes, holds, claims)
	for _, part := range parts {
		for i := range part.Nodes {
			n := &part.Nodes[i]
			if n.Exists {
				m.ledger.ObserveNode(m.nodeOf(n))
			}
			m.ledger.ObserveDevices(n.Name, devicesOf(n))
		}
	}
	for _, part := range parts {
		for i := range part.Slots {
			errs = append(errs, m.copyHold(&part.Slots[i]))
		}
	}
	for _, part := range parts {
		for i := range part.Claims {
			errs = append(errs, m.copyClaim(&part.Claims[i]))
		}
	}
	return errors.Join(errs...)
}

// prune ends what a snapshot does not have.
func (m *Mirror) prune(nodes map[string]bool, holds map[ledger.HoldRef]bool, claims map[ledger.PodRef]bool) {
	now := m.ledger.Snapshot()
	for i := range now.Claims {
		if pod := now.Claims[i].Pod; !claims[pod] {
			// What has become of the pod is not known: it may be pending yet.
			m.ledger.EndClaim(pod, ledger.ClaimBindFailed)
		}
	}
	for i := range now.Holds {
		switch h := &now.Holds[i]; {
		case h.InMemory() && !claims[h.Pod]:
			m.ledger.EndInMemory(h.Pod, ledger.HoldReleased)
		case !h.InMemory() && !holds[h.Ref]:
			m.ledger.EndHold(h.Ref, ledger.HoldReleased)
		}
	}
	for i := range now.Nodes {
		name := now.Nodes[i].Name
		exists, listed := nodes[name]
		if !exists {
			m.ledger.RemoveNode(name)
		}
		if !listed {
			m.ledger.ObserveDevices(name, nil)
		}
	}
}

func (m *Mirror) nodeOf(n *reserver.Node) ledger.NodeObservation {
	wire := make(reserver.Amounts, len(n.Resources))
	for name, amount := range n.Resources {
		wire[name] = amount.Allocatable
	}
	return ledger.NodeObservation{
		Name: n.Name, UID: types.UID(n.UID), Unschedulable: n.Unschedulable,
		Allocatable: amounts(wire, m.ledger.Table().Intern),
	}
}

func (m *Mirror) applyNode(e *reserver.WatchNode) {
	switch ledger.EventType(e.Type) {
	case ledger.NodeRemoved:
		m.ledger.RemoveNode(e.Node.Name)
		return
	case ledger.DevicesUpdated:
		list := make([]devices.Device, len(e.Node.Devices))
		for i := range list {
			list[i] = device(&e.Node.Devices[i])
		}
		m.ledger.ObserveDevices(e.Node.Name, list)
		return
	}
	m.ledger.ObserveNode(ledger.NodeObservation{
		Name: e.Node.Name, UID: types.UID(e.Node.UID), Unschedulable: e.Node.Unschedulable,
		Allocatable: amounts(e.Node.Allocatable, m.ledger.Table().Intern),
	})
}

func (m *Mirror) applyClaim(e *reserver.WatchClaim) error {
	switch why := ledger.EventType(e.Type); why {
	case reserver.ClaimExpired:
		m.ledger.EndInMemory(podOf(&e.Claim), ledger.HoldExpired)
		return nil
	case reserver.ClaimUnreserved:
		m.ledger.EndInMemory(podOf(&e.Claim), ledger.HoldReleased)
		return nil
	case ledger.ClaimBindFailed, ledger.ClaimRemoved:
		m.ledger.EndClaim(podOf(&e.Claim), why)
		return nil
	case ledger.ClaimIdentified:
		m.ledger.IdentifyClaim(podOf(&e.Claim))
		return m.copyClaim(&e.Claim)
	default: // after all others the claim is what the event says
		return m.copyClaim(&e.Claim)
	}
}

func (m *Mirror) copyClaim(c *reserver.Claim) error {
	view, err := claim(m.ledger.Table(), c)
	if err != nil {
		return err
	}
	if view.State == ledger.NoClaim {
		m.ledger.CopyHold(inMemory(view))
	} else {
		m.ledger.CopyClaim(view)
	}
	return nil
}

func (m *Mirror) applySlot(e *reserver.WatchSlot) error {
	switch why := ledger.EventType(e.Type); why {
	case ledger.HoldPlaced:
		return m.copyHold(&e.Slot)
	case ledger.HoldConsumed, ledger.HoldReleased, ledger.HoldExpired, ledger.HoldPreempted:
		m.ledger.EndHold(refOf(&e.Slot), why)
		return nil
	default:
		return fmt.Errorf("slot event of the unknown type %q", e.Type)
	}
}

func (m *Mirror) copyHold(s *reserver.NodeSlot) error {
	h, err := hold(m.ledger.Table(), s)
	if err != nil {
		return err
	}
	m.ledger.CopyHold(h)
	return nil
}
