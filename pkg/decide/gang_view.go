package decide

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/globalreserve/globalreserve/pkg/gangs"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// The states of gangs: how far they are.
const (
	// it cannot start whatever is free: pods are missing, or nobody knows how many it needs
	GangIncomplete = "Incomplete"
	GangWaiting    = "Waiting"  // its pods are there, and none is bound
	GangStarting   = "Starting" // some are bound, and capacity is kept for others
	GangShort      = "Short"    // some are bound, and nothing is kept for others
	GangWhole      = "Whole"    // as many are bound, or have finished, as it needs
)

// GangStates are all of them, in the order in which a gang goes through them.
var GangStates = []string{GangIncomplete, GangWaiting, GangStarting, GangShort, GangWhole}

// Gangs returns what is known of all gangs of the namespaces that are wanted, ordered by namespace, name and kind.
func (a *Arbiter) Gangs(wanted func(namespace string) bool) []reserver.Gang {
	var views []reserver.Gang
	for v := range a.gangs.views(wanted) {
		views = append(views, v)
	}
	slices.SortFunc(views, func(a, b reserver.Gang) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return views
}

// CountGangs returns how many gangs are in each state. It returns nothing where another server decides.
func (a *Arbiter) CountGangs() map[string]int {
	if a.o.Ledger.Ready() != nil {
		return nil
	}
	counts := map[string]int{}
	for _, state := range GangStates {
		counts[state] = 0
	}
	for v := range a.gangs.views(func(string) bool { return true }) {
		counts[v.State]++
	}
	return counts
}

// HalfGangTime returns for how long gangs that were started here have been half, all together.
func (a *Arbiter) HalfGangTime() time.Duration {
	a.gangs.mu.Lock()
	defer a.gangs.mu.Unlock()
	return a.gangs.halfTime
}

// remembered is what views show of a gang that is remembered.
type remembered struct {
	since, half, deadline time.Time
	why                   string
	closed                []string
}

func (s *startingGang) remembered() remembered {
	return remembered{
		since: s.since, half: s.half, deadline: s.deadline, why: s.why, closed: slices.Sorted(maps.Keys(s.closed)),
	}
}

// views yields the gangs of the namespaces that are wanted, in no order. It does not hold the lock that decisions are
// made with, so two gangs may be shown as they were at different moments.
func (g *gangKeeper) views(wanted func(namespace string) bool) func(yield func(reserver.Gang) bool) {
	g.mu.Lock()
	all := make(map[kinds.Key]remembered, len(g.of))
	for key, s := range g.of {
		all[key] = s.remembered()
	}
	g.mu.Unlock()
	return func(yield func(reserver.Gang) bool) {
		for gang := range g.o.Gangs.All {
			if wanted(gang.Key.Namespace) && !yield(g.view(&gang, all[gang.Key])) {
				return
			}
		}
	}
}

// viewOf returns what is known of the gang that a pod is a member of, nil where it is useful alone.
func (g *gangKeeper) viewOf(pod *cluster.Pod) *reserver.Gang {
	gang, ok := g.o.Gangs.Of(pod)
	if !ok {
		return nil
	}
	var known remembered
	g.mu.Lock()
	if s := g.of[gang.Key]; s != nil {
		known = s.remembered()
	}
	g.mu.Unlock()
	v := g.view(&gang, known)
	return &v
}

// view is what is known of a gang, by its pods, by the ledger, and by what is remembered of it.
func (g *gangKeeper) view(gang *gangs.Gang, known remembered) reserver.Gang {
	size := g.o.Pods.GangSize(gang.Key)
	v := reserver.Gang{
		Namespace: gang.Key.Namespace, Name: gang.Key.Name, Kind: gang.Key.Kind, Minimum: gang.Minimum,
		Scheduler: size.Scheduler, Pending: size.Pending, Bound: size.Bound, Finished: size.Finished,
	}
	if gang.Problem == "" && len(gang.Tasks) == 0 && size.Bound+size.Finished >= gang.Minimum {
		v.State = GangWhole
		return v
	}
	m := g.headcount(gang, ledger.PodRef{})
	v.Pending, v.Kept = len(m.kept)+len(m.unplaced), len(m.kept)
	v.Bound, v.Finished = m.bound-m.finished, m.finished
	v.State, v.Why = m.state()
	if v.State == GangWhole {
		return v
	}
	v.WaitingSince = g.o.Ledger.Clock.WallAt(known.since).UTC()
	if v.Kept > 0 {
		v.KeptUntil = g.o.Ledger.Clock.WallAt(known.deadline).UTC()
	}
	if m.isStarted() {
		v.HalfSince = g.o.Ledger.Clock.WallAt(known.half).UTC()
	}
	v.Why = cmp.Or(v.Why, known.why)
	if v.Why == "" && v.State == GangShort {
		v.Why = fmt.Sprintf("%s has started and lacks %d of the %d pods it needs; no capacity is kept for them", gang.Key,
			m.short(), gang.Minimum)
	}
	if v.Why == "" && v.State == GangWaiting {
		v.Why = "no scheduler has asked to bind a pod of it"
	}
	v.Why = g.addWhy(v.Why, gang, &m, known.closed)
	return v
}

// mostNamed is how many of the nodes that are left out are named.
const mostNamed = 8

// addWhy adds to why a gang is not whole what else is known of that.
func (g *gangKeeper) addWhy(why string, gang *gangs.Gang, m *headcount, closed []string) string {
	all := []string{why}
	if m.grows() {
		all = append(all, fmt.Sprintf("it had the %d pods that it needed before its minimum became %d", gang.Former,
			gang.Minimum))
	}
	if len(closed) > 0 {
		all = append(all, "pods that must not be with its own are on "+
			strings.Join(closed[:min(len(closed), mostNamed)], ", "))
	}
	if m.isStarted() {
		all = append(all, g.whyLeft(gang, m))
	}
	return strings.Join(slices.DeleteFunc(all, func(why string) bool { return why == "" }), "; ")
}

// state returns how far a gang is, and why, where its pods show that.
func (m *headcount) state() (state, why string) {
	switch {
	case m.gang.Problem != "":
		return GangIncomplete, m.gang.Problem
	case m.short() <= 0:
		return GangWhole, ""
	case m.isStarted() && len(m.kept) > 0:
		return GangStarting, ""
	case m.isStarted():
		return GangShort, ""
	case m.short(m.kept, m.unplaced) > 0:
		return GangIncomplete, m.tooFew()
	default:
		return GangWaiting, ""
	}
}
