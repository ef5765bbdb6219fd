package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/globalreserve/globalreserve/pkg/gangs"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

const (
	// lookedAt is how many of the gangs that wait are looked at before another one starts.
	lookedAt = 4
	// patience is how long a gang counts as waiting after it was last refused: its scheduler may have given up. A gang
	// that could start comes first for as long, even if its scheduler does not try.
	patience = 30 * time.Second
	// passLife is how long a gang that filter let pass is bound even if another gang could start since. Its scheduler has
	// placed all of it. If only some binds of a pod group are refused, a kube-scheduler can go on with the rest, and keep
	// their places for minutes.
	passLife = 5 * time.Second
	// behindLife is how long filter goes by its last answer to whether another gang comes first.
	behindLife = time.Second
)

// compare puts the gang that comes first before others: the highest priority, then the one that has waited longest.
func (s *startingGang) compare(o *startingGang) int {
	return cmp.Or(cmp.Compare(o.priority, s.priority), s.since.Compare(o.since),
		cmp.Compare(s.Key.String(), o.Key.String()))
}

// comesLater refuses a gang that would start in the place of a waiting gang that comes before it, unless filter has let
// it pass. g.mu is held.
func (g *gangKeeper) comesLater(pod *cluster.Pod, gang *gangs.Gang, p *ledger.Placement, rest []*cluster.Pod) error {
	if s := g.of[gang.Key]; s != nil && s.hasPassed(g.o.Ledger.Clock.Now()) {
		return nil
	}
	if why := g.whoIsFirst(pod, gang, p, rest); why != "" {
		return gangError(p, ledger.GangWaits, why)
	}
	return nil
}

// whoIsFirst says which waiting gang comes before one that would start now, "" where none does. A waiting gang comes
// first if it has a higher priority or was refused earlier, if it would fit now, and if it would not fit any more
// beside the other. p has no node where any node will do. g.mu is held.
func (g *gangKeeper) whoIsFirst(pod *cluster.Pod, gang *gangs.Gang, p *ledger.Placement,
	rest []*cluster.Pod,
) (why string) {
	now := g.o.Ledger.Clock.Now()
	mine := g.of[gang.Key]
	if mine == nil || mine.since.IsZero() {
		mine = &startingGang{Gang: *gang, since: now}
	}
	mine.priority = pod.Priority
	var others []*startingGang
	for _, s := range g.of {
		if s != mine && !s.asked.IsZero() && now.Sub(s.asked) < patience && s.half.IsZero() && s.compare(mine) < 0 {
			others = append(others, s)
		}
	}
	if len(others) == 0 {
		return ""
	}
	slices.SortFunc(others, (*startingGang).compare)
	var first []string
	if p.Node != "" {
		first = []string{p.Node}
	}
	own, _ := g.choices(append([]*cluster.Pod{pod}, rest...), p.Caller, first, true)
	for _, s := range others[:min(len(others), lookedAt)] {
		if !g.takesFrom(s, own) {
			continue
		}
		if s.called.IsZero() {
			s.called = now
			g.wake(s)
		}
		if now.Sub(s.called) > patience {
			s.since, s.called = now, time.Time{} // it had its turn
			continue
		}
		other := s.Key.String()
		if s.Key.Namespace != gang.Key.Namespace {
			other = "a gang of another namespace" // the reader of the refusal may not see it
		}
		return fmt.Sprintf("%s could start now and comes first; it has been waiting since %s",
			other, g.o.Ledger.Clock.WallAt(s.since).UTC().Format(time.RFC3339))
	}
	return ""
}

// takesFrom reports whether a gang that waits would fit now, and not beside some slots. g.mu is held.
func (g *gangKeeper) takesFrom(s *startingGang, own []ledger.Choice) (takes bool) {
	m := g.headcount(&s.Gang, ledger.PodRef{})
	members := m.rest()
	if m.short(m.kept, members) > 0 || len(members) == 0 || g.isDiverse(members) || !g.hasRoom(members, s.caller) {
		return false
	}
	theirs, _ := g.choices(members, s.caller, nil, true)
	g.o.Ledger.Try(func(t *ledger.Trial) {
		takes = t.Exchange(&ledger.Exchange{Keep: theirs}) == nil && t.Exchange(&ledger.Exchange{Keep: own}) != nil
	})
	return takes
}

