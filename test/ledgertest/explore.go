package ledgertest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Explore does random things to a ledger and looks after each whether its laws hold, see Explorer. A calm world is kind
// to slots: nodes come and go rarely, and most pods are new, so that nearly all that is refused is refused for want of
// capacity. Where there are devices, pods and slots claim those of two nodes, which have few. Where there are limits,
// they change as all else does.
func Explore(t *testing.T, check Check, kind World) {
	met := map[ledger.Reason]int{}
	rapid.Check(t, func(t *rapid.T) {
		l := ledger.New(ledger.Options{FirstRevision: rapid.Uint64Range(0, 100).Draw(t, "first revision")})
		w := NewWorld(l.Table())
		w.Calm, w.Devices, w.Limits, w.DRA = kind.Calm, kind.Devices, kind.Limits, kind.DRA
		e := NewExplorer(t, l, check)
		for _, name := range nodeNames[:2] {
			e.ObserveNode(w.LargeNode(t, name))
			if w.Devices {
				e.ObserveDevices(name, w.NodeDevices(t))
			}
		}
		if w.Limits { // else few runs would limit a caller at all
			e.limit(ledger.OfCaller, map[string]*ledger.Limits{"c1": w.limits(t), "c2": w.limits(t)})
		}
		steps := e.Actions(w)
		t.Repeat(map[string]func(*rapid.T){
			"":     e.Check,
			"step": func(t *rapid.T) { oneOf(t, "step", steps)(t) },
		})
		for reason, count := range e.met {
			met[reason] += count
		}
	})
	wanted := []ledger.Reason{ledger.Fits, ledger.InsufficientResource}
	if kind.Limits {
		wanted = []ledger.Reason{ledger.Fits, ledger.InsufficientResource, ledger.QuotaExceeded, ledger.CallerLimit}
	}
	if kind.Devices {
		wanted = []ledger.Reason{ledger.Fits, ledger.InsufficientDevices, ledger.DeviceClaimInUse, ledger.DeviceClaimUnusable}
	}
	for _, r := range wanted {
		require.NotZero(t, met[r], "no question was answered with %s: %v", r, met)
	}
}

// Actions lists what can happen. An action that is listed twice happens more
// often: they are weighted so that nodes are neither full nor empty for long.
func (e *Explorer) Actions(w *World) []func(*rapid.T) {
	reserve := func(t *rapid.T) { e.Reserve(w.Plan(t), w.Now) }
	start := func(t *rapid.T) { at := w.Placement(t); e.StartBind(&at, w.Now) }
	again := func(t *rapid.T) { renew(t, e, w) }
	remove := func(t *rapid.T) { removeAllocation(t, e, w) }
	bind := func(t *rapid.T) { redeem(t, e, w, e.StartBind) }
	confirm := func(t *rapid.T) { settle(t, e, w, e.Confirm) }
	steps := []func(*rapid.T){
		reserve, reserve, start, start, again, again, remove, remove, bind, bind, confirm, confirm,
		func(t *rapid.T) { settle(t, e, w, e.BindFailed) },
		func(t *rapid.T) { redeem(t, e, w, e.ChangeBind) },
		func(t *rapid.T) {
			settle(t, e, w, func(pod ledger.PodRef, node string) { e.BindFailedKeeping(pod, node, w.Deadline(t)) })
		},
		func(t *rapid.T) { observeAllocation(t, e, w) },
		func(t *rapid.T) { resize(t, e, w) },
		func(t *rapid.T) { nominate(t, e, w) }, func(t *rapid.T) { nominate(t, e, w) },
		func(t *rapid.T) { exchange(t, e, w) },
		func(t *rapid.T) { exchange(t, e, w) },
		func(t *rapid.T) { e.ObservePod(w.PodObservation(t, e.Ledger)) },
		func(t *rapid.T) { e.Unreserve(forgetful(t, w.Placements(t))) },
		func(t *rapid.T) { observeNode(t, e, w) },
		func(t *rapid.T) { ask(t, e, w) },
	}
	if w.Limits {
		steps = append(steps, func(t *rapid.T) { setLimits(t, e, w) })
	}
	switch {
	case w.Devices:
		steps = append(steps, func(t *rapid.T) { e.ObserveDevices(w.Node(t), w.NodeDevices(t)) })
	case w.Calm:
		steps = append(steps, slotActions(e, w)...)
	default:
		steps = append(steps,
			reserve, remove,
			func(t *rapid.T) { e.Confirm(w.Pod(t), w.Node(t)) },
			func(t *rapid.T) { e.BindFailed(w.Pod(t), w.Node(t)) },
			func(t *rapid.T) { w.Pass(t) },
			func(t *rapid.T) { e.ObserveUnbound(w.Pod(t), oneOf(t, "scheduler", schedulers)) },
			func(t *rapid.T) { e.RemovePod(w.Pod(t), w.Version(t)) },
			func(t *rapid.T) { w.Next(oneOf(t, "pod", podNames)) },
			func(t *rapid.T) { e.ObserveNode(w.RepeatedNode(t)) },
		)
	}
	return append(steps, slotActions(e, w)...)
}

