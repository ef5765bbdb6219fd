package requeue

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

// maxOffered is how many offered nodes are remembered of an attempt. A pod that
// was offered more is not bound to a few nodes, and any may be news to it.
const maxOffered = 32

// The pauses of a pod, each twice as long as the one before: between tries to
// wake it, and between wake-ups for nodes it was not offered.
const (
	firstPause = time.Second
	mostPause  = 30 * time.Second
)

// attempt is one to schedule a pod, in which it was refused capacity on some node.
type attempt struct {
	pod *cluster.Pod
	// revision is of the ledger before that was decided: capacity freed after it is news to the pod.
	revision uint64
	at       time.Time
	// offered are the nodes the scheduler asked about; empty where they are not known or many.
	offered []unique.Handle[string]
	sample  int // how many it asked about
	// evicts are nodes where pods of a lower priority may be evicted for it, which did not help when it was tried. It is
	// nil where preempt was not asked, and empty where that may be any node.
	evicts atomic.Pointer[[]unique.Handle[string]]

	// barred: a gate or a limit kept it from all nodes when it was last looked at, so that it is news if none does any
	// more. gated: it was a gate.
	barred, gated atomic.Bool

	// What follows is guarded by Pods.mu.
	news      news      // to be looked at
	due       time.Time // when the news may be looked at
	notBefore time.Time // when it may be looked at again after a failure
	failures  int
	taken     bool   // somebody looks at it, or wakes it
	queue     *queue // what it waits in, if anything
}

// isOffered reports whether the scheduler asked about the node.
func (a *attempt) isOffered(node string) bool {
	return len(a.offered) == 0 || slices.Contains(a.offered, unique.Make(node))
}

// handles are the names of some nodes.
func handles(nodes []string) []unique.Handle[string] {
	list := make([]unique.Handle[string], len(nodes))
	for i := range list {
		list[i] = unique.Make(nodes[i])
	}
	return list
}

// news is why a pod may have capacity now.
type news struct {
	nodes []string // with capacity freed that it fitted
	many  bool     // capacity was freed on more nodes than are listed
	held  bool     // there are new slots it may use
	sure  bool     // it has to be woken whatever is free
	letIn bool     // it has to be woken whatever is free, unless it is over its limit again
	// evictions are nodes with capacity freed where evictions may help by now.
	evictions []string
}

func (n *news) any() bool {
	return len(n.nodes) > 0 || n.many || n.held || n.sure || n.letIn || len(n.evictions) > 0
}

func (n *news) merge(o news) {
	for _, node := range o.nodes {
		if !slices.Contains(n.nodes, node) {
			n.nodes = append(n.nodes, node)
		}
	}
	for _, node := range o.evictions {
		if !slices.Contains(n.evictions, node) {
			n.evictions = append(n.evictions, node)
		}
	}
	if n.many = n.many || o.many || len(n.nodes) > maxLooked; n.many {
		n.nodes = nil
	}
	n.held, n.sure, n.letIn = n.held || o.held, n.sure || o.sure, n.letIn || o.letIn
}

// pause keeps a pod from being woken again and again for nodes that it was not offered, and so probably cannot run on.
type pause struct {
	length time.Duration
	until  time.Time
}

// byPriority puts the highest priority first, and among equals the pod that was refused longest ago.
func byPriority(a, b *attempt) bool {
	return cmp.Or(cmp.Compare(b.pod.Priority, a.pod.Priority), a.at.Compare(b.at),
		cmp.Compare(a.pod.Ref.UID, b.pod.Ref.UID)) < 0
}

func byDue(a, b *attempt) bool {
	return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.pod.Ref.UID, b.pod.Ref.UID)) < 0
}

// queue is attempts in order; each is in one queue at most.
type queue = btree.BTree[*attempt]

// queueDegree is how many attempts a node of a queue's tree has, more or less.
const queueDegree = 16

func newQueue(less btree.LessFunc[*attempt]) *queue { return btree.New(queueDegree, less) }

func (a *attempt) enter(q *queue) {
	a.queue = q
	q.ReplaceOrInsert(a)
}

