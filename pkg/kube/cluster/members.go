package cluster

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
)

// gangs are the pods that are members of gangs, kept in step with the pods by Pods.list.
type gangs struct {
	of     map[podKey]*Pod // members, of all gangs
	byKey  map[kinds.Key]*gang
	nextID uint64
	done   *lru.Cache // by key: done, of gangs without members
	// succeeded are members that are still there, and were seen to have succeeded before they were deleted. The API server
	// reports of each pod that it is being deleted before it is gone, whatever its grace period.
	succeeded map[types.UID]bool
}

// done are the members of a gang that have succeeded and are gone: their controller, or the garbage collection of pods,
// has deleted them while others still run, or are made anew. They count until a pod comes that has the name of one of
// them, or another controller than the gang had: that is another run.
type done struct {
	owners map[types.UID]bool // of all members that there were
	tasks  map[string]string  // by name
}

// mostGangsDone bounds how many gangs without members have a done, and mostDone how many members a done has.
const (
	mostGangsDone = 256
	mostDone      = 256
)

// gang is the members of one gang.
type gang struct {
	key      kinds.Key
	id       uint64 // grows in the order in which gangs were first seen
	members  int
	pending  map[podKey]*Pod
	bound    int
	finished int
	begun    map[string]int      // those that have a node or have succeeded, by task
	says     map[kinds.Mark]said // what the members say
	owners   map[types.UID]int
	done     *done // nil where there are none
	// scheduler is that of the last seen member that has a node; while none has one, that of the last seen member.
	scheduler string
	// caller is the caller of the last seen member that has a node.
	caller string
}

// said is what is known of the members that say the same of their gang: how many there are, how many of them have a
// node or have succeeded, and when the newest that there ever was was created, in Unix seconds.
type said struct {
	members, begun int
	newest         int64
}

func newGangs() gangs {
	return gangs{
		of: map[podKey]*Pod{}, byKey: map[kinds.Key]*gang{}, done: lru.New(mostGangsDone), succeeded: map[types.UID]bool{},
	}
}

// set records the state of the pod of a name; r is nil where it is gone. A gang keeps its place while it has members.
func (g *gangs) set(k podKey, r *Pod) {
	held := g.of[k]
	if held != nil && r != nil && r.Ref.UID != held.Ref.UID { // the watch did not see it go
		g.set(k, nil)
		held = nil
	}
	switch {
	case r != nil && r.Gang != nil:
		g.comes(k.name, r, held)
		if r.Finished && !r.Deleting {
			g.succeeded[r.Ref.UID] = true
		}
	case held != nil:
		if g.succeeded[held.Ref.UID] {
			g.isDone(k.name, held)
		}
		delete(g.succeeded, held.Ref.UID)
	}
	if held != nil {
		delete(g.of, k)
		g.gang(held).add(k, held, -1)
		defer g.drop(held.Gang.Key(held.Ref.Namespace))
	}
	if r != nil && r.Gang != nil {
		g.of[k] = r
		g.gang(r).add(k, r, 1)
	}
}

// comes forgets members that are done and gone where a pod is a member of another run.
func (g *gangs) comes(name string, r, held *Pod) {
	key := r.Gang.Key(r.Ref.Namespace)
	gone := g.gone(key)
	if gone == nil || held != nil {
		return
	}
	if _, again := gone.tasks[name]; again || !gone.owners[r.Gang.Owner] {
		if g.done.Remove(key); g.byKey[key] != nil {
			g.byKey[key].done = nil
		}
	}
}

// isDone remembers a member that is done and gone. For pods without a controller it cannot be known whether a pod is of
// another run.
func (g *gangs) isDone(name string, held *Pod) {
	if held.Gang.Owner == "" {
		return
	}
	of := g.gang(held)
	if of.done == nil {
		of.done = &done{map[types.UID]bool{}, map[string]string{}}
	}
	if len(of.done.tasks) < mostDone {
		of.done.tasks[name] = held.Gang.Task
		for owner := range of.owners {
			of.done.owners[owner] = true
		}
	}
}

// gone returns the members of a gang that are done and gone, nil where there are none.
func (g *gangs) gone(key kinds.Key) *done {
	if of := g.byKey[key]; of != nil {
		return of.done
	}
	known, _ := g.done.Get(key)
	gone, _ := known.(*done)
	return gone
}

// count returns how many these are.
func (d *done) count() int {
	if d == nil {
		return 0
	}
	return len(d.tasks)
}

// gang returns the gang of a pod that is a member of one.
func (g *gangs) gang(r *Pod) *gang {
	key := r.Gang.Key(r.Ref.Namespace)
	of := g.byKey[key]
	if of == nil {
		of = &gang{
			key: key, id: g.nextID, pending: map[podKey]*Pod{}, says: map[kinds.Mark]said{}, begun: map[string]int{},
			owners: map[types.UID]int{}, done: g.gone(key),
		}
		g.done.Remove(key)
		g.nextID++
		g.byKey[key] = of
	}
	return of
}

// drop forgets a gang without members.
func (g *gangs) drop(key kinds.Key) {
	of := g.byKey[key]
	if of.members > 0 {
		return
	}
	if delete(g.byKey, key); of.done != nil {
		g.done.Add(key, of.done)
	}
}

