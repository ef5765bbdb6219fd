package decide

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/gangs"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// headcount is what the members of a gang have, but for one of them.
type headcount struct {
	gang     gangs.Gang
	bound    int // being bound, bound, or done with what they are for
	binding  int // of these, being bound
	finished int // of them, those that are done
	kept     []*cluster.Pod
	unplaced []*cluster.Pod
	// tasks are those that are bound, by task, where tasks matter.
	tasks map[string]int
}

func (g *gangKeeper) headcount(gang *gangs.Gang, but ledger.PodRef) headcount {
	for {
		m := headcount{gang: *gang}
		pending, bound, finished := g.o.Pods.Gang(gang.Key)
		if len(gang.Tasks) > 0 {
			if m.tasks = g.o.Pods.GangTasks(gang.Key); sum(m.tasks) != bound+finished {
				continue
			}
		}
		g.count(&m, pending, but)
		m.bound, m.finished = m.bound+bound+finished, finished
		// While the ledger was asked, the watch may have brought a pending member bound, and then finished. The ledger has
		// nothing of it any more, so the members are counted again. A member that is still bound is bound in the ledger, too.
		if g.o.Pods.GangSize(gang.Key).Finished == finished {
			return m
		}
	}
}

// count asks the ledger about the members that wait for a node, all except one.
func (g *gangKeeper) count(m *headcount, pending []*cluster.Pod, but ledger.PodRef) {
	for _, member := range pending {
		if member.Ref.Name == but.Name {
			continue
		}
		switch state, kept := g.o.Ledger.Standing(member.Ref); {
		case state == ledger.Binding:
			m.bind(member)
			m.binding++
		case state == ledger.Bound:
			m.bind(member)
		case kept:
			m.kept = append(m.kept, member)
		default:
			m.unplaced = append(m.unplaced, member)
		}
	}
}

func sum(counts map[string]int) (sum int) {
	for _, count := range counts {
		sum += count
	}
	return sum
}

func (m *headcount) bind(member *cluster.Pod) {
	if m.bound++; m.tasks != nil {
		m.tasks[member.Gang.Task]++
	}
}

// lacks is for how many more members capacity has to be kept before some may be bound. It is below 0 where there is
// more than the gang needs.
func (m *headcount) lacks(with ...*cluster.Pod) int { return m.short(m.kept, with) }

// short is how many members the gang needs beside those that are bound, and some others.
func (m *headcount) short(others ...[]*cluster.Pod) int {
	if m.tasks == nil {
		there := m.bound
		for _, list := range others {
			there += len(list)
		}
		return m.gang.Minimum - there
	}
	return m.gang.Lacks(m.byTask(others...))
}

// byTask is how many members there are of each task, of those that are bound and some others.
func (m *headcount) byTask(others ...[]*cluster.Pod) map[string]int {
	has := maps.Clone(m.tasks)
	for _, list := range others {
		for _, member := range list {
			has[member.Gang.Task]++
		}
	}
	return has
}

// choose returns those of some members that a gang needs, where it has so many of each task already.
func (m *headcount) choose(has map[string]int, from []*cluster.Pod) (chosen []*cluster.Pod) {
	lacks := m.gang.Lacks(has)
	for _, member := range from {
		if lacks == 0 {
			break
		}
		has[member.Gang.Task]++
		if left := m.gang.Lacks(has); left < lacks {
			chosen, lacks = append(chosen, member), left
		}
	}
	return chosen
}

// needless returns the members with capacity that the gang does not need, where it has tasks.
func (m *headcount) needless() []*cluster.Pod {
	if m.tasks == nil {
		return nil
	}
	needed := m.choose(m.byTask(), m.kept)
	return slices.DeleteFunc(slices.Clone(m.kept), func(pod *cluster.Pod) bool { return slices.Contains(needed, pod) })
}

// rest returns those without capacity that the gang needs beside some that may be bound: the smallest first, as they
// are the easiest to place, and of equals those of the highest priority.
func (m *headcount) rest(with ...*cluster.Pod) []*cluster.Pod {
	lacks := m.lacks(with...)
	if lacks <= 0 {
		return nil
	}
	slices.SortFunc(m.unplaced, func(a, b *cluster.Pod) int {
		return cmp.Or(compareExtended(a.Request, b.Request), compareSizes(a.Request, b.Request),
			cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Ref.Name, b.Ref.Name))
	})
	if m.tasks == nil {
		return m.unplaced[:min(lacks, len(m.unplaced))]
	}
	return m.choose(m.byTask(m.kept, with), m.unplaced)
}

// isStarted reports whether others of the gang are bound. One that was whole, and needs more members by now, starts
// anew with the first of these: until then it does no harm that they are not bound.
func (m *headcount) isStarted() bool { return m.bound > 0 && !m.grows() }

// grows reports whether the gang has all members that it needed before its minimum grew.
func (m *headcount) grows() bool {
	return 0 < m.gang.Former && m.gang.Former <= m.bound && m.bound < m.gang.Minimum
}

// incomplete refuses the first member of a gang that cannot be whole, whatever is free.
func (m *headcount) incomplete(pod *cluster.Pod, p *ledger.Placement) error {
	detail := m.gang.Problem
	if detail == "" && m.short(m.kept, m.unplaced, []*cluster.Pod{pod}) > 0 {
		detail = m.tooFew(pod)
	}
	if detail == "" || m.isStarted() {
		return nil
	}
	return gangError(p, ledger.GangIncomplete, detail)
}

// tooFew says that a gang cannot start with as many pods as there are, and one more.
func (m *headcount) tooFew(more ...*cluster.Pod) string {
	there, wanted, kind := m.bound+len(m.kept)+len(m.unplaced)+len(more), m.gang.Minimum, ""
	if m.tasks != nil && there >= wanted {
		has := m.byTask(m.kept, m.unplaced, more)
		for _, task := range slices.Sorted(maps.Keys(m.gang.Tasks)) {
			if has[task] < m.gang.Tasks[task] {
				there, wanted, kind = has[task], m.gang.Tasks[task], " of task "+task
				break
			}
		}
	}
	of := "that may be bound"
	if m.bound > 0 {
		of = "that are bound, or may be"
	}
	return fmt.Sprintf("%s needs at least %d pods%s, and there are %d %s", m.gang.Key, wanted, kind, there, of)
}
