package ledgertest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// TestHoldsAgreeWithModel is TestLedgerAgreesWithModel in a world that is kind to
// holds: nodes come and go rarely, and most pods are new, so that nearly all that
// is refused is refused for want of room.
func TestHoldsAgreeWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pair := NewPair(ledger.Options{})
		w := NewWorld(pair.Ledger.Table())
		w.Calm = true
		for _, name := range nodeNames[:2] {
			pair.ObserveNode(w.RoomyNode(t, name))
		}
		steps := holdActions(pair, w)
		steps = append(steps, steps...)
		steps = append(steps, slices.Repeat([]func(*rapid.T){
			func(t *rapid.T) { settle(t, pair, w, pair.Confirm) },
			func(t *rapid.T) { settle(t, pair, w, pair.Confirm) },
			func(t *rapid.T) { settle(t, pair, w, pair.BindFailed) },
			func(t *rapid.T) { removeClaim(t, pair, w) },
			func(t *rapid.T) { removeClaim(t, pair, w) },
			func(t *rapid.T) { redeem(t, pair, w) },
		}, 2)...)
		steps = append(
			steps,
			func(t *rapid.T) { renew(t, pair, w) },
			func(t *rapid.T) { observeClaim(t, pair, w) },
			func(t *rapid.T) { at := w.Placement(t); pair.StartBind(&at, w.Now) },
			func(t *rapid.T) {
				if pick(t, "rare", 4) == 3 {
					pair.ObserveNode(w.RepeatedNode(t))
					return
				}
				pair.ObserveNode(w.RoomyNode(t, oneOf(t, "node", nodeNames[:2])))
			},
			func(t *rapid.T) {
				if pick(t, "rare", 8) == 7 {
					pair.RemoveNode(w.Node(t))
				}
			},
		)
		t.Repeat(map[string]func(*rapid.T){
			"":     func(t *rapid.T) { require.NoError(t, pair.Check()) },
			"step": func(t *rapid.T) { oneOf(t, "step", steps)(t) },
		})
	})
}

// holdActions lists what can happen to holds.
func holdActions(p *Pair, w *World) []func(*rapid.T) {
	place := func(t *rapid.T) { p.Reserve(w.HoldPlan(t), w.Now) }
	use := func(t *rapid.T) { useHold(t, p, w) }
	preempt := func(t *rapid.T) { preemptHold(t, p, w) }
	try := func(t *rapid.T) {
		plan, at := w.HoldPlan(t), user(t, p, w)
		plan.Slots = append(plan.Slots, w.Plan(t).Slots...)
		p.Try(plan, w.Victims(t), &at, append(nodeNames, "nowhere"))
	}
	return []func(*rapid.T){
		try, place, place, place, use, use, use, use, preempt, preempt,
		func(t *rapid.T) { p.ObserveHold(w.Hold(t, true)) },
		func(t *rapid.T) { observeHoldOfPod(t, p, w) },
		func(t *rapid.T) { observeHoldAgain(t, p, w) },
		func(t *rapid.T) { observeUser(t, p, w) },
		func(t *rapid.T) { observeUser(t, p, w) },
		func(t *rapid.T) {
			ref := drawHold(t, p, w).Ref
			p.SetHoldDeadline(ref.Namespace, ref.Name, w.Deadline(t))
		},
		func(t *rapid.T) { ref := drawHold(t, p, w).Ref; p.ReleaseHolds(ref.Namespace, ref.Name) },
		func(t *rapid.T) { ref := drawHold(t, p, w).Ref; p.ReleaseHolds(ref.Namespace, ref.Name, ref.Slot, "x") },
		func(t *rapid.T) { swap(t, p, w) },
		func(t *rapid.T) { askAboutHold(t, p, w) },
		func(t *rapid.T) { w.Pass(t); p.Expire(w.Now) },
	}
}

// drawHold returns a hold that exists, or any.
func drawHold(t *rapid.T, p *Pair, w *World) ledger.Hold {
	holds, _ := p.Ledger.Holds()
	holds = slices.DeleteFunc(holds, func(h ledger.HoldView) bool { return h.InMemory() })
	if len(holds) == 0 {
		return w.Hold(t, true)
	}
	return holds[pick(t, "hold", len(holds))].Hold
}

