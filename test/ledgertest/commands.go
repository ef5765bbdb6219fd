package ledgertest

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// transcript is the state between the steps of one.
type transcript struct {
	ledger   *ledger.Ledger
	check    Check
	now      time.Duration // since the beginning
	told     uint64        // the revision up to which events were written
	commands map[string]func(command *words, pods []*words) []string
	limited  [2]map[string]*ledger.Limits // by kind
}

func newTranscript(check Check) *transcript {
	r := &transcript{check: check, ledger: ledger.New(ledger.Options{TombstoneCount: 4})}
	r.commands = map[string]func(*words, []*words) []string{
		"node":               r.node,
		"remove-node":        r.removeNode,
		"reserve":            r.reserve,
		"unreserve":          r.unreserve,
		"start-bind":         r.startBind,
		"confirm":            r.confirm,
		"bind-failed":        r.bindFailed,
		"resize":             r.resize,
		"settle-resize":      r.settleResize,
		"observe":            r.observe,
		"observe-unbound":    r.observeUnbound,
		"remove-pod":         r.removePod,
		"time":               r.time,
		"fit":                r.fit,
		"show":               r.show,
		"place-slots":        r.placeSlots,
		"observe-slot":       r.observeSlot,
		"slot-deadline":      r.slotDeadline,
		"release-slots":      r.releaseSlots,
		"remove-pod-holding": r.removePodHolding,
		"limits":             r.limits,
		"budgets":            r.showBudgets,

		"devices":             r.devices,
		"start-bind-with":     r.startBindWith,
		"exchange":            r.exchange,
		"change-bind":         r.changeBind,
		"bind-failed-keeping": r.bindFailedKeeping,
		"put-off":             r.putOff,
		"nominate":            r.nominate,
	}
	return r
}

// at returns a moment as the ledger knows it.
func at(since time.Duration) time.Time { return time.Unix(0, 0).Add(since) }

// step runs one command and returns its answer and the events it caused.
func (r *transcript) step(lines []string) (string, error) {
	command := parseWords(lines[0])
	run := r.commands[command.word(0)]
	if run == nil {
		return "", fmt.Errorf("%q is no command", command.word(0))
	}
	var pods []*words
	for _, line := range lines[1:] {
		pods = append(pods, parseWords(line))
	}
	answer := run(command, pods)
	for i, w := range append([]*words{command}, pods...) {
		if err := w.check(); err != nil {
			return "", fmt.Errorf("%s: %w", lines[i], err)
		}
	}
	if err := r.check(r.ledger); err != nil {
		return "", fmt.Errorf("%s: %w", lines[0], err)
	}
	events, _ := r.ledger.EventsSince(nil, r.told, 1000)
	for i := range events {
		answer = append(answer, r.event(&events[i]))
	}
	r.told = r.ledger.Revision()
	return strings.Join(answer, "\n"), nil
}

// node name cpu=4000 memory=8 pods=10 uid=u dra=example.com/gpu cordoned
func (r *transcript) node(c *words, _ []*words) []string {
	amounts, _ := c.amounts(r.ledger.Table(), true)
	changed := r.ledger.ObserveNode(ledger.NodeObservation{
		Name: c.word(1), UID: types.UID(c.value("uid")), Allocatable: amounts, Unschedulable: c.flag("cordoned"),
		DRA: c.columns(r.ledger.Table(), "dra"),
	})
	return yesNo(changed, "changed", "nothing new")
}

// remove-node name
func (r *transcript) removeNode(c *words, _ []*words) []string {
	return yesNo(r.ledger.RemoveNode(c.word(1)), "removed", "no such node")
}

// reserve mode=Partial ttl=10s without=a@1,b@1 dry-run, then a line per pod. Without
// a ttl the slots do not expire. A dry run is tried only, without some pods.
func (r *transcript) reserve(c *words, pods []*words) []string {
	plan := ledger.Plan{Mode: ledger.Mode(c.value("mode"))}
	deadline := c.deadline(r)
	for _, p := range pods {
		placement := p.placement(r.ledger.Table(), 0)
		plan.Slots = append(plan.Slots, placement.Slot(deadline))
	}
	return r.decide(c, plan)
}

