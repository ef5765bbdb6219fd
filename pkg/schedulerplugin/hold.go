package schedulerplugin

import (
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
)

// The pauses of a gang that the ledger refused for a reason that Filter cannot see, each twice as long as the one
// before.
const (
	firstGangPause = time.Second
	mostGangPause  = 10 * time.Second
)

// holds keep gangs from being tried, that the ledger refused as a whole. kube-scheduler tries a pod group again at
// once whose trial it took for a success, and the members of other gangs one after another.
type holds struct {
	mu   sync.Mutex // guards what follows
	held map[kinds.Key]*hold
}

// hold is what is remembered of one gang from its first refusal until it has capacity.
type hold struct {
	reason   ledger.Reason
	refusals int // in a row
	since    time.Time
	// over: its members may be tried. turn is the number of the hold, so that an end that comes late ends no other one.
	over bool
	turn int
	// members are those that wait for its end.
	members map[types.UID]*cluster.Pod
}

// gangOf returns the gang that a pod says it is a member of, zero where there is none.
func gangOf(pod *v1.Pod, info *cluster.Pod) kinds.Key {
	switch group := pod.Spec.SchedulingGroup; {
	case info.Gang != nil:
		return info.Gang.Key(pod.Namespace)
	case group != nil && group.PodGroupName != nil:
		return kinds.Key{Kind: "kubernetes", Namespace: pod.Namespace, Name: *group.PodGroupName}
	default:
		return kinds.Key{}
	}
}

// gangPause is how long a gang waits that was refused so many times in a row, of which the last one for a reason.
func gangPause(reason ledger.Reason, refusals int) time.Duration {
	if !reason.OfGang() {
		return pauseAfter(reason, refusals)
	}
	return min(firstGangPause<<min(refusals-1, 10), mostGangPause)
}

// begin holds a gang for the sake of a member that was refused. It returns the hold's number and how long it is to
// last; fresh is false where it is held already.
func (h *holds) begin(gang kinds.Key, pod *cluster.Pod, reason ledger.Reason) (turn int, pause time.Duration,
	fresh bool,
) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.held[gang]
	if g == nil {
		if len(h.held) >= maxAwaiting {
			clear(h.held)
		}
		g = &hold{over: true, members: map[types.UID]*cluster.Pod{}}
		h.held[gang] = g
	}
	g.members[pod.Ref.UID] = pod
	if !g.over {
		return 0, 0, false
	}
	g.over, g.reason, g.since = false, reason, time.Now()
	g.refusals++
	g.turn++
	return g.turn, gangPause(reason, g.refusals), true
}

// keeps reports whether a pod's gang is held, and why. The pod waits for the end of that. A gang that had too few
// members is held no longer when another one comes.
func (h *holds) keeps(gang kinds.Key, pod *cluster.Pod) (reason ledger.Reason, held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.held[gang]
	if g == nil || g.over || (g.reason == ledger.GangIncomplete && g.members[pod.Ref.UID] == nil) {
		return ledger.Fits, false
	}
	g.members[pod.Ref.UID] = pod
	return g.reason, true
}

// end ends a hold, unless it is over, and returns the members that have waited for that.
func (h *holds) end(gang kinds.Key, turn int) []*cluster.Pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.held[gang]
	if g == nil || g.over || g.turn != turn {
		return nil
	}
	return g.end()
}

// lift ends the hold of a gang, if there is one, whose members are woken otherwise. It does not at first: what is freed
// then is what they had themselves.
func (h *holds) lift(gang kinds.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g := h.held[gang]; g != nil && time.Since(g.since) > firstGangPause {
		g.over = true
	}
}

// forget forgets a gang that has capacity, and returns the members that have waited.
func (h *holds) forget(gang kinds.Key) []*cluster.Pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.held[gang]
	if g == nil {
		return nil
	}
	delete(h.held, gang)
	return g.end()
}

func (g *hold) end() []*cluster.Pod {
	members := slices.Collect(maps.Values(g.members))
	g.over, g.members = true, map[types.UID]*cluster.Pod{}
	return members
}

// gangWaits returns the refusal of a pod whose gang cannot start now, nil for any other. A pod group that
// kube-scheduler places as a whole is checked as a whole, when it is placed.
func (p *Plugin) gangWaits(c *cycle) *fwk.Status {
	if c.gang == (kinds.Key{}) {
		return nil
	}
	if reason, held := p.waker.holds.keeps(c.gang, c.pod); held {
		p.refused(c, reason)
		// its victims would die in vain
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, placement.Refusals[reason].Text)
	}
	if c.group != nil {
		return nil
	}
	if reason := p.server.arbiter.AdviseGang(c.pod); reason != ledger.Fits {
		return refuse(reason)
	}
	return nil
}

// gangRefused holds a pod's gang if that was refused at a revision, and not the pod alone.
func (p *Plugin) gangRefused(c *cycle, reason ledger.Reason, revision uint64) bool {
	ofGang := c.gang != (kinds.Key{}) && (reason.OfGang() || c.group.isRefused())
	if ofGang {
		p.waker.holdGang(c.gang, c.pod, reason, max(c.revision, revision))
	}
	return ofGang
}

// holdGang holds a gang for the sake of a member that was refused at a revision, for a pause, or until capacity is
// freed that one of its members fits.
func (w *waker) holdGang(gang kinds.Key, pod *cluster.Pod, reason ledger.Reason, revision uint64) {
	turn, pause, fresh := w.holds.begin(gang, pod, reason)
	w.waiting.Await(pod, revision, nil, reason.OfLimit())
	w.mu.Lock()
	defer w.mu.Unlock()
	if !fresh || w.ctx.Err() != nil {
		return
	}
	w.done.Go(func() {
		if informer.Pause(w.ctx, pause) {
			w.wakeAll(w.holds.end(gang, turn))
		}
	})
}

// gangSettled wakes the members of a gang that wait for it: one is bound.
func (w *waker) gangSettled(gang kinds.Key) {
	if gang != (kinds.Key{}) {
		w.wakeAll(w.holds.forget(gang))
	}
}

// tryAgain wakes a pod after a pause, if it is not bound by then.
func (w *waker) tryAgain(pod *cluster.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeAfter(pod, firstGangPause)
}

func (w *waker) wakeAll(pods []*cluster.Pod) {
	for _, pod := range pods {
		w.waiting.Wake(pod)
	}
}

// woken lifts the hold of a woken pod's gang, so that the pod is not held for its gang's sake.
func (w *waker) woken(pod *v1.Pod) {
	if info, err := w.server.question.Reader.NewPod(pod); err == nil {
		w.holds.lift(gangOf(pod, info))
	}
}