// user draws a pod that may use a hold, on its node.
func user(t *rapid.T, p *Pair, w *World) ledger.Placement {
	h := drawHold(t, p, w)
	at := w.Placement(t)
	at.Node, at.Holds = h.Node, append(at.Holds, h.Ref)
	if pick(t, "new pod", 4) > 0 {
		at.Pod = w.NewPod(t, p.Ledger)
	}
	if h.Pod.Name != "" {
		at.Pod = w.ExistingPodNamed(t, h.Pod.Name)
		if h.Pod.UID != "" && rapid.Bool().Draw(t, "the pod itself") {
			at.Pod.UID = h.Pod.UID
		}
	}
	if pick(t, "as large as the hold", 3) == 2 {
		at.Request = h.Request
	}
	return at
}

// useHold binds or reserves for a pod that may use a hold.
func useHold(t *rapid.T, p *Pair, w *World) {
	at := user(t, p, w)
	switch pick(t, "how", 8) {
	case 4, 5, 6:
		plan := w.Plan(t)
		if pick(t, "with others", 3) > 0 {
			plan.Slots = nil
		}
		plan.Slots = append(plan.Slots, at.Slot(w.Deadline(t)))
		p.Reserve(plan, w.Now)
	case 7:
		p.Preempt(&at, w.Now)
	default:
		p.StartBind(&at, w.Now)
	}
}

// preemptHold binds a pod that may end holds, mostly one that is more important
// than any hold and wants the room of one, and at times more.
func preemptHold(t *rapid.T, p *Pair, w *World) {
	at := w.Placement(t)
	at.Pod = w.NewPod(t, p.Ledger)
	h := drawHold(t, p, w)
	if pick(t, "there", 4) > 0 {
		at.Node, at.Priority = h.Node, 3
	}
	switch pick(t, "size", 3) {
	case 1:
		at.Request = h.Request
	case 2:
		at.Holds = append(at.Holds, h.Ref)
	}
	p.Preempt(&at, w.Now)
}

// observeHoldOfPod finds a hold of a pod that has a claim.
func observeHoldOfPod(t *rapid.T, p *Pair, w *World) {
	c := drawClaim(t, p, w)
	h := w.Hold(t, true)
	h.Pod, h.Ref.Namespace = c.Pod, c.Pod.Namespace
	if pick(t, "elsewhere", 4) > 0 {
		h.Node = c.Node
	}
	p.ObserveHold(h)
}

// askAboutHold asks where a pod that may use a hold would fit.
func askAboutHold(t *rapid.T, p *Pair, w *World) {
	at := user(t, p, w)
	p.Ask(&at, append(nodeNames, "nowhere"), w.Victims(t))
}

// observeHoldAgain finds a hold in its object again, perhaps with more time.
func observeHoldAgain(t *rapid.T, p *Pair, w *World) {
	h := drawHold(t, p, w)
	if rapid.Bool().Draw(t, "extended") && !h.Deadline.IsZero() {
		h.Deadline = h.Deadline.Add(time.Duration(pick(t, "by", 5)) * time.Second)
	}
	if pick(t, "lost before", 3) == 2 {
		p.ReleaseHolds(h.Ref.Namespace, h.Ref.Name, h.Ref.Slot)
	}
	p.ObserveHold(h)
}

// observeUser finds a pod bound that says it was bound with a hold.
func observeUser(t *rapid.T, p *Pair, w *World) {
	at := user(t, p, w)
	o := w.PodObservation(t, p.Ledger)
	o.Pod, o.Node, o.Hold = at.Pod, at.Node, at.Holds[len(at.Holds)-1]
	o.HoldUID = oneOf(t, "reservation", reservationUIDs)
	if o.Pod.UID == "" {
		o.Pod = w.ExistingPodNamed(t, o.Pod.Name)
	}
	if len(at.Request.Unlisted) == 0 {
		o.Request = at.Request
	}
	o.Devices = w.observedDevices(t, o.Pod, p.Ledger)
	p.ObservePod(o)
}

// swap deletes a pod and keeps its room.
func swap(t *rapid.T, p *Pair, w *World) {
	c := drawClaim(t, p, w)
	h := w.Hold(t, true)
	if c.Pod.UID == "" {
		c.Pod = w.ExistingPodNamed(t, c.Pod.Name)
	}
	p.RemovePodHolding(c.Pod, w.Version(t), h)
}