// decide reserves, or tries to.
func (r *transcript) decide(c *words, plan ledger.Plan) []string {
	without := c.uids("without")
	if !c.flag("dry-run") {
		return r.result(&plan, r.ledger.Reserve(plan, at(r.now)))
	}
	var result ledger.Result
	r.ledger.Try(func(t *ledger.Trial) {
		t.Remove(without...)
		result = t.Reserve(plan)
	})
	return r.result(&plan, result)
}

// unreserve, then a line per pod: the pod, its node if to be checked, by=scheduler caller=who
func (r *transcript) unreserve(_ *words, pods []*words) []string {
	var placements []ledger.Placement
	for _, p := range pods {
		placements = append(placements, ledger.Placement{
			Pod: podRef(p.word(0)), Node: p.word(1), Scheduler: p.value("by"),
			Caller: p.value("caller"),
		})
	}
	return r.result(nil, r.ledger.Unreserve(placements))
}

// start-bind pod node cpu=1000 by=scheduler priority=1 slots=r/x,r/y claims=c1:example.com/gpu preempt
func (r *transcript) startBind(c *words, _ []*words) []string {
	p := c.placement(r.ledger.Table(), 1)
	p.Preempt = c.flag("preempt")
	return r.granted(r.ledger.StartBind(&p, at(r.now)))
}

func (r *transcript) granted(grant ledger.Grant, rejection *ledger.Rejection) []string {
	if rejection != nil {
		return []string{"refused: " + r.rejection(rejection)}
	}
	text := "granted, was " + grant.Before.String()
	return []string{text + with(", uses ", grant.Slot) + givenText(grant.Devices)}
}

// confirm pod node
func (r *transcript) confirm(c *words, _ []*words) []string {
	return yesNo(r.ledger.Confirm(podRef(c.word(1)), c.word(2)), "confirmed", "no such allocation")
}

// bind-failed pod node
func (r *transcript) bindFailed(c *words, _ []*words) []string {
	return yesNo(r.ledger.BindFailed(podRef(c.word(1)), c.word(2)), "given back", "no such bind")
}

// resize pod cpu=1000 version=3 dry-run
func (r *transcript) resize(c *words, _ []*words) []string {
	pod, asked, version := podRef(c.word(1)), c.request(r.ledger.Table(), false), uint64(c.number("version"))
	found, rejection := r.ledger.FitResize(pod, asked)
	if !c.flag("dry-run") {
		found, rejection = r.ledger.Resize(pod, asked, version, at(r.now))
	}
	if rejection != nil {
		return []string{"refused: " + r.rejection(rejection)}
	}
	return yesNo(found, "granted", "no such allocation")
}

// settle-resize pod version=3
func (r *transcript) settleResize(c *words, _ []*words) []string {
	return yesNo(r.ledger.SettleResize(podRef(c.word(1)), uint64(c.number("version"))), "settled", "no such resize")
}

// observe pod node cpu=1000 version=3 by=scheduler slot=r/x slot-uid=1
func (r *transcript) observe(c *words, _ []*words) []string {
	p := c.placement(r.ledger.Table(), 1)
	outcome := r.ledger.ObservePod(ledger.PodObservation{
		Pod: p.Pod, Node: p.Node, Request: c.request(r.ledger.Table(), true), Scheduler: p.Scheduler,
		Priority: p.Priority, ResourceVersion: uint64(c.number("version")), Slot: slotRef(c.value("slot")),
		SlotUID: types.UID(c.value("slot-uid")), Devices: p.Devices,
	})
	names := map[ledger.Observed]string{
		ledger.ObservedNothing: "nothing new", ledger.ObservedNew: "new", ledger.ObservedConfirmed: "confirmed",
		ledger.ObservedMoved: "moved", ledger.ObservedResized: "resized",
	}
	return []string{names[outcome]}
}

// observe-unbound pod by=scheduler
func (r *transcript) observeUnbound(c *words, _ []*words) []string {
	if n := r.ledger.ObserveUnbound(podRef(c.word(1)), c.value("by")); n > 0 {
		return []string{fmt.Sprintf("%d gave way", n)}
	}
	return nil
}

// remove-pod pod version=3
func (r *transcript) removePod(c *words, _ []*words) []string {
	removed := r.ledger.RemovePod(podRef(c.word(1)), uint64(c.number("version")))
	return yesNo(removed, "removed", "had no allocation")
}

