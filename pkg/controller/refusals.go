package controller

import (
	"cmp"
	"slices"
	"sync"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/globalreserve/globalreserve/pkg/cluster"
)

const (
	// maxRefusals bounds the memory of refused pods. Beyond it the oldest refusals
	// are forgotten: those pods then wait for kube-scheduler's own retry.
	maxRefusals = 100_000
	// maxOffered is how many offered nodes are remembered of a refusal. A pod that
	// was offered more is not bound to a few nodes, and any may be news to it.
	maxOffered = 32
)

// The pauses of a pod, each twice as long as the one before: between tries to
// wake it, and between wake-ups for nodes it was not offered.
const (
	firstPause = time.Second
	mostPause  = 30 * time.Second
)

// refusal is a pending pod that filter refused capacity on some node.
type refusal struct {
	pod *cluster.Pod
	// revision is of the ledger before the refusal was decided: capacity freed
	// after it is news to the pod.
	revision uint64
	at       time.Time
	// offered are the nodes the scheduler asked about; empty where they are not
	// known or many.
	offered []unique.Handle[string]
	sample  int // how many it asked about

	// overLimit: it was over a limit when it was last looked at, so that it is news if it is
	// not any more. It is of the loop alone.
	overLimit bool

	// What follows is guarded by the refusals it is in.
	slot      int       // its index in refusals.list
	news      news      // to be looked at
	due       time.Time // when the news may be looked at
	notBefore time.Time // when it may be looked at again after a failure
	failures  int
	taken     bool   // somebody looks at it, or wakes it
	queue     *queue // what it waits in, if anything
}

// isOffered reports whether the scheduler asked about the node.
func (r *refusal) isOffered(node string) bool {
	return len(r.offered) == 0 || slices.Contains(r.offered, unique.Make(node))
}

// news is why a pod may have capacity now.
type news struct {
	nodes []string // with capacity freed that it fitted
	many  bool     // capacity was freed on more nodes than are listed
	held  bool     // there are new slots it may use
	sure  bool     // it has to be woken whatever is free
}

func (n *news) any() bool { return len(n.nodes) > 0 || n.many || n.held || n.sure }

func (n *news) merge(o news) {
	for _, node := range o.nodes {
		if !slices.Contains(n.nodes, node) {
			n.nodes = append(n.nodes, node)
		}
	}
	if n.many = n.many || o.many || len(n.nodes) > maxLooked; n.many {
		n.nodes = nil
	}
	n.held, n.sure = n.held || o.held, n.sure || o.sure
}

// pause keeps a pod from being woken again and again for nodes that it was not
// offered, and so probably cannot run on.
type pause struct {
	length time.Duration
	until  time.Time
}

// refusals remembers the last refusal of every pod that is still pending, and
// puts those with news in order.
type refusals struct {
	changed chan struct{} // there is something to take, or to take sooner

	mu     sync.Mutex
	byUID  map[types.UID]*refusal
	list   []*refusal // the same, in no order
	ready  *queue     // those with news, by priority
	later  *queue     // those whose news may not be looked at yet, by due
	pauses map[types.UID]pause
}

func newRefusals() *refusals {
	return &refusals{
		changed: make(chan struct{}, 1),
		byUID:   map[types.UID]*refusal{}, pauses: map[types.UID]pause{},
		ready: btree.New(queueDegree, byPriority), later: btree.New(queueDegree, byDue),
	}
}

// byPriority puts the highest priority first, and among equals the pod that was
// refused longest ago.
func byPriority(a, b *refusal) bool {
	return cmp.Or(cmp.Compare(b.pod.Priority, a.pod.Priority), a.at.Compare(b.at), cmp.Compare(a.pod.Ref.UID, b.pod.Ref.UID)) < 0
}

func byDue(a, b *refusal) bool {
	return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.pod.Ref.UID, b.pod.Ref.UID)) < 0
}

// add remembers a refusal instead of the pod's last one.
func (r *refusals) add(n *refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(n)
}

// addFirst remembers a refusal of a pod that none is known of. It reports
// whether that was so.
func (r *refusals) addFirst(n *refusal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.byUID[n.pod.Ref.UID]; known {
		return false
	}
	r.put(n)
	return true
}

func (r *refusals) put(n *refusal) {
	uid := n.pod.Ref.UID
	if former := r.byUID[uid]; former != nil {
		r.remove(former)
	} else if len(r.list) >= maxRefusals {
		r.dropOldest(maxRefusals / 10)
	}
	n.slot = len(r.list)
	r.list = append(r.list, n)
	r.byUID[uid] = n
}