// hasPassed reports whether filter has let a gang pass a moment ago.
func (s *startingGang) hasPassed(now time.Time) bool {
	return !s.judged.IsZero() && s.behind == "" && now.Sub(s.judged) < passLife
}

// pass refuses a gang that would fit where another gang comes first. The answer is the same for all its members. g.mu
// is held.
func (g *gangKeeper) pass(pod *cluster.Pod, gang *gangs.Gang, p *ledger.Placement, rest []*cluster.Pod) error {
	s := g.state(pod, gang)
	now := g.o.Ledger.Clock.Now()
	if s.hasPassed(now) {
		return nil
	}
	if s.behind == "" || now.Sub(s.judged) >= behindLife {
		s.behind, s.judged = g.whoIsFirst(pod, gang, p, rest), now
	}
	if s.behind != "" {
		return gangError(p, ledger.GangWaits, s.behind)
	}
	return nil
}

// advise says why all nodes are to be refused to a pod for its gang's sake, or Fits. It looks at the capacity of
// nodes one by one and so may say Fits where the bind will not.
func (g *gangKeeper) advise(pod *cluster.Pod) ledger.Reason {
	gang, ok := g.o.Gangs.Of(pod)
	if !ok {
		return ledger.Fits
	}
	if state, kept := g.o.Ledger.Standing(pod.Ref); kept || state != ledger.NoAllocation {
		return ledger.Fits
	}
	m := g.headcount(&gang, pod.Ref)
	if m.isStarted() {
		return ledger.Fits
	}
	p := ledger.Placement{Pod: pod.Ref, Caller: pod.Caller}
	err := m.incomplete(pod, &p)
	var rest []*cluster.Pod
	if err == nil {
		rest = m.rest(pod)
	}
	if len(rest) > 0 && !g.hasRoom(append([]*cluster.Pod{pod}, rest...), pod.Caller) {
		unplaced := gangError(&p, ledger.GangUnplaced, "")
		unplaced.Rejection.Requested = int64(len(rest))
		err = unplaced
	}
	if err == nil && (len(rest) == 0 || g.isDiverse(append([]*cluster.Pod{pod}, rest...))) {
		return ledger.Fits // the bind finds out whether others come first: that takes long, or this is no more than one pod
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.of[gang.Key]; s != nil && !s.half.IsZero() {
		return ledger.Fits // it has started meanwhile
	}
	if err == nil {
		err = g.pass(pod, &gang, &p, rest)
	}
	if err == nil {
		return ledger.Fits
	}
	_ = g.refused(pod, &gang, err)
	g.of[gang.Key].waiting[pod.Ref.UID] = pod
	return reasonOf(err)
}

// bindsAlone reports whether nothing has to be kept for others when a pod is bound. Where something has to be kept, the
// bind ends no preemptible slots: they would be gone even if there is no capacity for the rest.
func (g *gangKeeper) bindsAlone(pod *cluster.Pod) bool {
	gang, ok := g.o.Gangs.Of(pod)
	if !ok {
		return true
	}
	m := g.headcount(&gang, pod.Ref)
	return m.lacks(pod) <= 0 || len(m.unplaced) == 0
}

// hasRoom reports whether there seems to be capacity for some members together, in slots of reservations and beside
// them. It looks at members that ask for the same together, and leaves out what the others take. Where members ask for
// many different things it returns true, and the bind finds out.
func (g *gangKeeper) hasRoom(members []*cluster.Pod, caller string) bool {
	if g.isDiverse(members) {
		return true
	}
	for _, a := range g.group(members, caller, time.Time{}) {
		suits, room := g.suits(a.pod), int64(0)
		for _, usable := range g.o.Ledger.UsableSlots(&a.placement) {
			switch {
			case !suits(usable.Node):
			case usable.Shared:
				room += int64(len(a.slots)) // how many of them share it is not known
			default:
				room++
			}
		}
		g.o.Ledger.Rooms(&a.placement, func(name string, count int64) bool {
			if suits(name) {
				room += min(count, int64(len(members)))
			}
			return room < int64(len(a.slots))
		})
		if room < int64(len(a.slots)) {
			return false
		}
	}
	return true
}