// time 10s: lets time pass and reservations expire
func (r *transcript) time(c *words, _ []*words) []string {
	passed, err := time.ParseDuration(c.word(1))
	if err != nil {
		c.fail("want a duration like 10s")
	}
	r.now += passed
	return []string{fmt.Sprintf("it is %s, expired %d", r.now, r.ledger.Expire(at(r.now)))}
}

// fit pod node cpu=1000 victims=a@1 slots=r/x preempt: whether the pod fits, once the
// victims are gone, or once it has preempted
func (r *transcript) fit(c *words, _ []*words) []string {
	p := c.placement(r.ledger.Table(), 1)
	p.Preempt = c.flag("preempt")
	v := r.ledger.AppendFit(nil, &p, []string{p.Node})[0]
	if victims := c.uids("victims"); victims != nil {
		r.ledger.Try(func(t *ledger.Trial) {
			t.Remove(victims...)
			v = t.AppendFit(nil, &p, []string{p.Node})[0]
		})
	}
	if v.Reason == ledger.InsufficientResource && !v.Unlisted {
		return []string{fmt.Sprintf("%s of %s", v.Reason, r.ledger.Table().Name(v.Column))}
	}
	return []string{v.Reason.String()}
}

// show: all nodes, slots and allocations
func (r *transcript) show(*words, []*words) []string {
	s := r.ledger.Snapshot()
	var out []string
	for _, n := range s.Nodes {
		line := "node " + n.Name
		if !n.Exists {
			line += " (does not exist)"
		}
		if n.Unschedulable {
			line += " (cordoned)"
		}
		if n.Overcommitted() {
			line += " (overcommitted)"
		}
		for _, a := range n.Amounts {
			line += fmt.Sprintf("; %s %d: %d bound, %d reserved, %d free", a.Resource, a.Allocatable, a.Bound, a.Reserved,
				a.Free)
		}
		out = append(out, line)
		for k := range n.Devices {
			out = append(out, deviceText(n.Name, &n.Devices[k]))
		}
	}
	for i := range s.Slots {
		out = append(out, "slot "+r.slotView(&s.Slots[i]))
	}
	for _, c := range s.Allocations {
		out = append(out, "allocation "+r.allocation(c.Pod, c.Node, c.State, c.Scheduler, c.Slot, c.Given))
	}
	return append(out, fmt.Sprintf("%d nodes, %d overcommitted", r.ledger.Stats().Nodes,
		r.ledger.Stats().OvercommittedNodes))
}

func yesNo(yes bool, ifYes, ifNo string) []string {
	if yes {
		return []string{ifYes}
	}
	return []string{ifNo}
}

func (r *transcript) result(plan *ledger.Plan, result ledger.Result) []string {
	out := []string{fmt.Sprintf("granted %d", result.Granted)}
	for k := range result.Granted {
		if existing, ok := result.Existing[k]; ok {
			out = append(out, fmt.Sprintf("%s is there as %s", refText(plan.Slots[k].Ref), refText(existing)))
		}
	}
	for i := range result.Rejections {
		out = append(out, "refused: "+r.rejection(&result.Rejections[i]))
	}
	return out
}

// rejection is the message, and the numbers behind it.
func (r *transcript) rejection(j *ledger.Rejection) string {
	return fmt.Sprintf("%s: %s", j.Reason, j.Message())
}

func (r *transcript) allocation(pod ledger.PodRef, node string, state ledger.State, by string, slot ledger.SlotRef,
	given []ledger.GivenDevices,
) string {
	text := fmt.Sprintf("%s on %s %s", podText(pod), node, state)
	if by != "" {
		text += " by " + by
	}
	return text + with(" using ", slot) + givenText(given)
}

func (r *transcript) event(e *ledger.Event) string {
	text := fmt.Sprintf("r%d %s ", e.Revision, e.Type)
	switch {
	case e.Policy != "":
		return text + r.slotEvent(e)
	case e.Pod.Name == "":
		return text + e.Node
	}
	text += r.allocation(e.Pod, e.Node, e.State, e.Scheduler, e.Slot, e.Given)
	if e.MovedFrom != "" {
		text += " from " + e.MovedFrom
	}
	return text
}
