package decide

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/gangs"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// The pauses between wake-ups of a gang's pods that came to nothing.
const (
	firstGangPause = time.Second
	mostGangPause  = 30 * time.Second
	// mostBehind is the longest pause for a gang that comes after another one. It can start as soon as that one starts
	// elsewhere.
	mostBehind = 5 * time.Second
	// searchesPerWatch is for how many waiting gangs capacity is looked for, at most, each time.
	searchesPerWatch = 32
	// mostUnseen is how many pods are remembered for a gang beyond its members: the watch may not have brought them yet.
	mostUnseen = 16
)

// WatchGangs looks after gangs that are not whole, until ctx ends. It is to be called once.
func (a *Arbiter) WatchGangs(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			a.gangs.watch()
		}
	}
}

// watch looks once after the gangs that are not whole.
func (g *gangKeeper) watch() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.o.Ledger.Ready() != nil {
		return
	}
	for _, key := range g.o.Gangs.Grown() {
		size := g.o.Pods.GangSize(key)
		begun := size.Bound + size.Finished
		gang, ok := g.o.Gangs.Get(key)
		if ok && gang.Problem == "" && (begun < gang.Former || gang.Minimum <= begun) {
			g.o.Gangs.Settle(key)
		}
	}
	g.searches = searchesPerWatch
	for _, s := range g.inTurn() {
		gang, ok := g.o.Gangs.Get(s.Key)
		switch {
		case !ok || gang.Missing && !s.half.IsZero():
			g.forget(s)
			continue
		case s.isStartedWithout(&gang):
		case gang.Problem == "" || s.half.IsZero():
			s.Gang = gang
		}
		g.look(s)
	}
}

// inTurn returns the gangs that are not whole, one of each namespace before the next one of any: what watch may do at a
// time is bounded. The order is another one each time. g.mu is held.
func (g *gangKeeper) inTurn() []*startingGang {
	return informer.InTurn(slices.Collect(maps.Values(g.of)), func(s *startingGang) string { return s.Key.Namespace })
}

// look brings what is remembered of a gang up to date. g.mu is held.
func (g *gangKeeper) look(s *startingGang) {
	m := g.headcount(&s.Gang, ledger.PodRef{})
	g.granted(s, m.short() <= 0)
	g.keepOnly(s, &m)
	now := g.o.Ledger.Clock.Now()
	missing := m.lacks()
	g.giveUp(s, -missing)
	for _, member := range m.needless() {
		if s.kept[member.Ref] != nil {
			delete(s.kept, member.Ref)
			g.end([]ledger.PodRef{member.Ref})
		}
	}
	if m.isStarted() {
		g.wake(s) // members that were refused a moment before it started
		g.progress(s, &m, now)
		g.finish(s, m.kept, now)
	}
	switch {
	case !m.isStarted() && now.Before(s.deadline) && g.hasStarted(s.last):
	case s.Problem == "" && m.isBound(), !m.isStarted() && len(m.kept)+len(m.unplaced) == 0:
		g.forget(s)
	case !m.isStarted():
		if (s.firstBind != ledger.PodRef{}) {
			g.failed(s)
		}
		g.giveUp(s, len(s.kept)) // the bind that they were made with has failed
		s.half, s.short, s.closed = time.Time{}, false, nil
		failed := s.failures > 0 && now.Sub(s.trial) < undoneFor
		if now.Sub(s.asked) > 2*patience && len(s.waiting) == 0 && !s.hasPassed(now) && !failed {
			delete(g.of, s.Key)
			return
		}
		g.wakeIfRoom(s, &m, now)
	case missing > 0 && now.Before(s.deadline):
		if rest := m.rest(); g.searches > 0 && len(rest) > 0 && g.mayLook(rest) {
			g.searches--
			g.topUp(s, rest)
		}
	case len(s.kept) == 0 && missing > 0 && s.Problem == "":
		g.fallShort(s, missing)
		g.resumeShort(s, m.rest(), now)
	}
}

