package decide

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/gangs"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// A scheduler may leave the rest of a gang alone for long after some of it were bound: it has given these pods up, or
// in its copy of the cluster other pods take the nodes with their slots, so that it never tries them. The server then
// binds the rest itself, each pod where its slot is. It does so by the rules of a Binding that is redirected: where it
// can judge the node as a scheduler would, and the policy lets it. Other members, and those that somebody has reserved
// capacity for in memory, are nominated for their nodes.

const (
	// finishAfter is for how long no bind of a member may have started before the server binds the rest. kube-scheduler
	// leaves a pod whose bind was refused alone for ten seconds at most. It is also the first pause after a bind of the
	// server's own that failed; these grow up to mostFinishPause.
	finishAfter     = 10 * time.Second
	mostFinishPause = 5 * time.Minute
	// So many members of a gang are judged, and so many are nominated, at a time.
	mostJudged = 16
	// So many binds of the server's own are under way, of all gangs. Schedulers have four times as many turns at the API
	// server.
	mostFinishing = 16
)

// finish binds members that capacity is kept for, where no bind of a member has started for a while. It goes on with
// others as long as they are bound. g.mu is held.
func (g *gangKeeper) finish(s *startingGang, kept []*cluster.Pod, now time.Time) {
	due := now.Sub(s.moved) >= finishAfter
	binds := (s.finishing || due && !now.Before(s.again)) && g.arbiter.mayBindForGang(s.Key.Namespace)
	if s.finishing = false; !due && !binds {
		return
	}
	judged, reminded, scheduler := 0, 0, g.schedulerOf(s.Key)
	for _, member := range kept { // in another order each time
		own := s.kept[member.Ref] != nil
		home, ok := g.o.Ledger.HomeOf(member.Ref)
		mayBind, isFit := own && g.leaves(&s.Gang, member, scheduler) == "", false
		if mayBind && binds && judged < mostJudged {
			judged++
			isFit = g.mayBeOn(member, home)
		} else if mayBind {
			continue
		}
		switch {
		case !ok || own && !now.Before(s.deadline):
		case isFit:
			if g.arbiter.bindForGang(s.Key, member, home, s.caller) {
				s.moved = now
			}
		case mayBind && g.move(s, member, home): // it is bound the next time
		case due && reminded < mostJudged:
			reminded++
			g.o.Waiting.Remind(member, home)
			s.moved = now
		}
	}
}

// move keeps capacity for a member elsewhere than on a node that will not do any more. It reports false where there is
// none. g.mu is held.
func (g *gangKeeper) move(s *startingGang, member *cluster.Pod, from string) bool {
	if g.searches == 0 {
		return false
	}
	g.searches--
	choices, _ := g.choices([]*cluster.Pod{member}, s.caller, nil, true)
	choices[0].Nodes = slices.DeleteFunc(choices[0].Nodes, func(node string) bool { return node == from })
	return g.o.Ledger.Exchange(&ledger.Exchange{GiveUp: []ledger.PodRef{member.Ref}, Keep: choices}) == nil
}

// leaves returns why the server does not itself bind a member of a gang that has started, "" where it may, on a node
// that will do. scheduler is that of the bound members, as far as the watch has brought them. The server binds no
// member of a gang of which nobody has read how many it needs.
func (g *gangKeeper) leaves(gang *gangs.Gang, member *cluster.Pod, scheduler string) (why string) {
	switch {
	case gang.Unread:
		return "how many pods the gang needs is not known"
	case member.Scheduler != scheduler:
		return "it is for another scheduler than those that are bound"
	case !member.Constraints.NodesDecide():
		return "it has " + member.Constraints.Others() + ", by which only a scheduler can judge nodes"
	case !g.mayRedirect(member):
		return "redirecting is off for it (gangs.redirect, or refusals are only warnings)"
	default:
		return ""
	}
}

// schedulerOf returns the scheduler of a gang's members that are bound, "" where the watch has brought none yet.
func (g *gangKeeper) schedulerOf(key kinds.Key) string {
	if size := g.o.Pods.GangSize(key); size.Bound+size.Finished > 0 {
		return size.Scheduler
	}
	return ""
}

// whyLeft says which member, if any, the server leaves to its scheduler, of a gang that has started, and why.
func (g *gangKeeper) whyLeft(gang *gangs.Gang, m *headcount) string {
	scheduler := g.schedulerOf(gang.Key)
	if scheduler == "" {
		return ""
	}
	left := slices.DeleteFunc(slices.Concat(m.kept, m.unplaced),
		func(p *cluster.Pod) bool { return g.leaves(gang, p, scheduler) == "" })
	if len(left) == 0 {
		return ""
	}
	first := slices.MinFunc(left, func(a, b *cluster.Pod) int { return cmp.Compare(a.Ref.Name, b.Ref.Name) })
	return fmt.Sprintf("the server leaves pod %s to its scheduler: %s", first.Ref, g.leaves(gang, first, scheduler))
}