// leave takes an attempt out of the queue it is in, if any.
func (a *attempt) leave() {
	if a.queue != nil {
		a.queue.Delete(a)
		a.queue = nil
	}
}

// failed remembers an attempt instead of the pod's last one.
func (w *Pods) failed(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.record(a.pod.Ref)
	if last := r.attempt; last != nil {
		last.leave()
		if a.at.Sub(last.at) < sameAttempt { // what filter says is noted after it was answered
			a.evicts.CompareAndSwap(nil, last.evicts.Load())
		}
	}
	r.attempt = a
}

// attemptOf returns the last attempt to schedule a pod, nil where there is none that it was not woken for.
func (w *Pods) attemptOf(pod types.UID) *attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.byUID[pod]; r != nil {
		return r.attempt
	}
	return nil
}

// IsBarred reports whether a pod waits to be let in by a gate or a limit, whatever is free.
func (w *Pods) IsBarred(pod types.UID) bool {
	a := w.attemptOf(pod)
	return a != nil && a.barred.Load()
}

// isLast reports whether an attempt is the pod's last one.
func (w *Pods) isLast(a *attempt) bool { return w.attemptOf(a.pod.Ref.UID) == a }

// appendAttempts appends the last attempts of all pods to dst.
func (w *Pods) appendAttempts(dst []*attempt) []*attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.byUID {
		if r.attempt != nil {
			dst = append(dst, r.attempt)
		}
	}
	return dst
}

// tell records news of a pod, to be looked at when it is due.
func (w *Pods) tell(a *attempt, what news, due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(a, what, due)
}

// note is tell. mu is held.
func (w *Pods) note(a *attempt, what news, due time.Time) {
	a.leave() // before its order changes
	if what.any() && (!a.news.any() || due.Before(a.due)) {
		a.due = due
	}
	a.news.merge(what)
	r := w.byUID[a.pod.Ref.UID]
	if a.taken || !a.news.any() || r == nil || r.attempt != a {
		return
	}
	if a.due.Before(a.notBefore) {
		a.due = a.notBefore
	}
	a.enter(w.later)
	informer.Poke(w.changed)
}

// take returns the attempt to look at next, with its news. It has to be given back by wait, retry or woken. Where none
// is due it returns nil and when one will be; that is zero if there is no such time.
func (w *Pods) take() (a *attempt, what news, next time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for a, ok := w.later.Min(); ok; a, ok = w.later.Min() {
		if a.due.After(now) {
			next = a.due
			break
		}
		a.leave()
		a.enter(w.ready)
	}
	a, ok := w.ready.Min()
	if !ok {
		return nil, news{}, next
	}
	a.leave()
	what, a.news, a.taken = a.news, news{}, true
	return a, what, time.Time{}
}

// wait gives back an attempt whose news are to be looked at again later, if there are any.
func (w *Pods) wait(a *attempt, what news, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a.taken = false
	w.note(a, what, until)
}

// retry gives back an attempt whose pod could not be woken, to be tried again after a pause that grows.
func (w *Pods) retry(a *attempt, what news) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	a.taken = false
	a.notBefore = now.Add(min(firstPause<<min(a.failures, 10), mostPause))
	a.failures++
	w.note(a, what, now)
}

// woken forgets an attempt whose pod was woken, unless the pod was refused again
// meanwhile. stray says that this was for a node it was not offered.
func (w *Pods) woken(a *attempt, stray bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.byUID[a.pod.Ref.UID]
	if r == nil {
		return
	}
	if stray && r.attempt != nil {
		length := min(max(firstPause, 2*r.pause.length), mostPause)
		r.pause = pause{length, time.Now().Add(length)}
	}
	if r.attempt == a {
		a.leave()
		r.attempt = nil
		w.tidy(r)
	}
}

// pausedUntil returns when a pod may be woken for nodes it was not offered.
func (w *Pods) pausedUntil(pod types.UID) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.byUID[pod]; r != nil {
		return r.pause.until
	}
	return time.Time{}
}