// isBound reports whether as many members as the gang needs are bound for certain.
func (m *headcount) isBound() bool {
	return m.short() <= 0 && m.bound-m.binding >= m.gang.Minimum && (m.tasks == nil || m.binding == 0)
}

// progress takes note of members that were bound since it was called last: these put off the end of the slots. Slots
// that were made for a gang that was short end when the bind fails that they were made with. g.mu is held.
func (g *gangKeeper) progress(s *startingGang, m *headcount, now time.Time) {
	bound := m.bound - m.binding
	isNew := s.firstBind != ledger.PodRef{}
	seen := bound > s.bound || isNew && g.isBound(s.firstBind)
	switch {
	case seen:
		s.firstBind, s.failures = ledger.PodRef{}, 0
		if now.Before(s.deadline) && !s.half.IsZero() {
			g.putOff(s)
		}
		if isNew && now.Before(s.deadline) {
			s.short = false
			g.outlast(s, m.kept)
		}
	case isNew && (!now.Before(s.deadline) || m.binding == 0 && !g.hasStarted(s.firstBind)):
		g.failed(s)
	}
	if bound != s.bound {
		s.bound, s.again, s.backoff = bound, time.Time{}, 0
	}
}

// hasStarted reports whether the bind of a pod has started, and has not failed.
func (g *gangKeeper) hasStarted(pod ledger.PodRef) bool {
	state, _ := g.o.Ledger.Standing(pod)
	return state != ledger.NoAllocation
}

// isBound reports whether a pod is known to be bound.
func (g *gangKeeper) isBound(ref ledger.PodRef) bool {
	state, _ := g.o.Ledger.Standing(ref)
	pod, ok := g.o.Pods.Pod(ref.Namespace, ref.Name)
	return state == ledger.Bound || ok && pod.Ref.UID == ref.UID && pod.Node != ""
}

// keepOnly goes through the pods that slots were made for. It forgets those that are bound, gone or at their deadline.
// It ends the slots of those that cannot be bound any more: they are being deleted, or are not members of the gang any
// more. It also forgets pods to be woken that are gone. A pod that the watch has not brought yet is not gone, so some
// more than the members may be remembered. g.mu is held.
func (g *gangKeeper) keepOnly(s *startingGang, m *headcount) {
	kept := map[ledger.PodRef]*cluster.Pod{}
	for _, member := range m.kept {
		if s.kept[member.Ref] != nil {
			kept[member.Ref] = member
			delete(s.kept, member.Ref)
		}
	}
	left := make([]ledger.PodRef, 0, len(s.kept))
	for ref := range s.kept {
		left = append(left, ref)
	}
	s.kept = kept
	g.end(left)
	if there := len(m.kept) + len(m.unplaced); len(s.waiting) > 2*there+mostUnseen {
		known := make(map[types.UID]bool, there)
		for _, member := range slices.Concat(m.kept, m.unplaced) {
			known[member.Ref.UID] = true
		}
		maps.DeleteFunc(s.waiting, func(uid types.UID, _ *cluster.Pod) bool { return !known[uid] })
	}
}

// forget ends what is kept for a gang and forgets it. g.mu is held.
func (g *gangKeeper) forget(s *startingGang) {
	g.countHalf(s)
	g.giveUp(s, len(s.kept))
	g.wake(s)
	delete(g.of, s.Key)
}