// forget drops all that is known of a pod.
func (r *refusals) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.byUID[uid]; n != nil {
		r.remove(n)
	}
	delete(r.pauses, uid)
}

func (r *refusals) remove(n *refusal) {
	last := r.list[len(r.list)-1]
	r.list[n.slot], last.slot = last, n.slot
	r.list[len(r.list)-1] = nil
	r.list = r.list[:len(r.list)-1]
	delete(r.byUID, n.pod.Ref.UID)
	n.leave()
}

func (r *refusals) dropOldest(count int) {
	oldest := slices.Clone(r.list)
	slices.SortFunc(oldest, func(a, b *refusal) int { return a.at.Compare(b.at) })
	for _, n := range oldest[:count] {
		r.remove(n)
		delete(r.pauses, n.pod.Ref.UID)
	}
}

// of returns the last refusal of a pod, nil where there is none.
func (r *refusals) of(pod types.UID) *refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byUID[pod]
}

// current reports whether a refusal is the pod's last one.
func (r *refusals) current(n *refusal) bool { return r.of(n.pod.Ref.UID) == n }

// appendAll appends all refusals to dst.
func (r *refusals) appendAll(dst []*refusal) []*refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(dst, r.list...)
}

// tell notes news of a pod, to be looked at when it is due.
func (r *refusals) tell(n *refusal, what news, due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(n, what, due)
}

func (r *refusals) note(n *refusal, what news, due time.Time) {
	n.leave() // before its order changes
	if what.any() && (!n.news.any() || due.Before(n.due)) {
		n.due = due
	}
	n.news.merge(what)
	r.enqueue(n)
}

// enqueue puts a refusal that has news where it can be taken when it is due.
func (r *refusals) enqueue(n *refusal) {
	if n.taken || !n.news.any() || r.byUID[n.pod.Ref.UID] != n {
		return
	}
	if n.due.Before(n.notBefore) {
		n.due = n.notBefore
	}
	n.enter(r.later)
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// take returns the refusal to look at next, with its news. It has to be given
// back by wait, retry or woken. Where none is due it returns nil and when one
// will be; that is zero if there is no such time.
func (r *refusals) take(now time.Time) (n *refusal, what news, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, ok := r.later.Min(); ok; n, ok = r.later.Min() {
		if n.due.After(now) {
			next = n.due
			break
		}
		n.leave()
		n.enter(r.ready)
	}
	n, ok := r.ready.Min()
	if !ok {
		return nil, news{}, next
	}
	n.leave()
	what, n.news, n.taken = n.news, news{}, true
	return n, what, time.Time{}
}

// wait gives back a refusal whose news are to be looked at again later, if there are any.
func (r *refusals) wait(n *refusal, what news, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n.taken = false
	r.note(n, what, until)
}

// retry gives back a refusal whose pod could not be woken, to be tried again
// after a pause that grows.
func (r *refusals) retry(n *refusal, what news, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n.taken = false
	n.notBefore = now.Add(min(firstPause<<min(n.failures, 10), mostPause))
	n.failures++
	r.note(n, what, now)
}

// woken forgets a refusal whose pod was woken, unless the pod was refused again
// meanwhile. stray says that this was for a node it was not offered.
func (r *refusals) woken(n *refusal, stray bool, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	uid := n.pod.Ref.UID
	latest := r.byUID[uid]
	if stray && latest != nil {
		length := min(max(firstPause, 2*r.pauses[uid].length), mostPause)
		r.pauses[uid] = pause{length, now.Add(length)}
	}
	if latest == n {
		r.remove(n)
	}
}

// pausedUntil returns when a pod may be woken for nodes it was not offered.
func (r *refusals) pausedUntil(uid types.UID) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pauses[uid].until
}

// queue is refusals in order; each is in one queue at most.
type queue = btree.BTree[*refusal]

// queueDegree is how many refusals a node of a queue's tree has, more or less.
const queueDegree = 16

func (r *refusal) enter(q *queue) {
	r.queue = q
	q.ReplaceOrInsert(r)
}

// leave takes a refusal out of the queue it is in, if any.
func (r *refusal) leave() {
	if r.queue != nil {
		r.queue.Delete(r)
		r.queue = nil
	}
}