// ask asks where a pod fits, and counts the answers.
func ask(t *rapid.T, e *Explorer, w *World) {
	at := w.Placement(t)
	for _, v := range e.AppendFit(nil, &at, nodeNames) {
		e.met[v.Reason]++
	}
	e.Ask(&at, append(nodeNames, "nowhere"), w.Victims(t))
}

// observeNode changes a node or takes it away, which is rare in a calm world.
func observeNode(t *rapid.T, e *Explorer, w *World) {
	switch {
	case !w.Calm && rapid.Bool().Draw(t, "another node"):
		e.ObserveNode(w.NodeObservation(t))
	case !w.Calm || Pick(t, "gone", 12) == 11:
		e.RemoveNode(w.Node(t))
	case Pick(t, "the same", 4) == 3:
		e.ObserveNode(w.RepeatedNode(t))
	default:
		e.ObserveNode(w.LargeNode(t, oneOf(t, "node", nodeNames[:2])))
	}
}

// drawAllocation returns an allocation that exists, or a slot in memory as one, or a pod without any.
func drawAllocation(t *rapid.T, e *Explorer, w *World) ledger.AllocationView {
	allocations, _ := e.Allocations()
	slots, _ := e.Slots()
	for i := range slots {
		if h := &slots[i]; h.InMemory() {
			allocations = append(allocations, ledger.AllocationView{
				Pod: h.Pod, Node: h.Node, Request: h.Request,
				Scheduler: h.Scheduler, Slot: h.Within,
			})
		}
	}
	if len(allocations) == 0 {
		at := w.Placement(t)
		return ledger.AllocationView{Pod: at.Pod, Node: at.Node, Request: at.Request}
	}
	return allocations[Pick(t, "claim", min(len(allocations), 64))]
}

// redeem binds a pod where its allocation is, or changes that bind, most times for what it asked before.
func redeem(t *rapid.T, e *Explorer, w *World, how func(*ledger.Placement, time.Time)) {
	c := drawAllocation(t, e, w)
	at := ledger.Placement{
		Pod: c.Pod, Node: c.Node, Request: c.Request, Scheduler: c.Scheduler, Caller: w.caller(t),
		Devices: w.DevicesOf(t, c.Pod),
	}
	if Pick(t, "other request", 3) == 2 {
		at.Request = w.Request(t, false)
	}
	how(&at, w.Now)
}