// resumeShort binds a member of a gang that is short where there is capacity for the rest of the gang by now. As with
// each member that is bound, capacity is kept for the others in the same step. g.mu is held.
func (g *gangKeeper) resumeShort(s *startingGang, rest []*cluster.Pod, now time.Time) {
	current := g.moment()
	if now.Sub(s.moved) < finishAfter || now.Before(s.again) || s.looked == current || g.searches == 0 {
		return
	}
	mine, scheduler := map[ledger.PodRef]*cluster.Pod{}, g.schedulerOf(s.Key)
	for _, member := range rest {
		if g.leaves(&s.Gang, member, scheduler) == "" {
			mine[member.Ref] = member
		}
	}
	if len(mine) == 0 || !g.arbiter.mayBindForGang(s.Key.Namespace) || !g.mayLook(rest) {
		return
	}
	g.searches--
	s.looked = current
	places := g.placesFor(rest, s.caller)
	if len(places) == 0 && len(s.closed) > 0 { // by now these nodes may be as good as others
		s.closed, s.looked = nil, moment{}
	}
	for _, slot := range places {
		member := mine[slot.Pod]
		if member != nil && g.mayBeOn(member, slot.Node) && g.arbiter.bindForGang(s.Key, member, slot.Node, s.caller) {
			s.moved = now
			s.looked, g.nextSearch = moment{}, time.Time{} // capacity was found, and the bind looks for it once more
			return
		}
	}
}

// placesFor returns slots for members on nodes that have capacity for all of them together, nil where there is none.
func (g *gangKeeper) placesFor(members []*cluster.Pod, caller string) (slots []ledger.Slot) {
	choices, _ := g.choices(members, caller, nil, true)
	g.o.Ledger.Try(func(t *ledger.Trial) {
		if t.Exchange(&ledger.Exchange{Keep: choices}) != nil {
			choices = nil
		}
	})
	for _, choice := range choices {
		slots = append(slots, choice.Slots...)
	}
	return slots
}

// mayBindForGang reports whether there is a place for a bind of the server's own. A namespace may have as many as are
// still free.
func (a *Arbiter) mayBindForGang(namespace string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.finishingIn[namespace] < mostFinishing-a.finishing
}

// bindForGang starts to bind a member of a gang on the server's own account. It reports false where it does not.
func (a *Arbiter) bindForGang(gang kinds.Key, member *cluster.Pod, node, caller string) bool {
	if !a.mayBindForGang(gang.Namespace) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	key := flightKey{member.Ref, node}
	if a.stopped || a.flights[key] != nil || len(a.flights) >= a.o.MaxInFlight {
		return false
	}
	a.countFinishing(gang.Namespace, 1)
	f := a.start(a.ctx, &flight{flightKey: key, caller: caller, chosen: true})
	a.wg.Go(func() {
		<-f.done
		a.mu.Lock()
		a.countFinishing(gang.Namespace, -1)
		a.mu.Unlock()
		a.boundForGang(gang, f)
	})
	return true
}

// countFinishing counts binds of the server's own. mu is held.
func (a *Arbiter) countFinishing(namespace string, by int) {
	a.finishing += by
	if a.finishingIn[namespace] += by; a.finishingIn[namespace] == 0 {
		delete(a.finishingIn, namespace)
	}
}

// boundForGang reports how a bind of the server's own has ended, unless the gang's scheduler was faster.
func (a *Arbiter) boundForGang(gang kinds.Key, f *flight) {
	var e *gates.Error
	failed := errors.As(f.err, &e) && (e.Outcome == gates.Refused || e.Outcome == gates.Failed)
	switch {
	case f.err == nil && f.posted:
		a.o.RedirectEvents.Tell(informer.PodReference(f.pod.Namespace, f.pod.Name, f.pod.UID), v1.EventTypeNormal,
			"BoundForItsGang", "Bind", fmt.Sprintf("GlobalReserve has bound it to node %q itself: others of its gang are "+
				"bound, and its scheduler had left the rest for %v", f.node, finishAfter))
	case failed:
		a.log(f).WithError(f.err).WithField("gang", gang.String()).
			Info("a pod of a gang of which others are bound was not bound; it is tried again after a pause")
	default:
		return
	}
	a.o.Metrics.ObserveGangBinding(failed)
	a.gangs.mu.Lock()
	defer a.gangs.mu.Unlock()
	s, now := a.gangs.of[gang], a.o.Ledger.Clock.Now()
	if s == nil {
		return
	}
	if s.finishing = !failed; failed && !now.Before(s.again) { // others that were tried with it fail as well
		s.backoff = min(max(2*s.backoff, finishAfter), mostFinishPause)
		s.again = now.Add(s.backoff)
	}
}