// unreserve gives back what was reserved for pods. Where a gang that has started counts on that, the capacity is kept
// for the gang at once. If watch did so later, others would take it meanwhile.
func (g *gangKeeper) unreserve(placements []ledger.Placement) ledger.Result {
	var members []kinds.Key
	for i := range placements {
		ref := placements[i].Pod
		if pod, ok := g.o.Pods.Pod(ref.Namespace, ref.Name); ok && pod.Gang != nil {
			members = append(members, pod.Gang.Key(ref.Namespace))
		}
	}
	if len(members) == 0 {
		return g.o.Ledger.Unreserve(placements)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	result := g.o.Ledger.Unreserve(placements)
	slices.SortFunc(members, func(a, b kinds.Key) int { return cmp.Compare(a.String(), b.String()) })
	for _, key := range slices.Compact(members) {
		if s := g.of[key]; s != nil && !s.half.IsZero() {
			g.searches = max(g.searches, 1)
			g.look(s)
		}
	}
	return result
}

// topUp keeps capacity for members in the place of others that are gone, as long as the gang has time left: for all of
// them or none. Where nobody has read how many the gang needs, it may be fewer: as many as there is capacity for. g.mu
// is held.
func (g *gangKeeper) topUp(s *startingGang, rest []*cluster.Pod) {
	for n := len(rest); n > 0; n = min(n, len(rest)) {
		switch {
		case g.keepAll(s, rest[:n]):
			rest = rest[n:]
		case !s.Unread:
			return
		case n > 1:
			n /= 2
		default: // nor is there any for others like it
			none := rest[0].Request
			rest = slices.DeleteFunc(slices.Clone(rest), func(p *cluster.Pod) bool { return p.Request.Equal(none) })
			n = len(rest)
		}
	}
}

// keepAll keeps capacity for all of some members or none. g.mu is held.
func (g *gangKeeper) keepAll(s *startingGang, members []*cluster.Pod) (kept bool) {
	choices, _ := g.choices(members, s.caller, nil, true)
	if g.o.Ledger.Exchange(&ledger.Exchange{Keep: choices}) != nil {
		return false
	}
	for _, member := range members {
		s.kept[member.Ref] = member
	}
	return true
}

// fallShort reports, once, that a gang has started and is not whole, and that nothing is kept for it any more. g.mu is
// held.
func (g *gangKeeper) fallShort(s *startingGang, missing int) {
	if s.short {
		return
	}
	s.short = true
	if s.half.IsZero() { // it was bound past this server
		s.half = g.o.Ledger.Clock.Now()
	}
	g.o.Log.WithFields(logrus.Fields{
		"gang": s.Key.String(), "minimum": s.Minimum, "missing": missing,
		"since": g.o.Ledger.Clock.WallAt(s.half),
	}).
		Warn("a gang has started and is not whole: the capacity that was kept for the rest of it ended at its deadline, " +
			"or its pods are missing")
	g.tellShort(&s.Gang, missing)
}

// tellShort writes Events on a gang's object, and on the pods that it lacks. Otherwise nobody may see that some of it
// run, and the rest has nothing.
func (g *gangKeeper) tellShort(gang *gangs.Gang, missing int) {
	const reason, action = "GangShort", "KeepWhole"
	note := fmt.Sprintf("%s has started and lacks %d of the %d pods it needs; no capacity is kept for them any more. "+
		"It is again once a scheduler binds one of them", gang.Key, missing, gang.Minimum)
	if gang.Object != nil {
		g.o.GangEvents.Warn(gang.Object, reason, action, note)
	}
	pending, _, _ := g.o.Pods.Gang(gang.Key)
	for _, pod := range pending[:min(len(pending), missing)] {
		g.o.GangEvents.Warn(informer.PodReference(pod.Ref.Namespace, pod.Ref.Name, pod.Ref.UID), reason, action, note)
	}
}

// wakeIfRoom wakes the members of a gang that waits, when there may be capacity for it. g.mu is held.
func (g *gangKeeper) wakeIfRoom(s *startingGang, m *headcount, now time.Time) {
	if len(s.waiting) == 0 || now.Before(s.notBefore) || s.Problem != "" || g.searches == 0 {
		return
	}
	current := g.moment()
	if s.looked == current && s.behind == "" {
		return // one that is behind another waits for time to pass
	}
	rest := m.rest()
	if m.short(m.kept, rest) > 0 {
		return
	}
	g.searches--
	s.looked = current
	if !g.hasRoom(rest, s.caller) {
		return
	}
	most := mostGangPause
	if s.behind != "" {
		most = mostBehind
	}
	s.pause = min(max(2*s.pause, firstGangPause), most)
	s.notBefore = now.Add(s.pause)
	g.wake(s)
}

// wake wakes those members of a gang that were refused for the gang's sake. g.mu is held.
func (g *gangKeeper) wake(s *startingGang) {
	for uid, pod := range s.waiting {
		delete(s.waiting, uid)
		g.o.Waiting.Wake(pod)
	}
}

// takeOver keeps capacity for the rest of gangs that had started before this server decided, or decided again. It is
// called before anything else is decided, and nobody could bind pods since. It returns the number of these gangs.
func (g *gangKeeper) takeOver() (count int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.of {
		s.counted = g.o.Ledger.Clock.Now()
	}
	for _, key := range g.o.Gangs.Grown() { // what they were since is not known
		g.o.Gangs.Settle(key)
	}
	var unread []kinds.Key // last: they may need less than is kept for them
	for key := range g.o.Pods.GangKeys() {
		if gang, ok := g.o.Gangs.Get(key); ok && gang.Unread && g.of[key] == nil {
			unread = append(unread, key)
		} else if ok {
			count += g.takeOverOne(key, &gang)
		}
	}
	for _, key := range unread {
		if gang, ok := g.o.Gangs.Get(key); ok {
			count += g.takeOverOne(key, &gang)
		}
	}
	return count
}

// takeOverOne is takeOver for one gang. g.mu is held.
func (g *gangKeeper) takeOverOne(key kinds.Key, gang *gangs.Gang) (count int) {
	m := g.headcount(gang, ledger.PodRef{})
	if !g.assume(gang, &m) {
		return 0
	}
	if m.gang = *gang; len(gang.Tasks) > 0 {
		m = g.headcount(gang, ledger.PodRef{})
	}
	if s := g.of[key]; s != nil && m.isStarted() {
		g.putOff(s)
	}
	if !m.isStarted() || m.short() <= 0 {
		return 0
	}
	rest := m.rest() // none where those that are there are of other tasks
	if len(m.kept)+len(rest) > 0 && g.resume(key, gang, m.kept, rest) {
		return 1
	}
	return 0
}

// assume fills in how many members a gang needs where that is not known now. That is as many as was known before, or
// else as there are, as what is given away meanwhile is gone. It reports whether the number is of use. g.mu is held.
func (g *gangKeeper) assume(gang *gangs.Gang, m *headcount) bool {
	s := g.of[gang.Key]
	switch {
	case gang.Problem == "":
	case s != nil && !s.half.IsZero() && !gang.Missing:
		*gang = s.Gang
	case gang.Unread:
		gang.Minimum = m.bound + len(m.kept) + len(m.unplaced)
	default:
		return false
	}
	return true
}

// resume makes slots for the rest of a gang that has started. What somebody reserved for members of it lasts as long as
// these slots. reserved and rest are not both empty. g.mu is held.
func (g *gangKeeper) resume(key kinds.Key, gang *gangs.Gang, reserved, rest []*cluster.Pod) bool {
	s := g.state(append(slices.Clone(rest), reserved...)[0], gang)
	s.caller = cmp.Or(s.caller, g.o.Pods.GangSize(key).Caller) // what is kept counts in the budget of its starter
	now := g.o.Ledger.Clock.Now()
	if s.half.IsZero() {
		s.half = now
	}
	s.counted, s.moved, s.finishing = now, now, false
	s.deadline = now.Add(g.ttl())
	g.topUp(s, rest)
	s.reserved = nil
	g.outlast(s, reserved)
	s.short = s.short && len(s.kept) == 0
	if len(s.kept)+len(s.reserved) == 0 {
		g.o.Log.WithField("gang", key.String()).
			Warn("there is no capacity for the rest of a gang that started before this server decided")
	}
	return len(s.kept)+len(s.reserved) > 0
}