// add adds a state of a member, or takes it off.
func (g *gang) add(k podKey, r *Pod, by int) {
	g.members += by
	if g.owners[r.Gang.Owner] += by; g.owners[r.Gang.Owner] == 0 {
		delete(g.owners, r.Gang.Owner)
	}
	if by > 0 && (r.Finished || r.Node != "" && !r.Deleting || g.bound+g.finished == 0) {
		g.scheduler = r.Scheduler
	}
	if by > 0 && r.Node != "" && r.Caller != "" {
		g.caller = r.Caller
	}
	word := r.Gang.Word()
	says := g.says[word]
	if says.members += by; by > 0 {
		says.newest = max(says.newest, r.Created)
	}
	defer func() {
		if g.says[word] = says; says.members == 0 {
			delete(g.says, word)
		}
	}()
	switch {
	case r.Finished: // with success: one that failed is no member
		g.finished += by
		says.begun += by
		g.count(r.Gang.Task, by)
	case r.Deleting: // one that ends is of no use to those that take its place
	case r.Node != "":
		g.bound += by
		says.begun += by
		g.count(r.Gang.Task, by)
	case r.Gated:
	case by > 0:
		g.pending[k] = r
	default:
		delete(g.pending, k)
	}
}

func (g *gang) count(task string, by int) {
	if g.begun[task] += by; g.begun[task] == 0 {
		delete(g.begun, task)
	}
}

// GangTasks returns how many members of a gang have a node or have succeeded, by task.
func (s *Pods) GangTasks(key kinds.Key) map[string]int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	tasks := map[string]int{}
	g := s.gangs.byKey[key]
	if g == nil {
		return tasks
	}
	maps.Copy(tasks, g.begun)
	if gone := s.gangs.gone(key); gone != nil {
		for _, task := range gone.tasks {
			tasks[task]++
		}
	}
	return tasks
}

// Gang returns the members of a gang that wait for a node and may be bound (none that has a scheduling gate), in no
// order, how many have a node and have not finished, and how many have succeeded, of which some may be gone. Those that
// are being deleted count only where they have succeeded: former pods that are still ending do not mean that a gang
// that is made anew under its name has started.
func (s *Pods) Gang(key kinds.Key) (pending []*Pod, bound, finished int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	g := s.gangs.byKey[key]
	if g == nil {
		return nil, 0, 0
	}
	pending = slices.AppendSeq(make([]*Pod, 0, len(g.pending)), maps.Values(g.pending))
	return pending, g.bound, g.finished + s.gangs.gone(key).count()
}

// GangSize is how many members a gang has that wait for a node, that have one, and that have succeeded, as Gang returns
// them. Scheduler is that of one of them, of one with a node if there are any. Caller is that of one with a node, as
// far as that is known.
type GangSize struct {
	Pending, Bound, Finished int
	Scheduler, Caller        string
}

// GangSize returns how large a gang is.
func (s *Pods) GangSize(key kinds.Key) GangSize {
	s.mu.RLock()
	defer s.mu.RUnlock()
	g := s.gangs.byKey[key]
	if g == nil {
		return GangSize{}
	}
	return GangSize{
		Pending: len(g.pending), Bound: g.bound, Finished: g.finished + s.gangs.gone(key).count(), Scheduler: g.scheduler,
		Caller: g.caller,
	}
}

// Word is what the members of a gang say of it.
type Word struct {
	kinds.Mark

	// Agreed: all members that count say the same. Settled: members that say something else will not come to count,
	// because some have begun, which have a node or have succeeded, or because there are none.
	Agreed, Settled bool
}

// GangSays returns what the members of a gang say of it. Those that have begun count, if there are any, and else the
// newest; among several, the one with the lowest minimum. asks is a member that the watch may not have brought yet, nil
// where there is none. known is false where the gang has no members.
func (s *Pods) GangSays(key kinds.Key, asks *Pod) (word Word, known bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all, counting, best := 0, 0, said{}
	hear := func(mark kinds.Mark, by said) {
		all++
		switch {
		case best.begun > 0 && by.begun == 0:
			return
		case best.begun == 0 && by.begun > 0:
			counting = 0
		}
		newer := best.begun == 0 && by.newest > best.newest
		same := best.begun > 0 || by.newest == best.newest
		if counting++; counting == 1 || newer || same && mark.Minimum < word.Minimum {
			word.Mark, best = mark, by
		}
	}
	heard := asks == nil
	if g := s.gangs.byKey[key]; g != nil {
		for mark, by := range g.says {
			if asks != nil && mark == asks.Gang.Word() {
				heard, by.newest = true, max(by.newest, asks.Created)
			}
			hear(mark, by)
		}
	}
	if !heard {
		hear(asks.Gang.Word(), said{newest: asks.Created})
	}
	word.Agreed, word.Settled = best.begun == 0 || counting == 1, best.begun > 0 || all == 1
	return word, all > 0
}

// GangKeys yields the gangs that have members, in the order they were first seen. No lock is held while it yields.
func (s *Pods) GangKeys() iter.Seq[kinds.Key] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := slices.SortedFunc(maps.Values(s.gangs.byKey), func(a, b *gang) int { return cmp.Compare(a.id, b.id) })
	return func(yield func(kinds.Key) bool) {
		for _, g := range all {
			if !yield(g.key) {
				return
			}
		}
	}
}