// exchange binds a pod, anywhere or where it has something, and changes what is kept for others.
func exchange(t *rapid.T, e *Explorer, w *World) {
	at := w.Placement(t)
	if rapid.Bool().Draw(t, "has something") {
		c := drawAllocation(t, e, w)
		at.Pod, at.Request, at.Devices = c.Pod, c.Request, w.DevicesOf(t, c.Pod)
	}
	var kept []ledger.PodRef
	slots, _ := e.Slots()
	for i := range slots {
		if slots[i].InMemory() && len(kept) < 8 {
			kept = append(kept, slots[i].Pod)
		}
	}
	switch Pick(t, "bind", 6) {
	case 4:
		e.Exchange(w.Exchange(t, kept), w.Now)
	case 5:
		e.PutOff(kept, w.Deadline(t))
	default:
		e.StartBindWith(&at, w.Exchange(t, kept), w.Now)
	}
}

// nominate has a pod be nominated for a node, mostly one of a priority that others make way for.
func nominate(t *rapid.T, e *Explorer, w *World) {
	at := w.Placement(t)
	at.Slots = nil
	if Pick(t, "high", 4) > 0 {
		at.Priority = 3
	}
	if Pick(t, "no more", 8) == 7 {
		at.Node = ""
	}
	e.Nominate(&at, w.Now.Add(time.Duration(1+Pick(t, "for", 60))*time.Second))
}

// renew reserves again what is reserved, sometimes for longer or for another request.
func renew(t *rapid.T, e *Explorer, w *World) {
	plan := w.Plan(t)
	if rapid.Bool().Draw(t, "nothing else") {
		plan.Slots = nil
	}
	for range 1 + Pick(t, "renewals", 2) {
		c := drawAllocation(t, e, w)
		at := ledger.Placement{
			Pod: c.Pod, Node: c.Node, Request: c.Request, Caller: w.caller(t),
			Devices: w.DevicesOf(t, c.Pod),
		}
		if Pick(t, "other request", 3) == 2 {
			at.Request = w.Request(t, false)
		}
		if c.Pod.UID == "" && rapid.Bool().Draw(t, "exists by now") {
			at.Pod = w.ExistingPodNamed(t, c.Pod.Name)
		}
		plan.Slots = append(plan.Slots, at.Slot(w.Deadline(t)))
	}
	e.Reserve(plan, w.Now)
}

// removeAllocation ends the pod of an allocation; its name may come back.
func removeAllocation(t *rapid.T, e *Explorer, w *World) {
	c := drawAllocation(t, e, w)
	if c.Pod.UID == "" {
		c.Pod = w.ExistingPodNamed(t, c.Pod.Name)
	}
	e.RemovePod(c.Pod, w.Version(t))
	if rapid.Bool().Draw(t, "comes back") {
		w.Next(c.Pod.Name)
	}
}

func settle(t *rapid.T, e *Explorer, w *World, how func(ledger.PodRef, string)) {
	c := drawAllocation(t, e, w)
	how(c.Pod, c.Node)
}

// resize has a pod ask for another request where it is, or ends that.
func resize(t *rapid.T, e *Explorer, w *World) {
	c := drawAllocation(t, e, w)
	if Pick(t, "ends", 4) == 3 {
		e.SettleResize(c.Pod, w.Version(t))
		return
	}
	e.Resize(c.Pod, w.Request(t, false), w.Version(t), w.Now)
}

// observeAllocation finds a pod bound where its allocation is.
func observeAllocation(t *rapid.T, e *Explorer, w *World) {
	c := drawAllocation(t, e, w)
	o := w.PodObservation(t, e.Ledger)
	o.Node = c.Node
	if rapid.Bool().Draw(t, "same request") {
		o.Request = c.Request
	}
	if c.Pod.UID != "" {
		o.Pod = c.Pod
		o.Devices = w.observedDevices(t, o.Pod, e.Ledger)
	}
	e.ObservePod(o)
}

// forgetful leaves out of some placements what unreserve does not need.
func forgetful(t *rapid.T, placements []ledger.Placement) []ledger.Placement {
	for k := range placements {
		p := &placements[k]
		if rapid.Bool().Draw(t, "no node") {
			p.Node = ""
		}
		if rapid.Bool().Draw(t, "no scheduler") {
			p.Scheduler = ""
		}
		p.Request = nil
	}
	return placements
}
