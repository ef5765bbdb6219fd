package requeue

import (
	"cmp"
	"container/list"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/placement"
)

const (
	// maxPods is how many pods are remembered. For one more, the one touched longest ago is forgotten: one that the watch
	// does not know, if there is any, because callers may make them up.
	maxPods = 100_000
	// forgetAfter is how long a pod may be missing from the watch before it is taken to be gone.
	forgetAfter = time.Minute
)

// Options are what Pods work with. A field is required unless its comment says otherwise.
type Options struct {
	Ledger   ledger.Reader
	Question *placement.Builder
	Gates    *gates.Gates
	// Pods are the cluster's pods as the ledger has them.
	Pods    *cluster.Pods
	Nodes   *cluster.Nodes
	Patcher Patcher
	// Nominator is nil where Patcher wakes pods in the queue of a scheduler in the same process, which costs no write, and
	// the scheduler counts on nothing else: pods are woken at once, for all capacity, and they are not steered. Pods,
	// Nodes, Recorder, Metrics, ClaimTrouble and Ready are not used then.
	Nominator Nominator
	Recorder  events.EventRecorder
	Metrics   *metrics.Metrics
	// ClaimTrouble says why the devices of a pod's claims cannot be given, whatever the node; Fits where they can.
	ClaimTrouble func(pod *cluster.Pod) (reason ledger.Reason, note string)
	// Ready returns nil once the ledger has all pods and reservations.
	Ready func(context.Context) error
	Log   logrus.FieldLogger
}

// Pods are those that wait; see the package comment. Make one with New. It is safe for concurrent use.
type Pods struct {
	Options

	wakes    *rate.Limiter // of pods that are woken
	searches *rate.Limiter // of searches for free capacity
	// notices are Events on pods; claimNotices those about claims.
	notices, claimNotices *informer.Events

	// lastFreed is the newest revision at which capacity was freed. It is set before the attempts are gone through and
	// read after one was added, so that no pod slips through between the two.
	lastFreed atomic.Uint64
	patches   atomic.Uint64 // so far

	asking sync.Mutex        // guards askers
	askers map[string]string // the callers that ask, by the schedulers they ask for

	changedClaims *cache.Expiring // the objects of device claims that came, went or were made anew just before, by podName

	changed chan struct{} // there is an attempt to take, or to take sooner
	kick    chan struct{} // there is something to look at all attempts for

	// looking is held during a look at all attempts, so that of those it finds news for the one of the highest priority is
	// taken first. searching is held until what a search found is taken, so that two pods do not find the same. Both are
	// taken before mu.
	looking, searching sync.Mutex

	loop loop // of Run alone

	// mu guards what follows. A search takes it with the ledger's lock held, so that nobody may ask the ledger with mu
	// held.
	mu    sync.Mutex
	byUID map[types.UID]*record
	// heard holds each *record: those that the watch knows and the others; the one touched last comes last
	heard  [2]list.List
	latest latest
	ready  *queue                                              // attempts with news, by priority
	later  *queue                                              // attempts whose news may not be looked at yet, by due
	plans  map[*plan]bool                                      // those of the records
	bySlot map[ledger.SlotRef]*plan                            // of slots for one pod only
	byNode map[string]map[types.UID]*plan                      // of free capacity
	writes workqueue.TypedRateLimitingInterface[ledger.PodRef] // of what plans want; nil before Run
	asked  asked
	hosted sets.Set[string] // schedulers whose pods are left to host
	host   *Pods            // nil if there is none
}

// asked is what the loop was asked to look at.
type asked struct {
	late      []*attempt      // decided with an older view than lastFreed
	resumed   bool            // CatchUp was called
	resumedAt uint64          // with this revision, or a newer one
	matched   map[string]bool // namespaces that Matched was called for
	relimited bool            // LimitsChanged was called
}

// record is all that is known of a pod that waits. Pods.mu guards it.
type record struct {
	Waiter // zero where no refusal is remembered

	ref       ledger.PodRef
	place     *list.Element
	in        *list.List // of Pods.heard, where place is
	touched   time.Time  // when record returned it last
	attempt   *attempt   // the last that failed and that the pod was not woken for; nil if there is none
	woken     bool       // by a write, and not refused since
	pause     pause
	plan      *plan // nil if there is none
	preemptor preemptor
	notices   map[string]time.Time // when the next Events on it, or looks at it, may follow
}

// New returns Pods that nobody wakes or steers before Run.
func New(o Options) *Pods {
	w := &Pods{
		Options: o, wakes: rate.NewLimiter(wakeupsPerSecond, wakeupBurst),
		searches: rate.NewLimiter(searchesPerSecond, searchesPerSecond),
		askers:   map[string]string{}, changedClaims: cache.NewExpiring(),
		changed: make(chan struct{}, 1), kick: make(chan struct{}, 1),
		loop:  loop{history: newFreed(), fresh: newFreed()},
		byUID: map[types.UID]*record{}, ready: newQueue(byPriority), later: newQueue(byDue),
		plans: map[*plan]bool{}, bySlot: map[ledger.SlotRef]*plan{}, byNode: map[string]map[types.UID]*plan{},
		asked: asked{matched: map[string]bool{}}, hosted: sets.Set[string]{},
	}
	w.loop.journal = informer.NewJournal(o.Ledger, w.noteFreed, w.lostTrack) // nothing before now is news
	if w.inProcess() {
		w.wakes = rate.NewLimiter(wakeupsPerSecondInProcess, wakeupBurstInProcess)
	}
	if o.Recorder != nil {
		w.notices = informer.NewEvents(o.Recorder, eventsPerSecond, eventBurst)
		w.claimNotices = informer.NewEvents(o.Recorder, eventsPerSecond, eventBurst)
	}
	return w
}

// inProcess reports whether pods are woken in the queue of a scheduler in the same process.
func (w *Pods) inProcess() bool { return w.Nominator == nil }

// Run wakes and steers pods until ctx ends.
func (w *Pods) Run(ctx context.Context) error {
	changes, unsubscribe := w.Ledger.Subscribe()
	defer unsubscribe()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { w.dispatch(ctx) })
	if !w.inProcess() {
		running.Go(func() { w.steer(ctx) })
		running.Go(func() {
			if w.Ready(ctx) == nil {
				w.seed(w.Pods.PendingPods())
			}
		})
	}
	w.lookWhenFreed(ctx, changes)
	return nil
}

// Host leaves the pods of a scheduler in the same process to host, which wakes them in the scheduler's queue: one for
// all such schedulers. w passes on to it all news of claims, reservations, limits and resources. It needs no CatchUp:
// all news is late to it.
func (w *Pods) Host(scheduler string, host *Pods) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.host = host
	w.hosted.Insert(scheduler)
}

// hostOf returns the Pods that wake a scheduler's pods instead of w, nil if w does.
func (w *Pods) hostOf(scheduler string) *Pods {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hosted.Has(scheduler) {
		return w.host
	}
	return nil
}

// passOn has news reach the Pods that w leaves pods to, if there are any.
func (w *Pods) passOn(news func(host *Pods)) {
	w.mu.Lock()
	host := w.host
	w.mu.Unlock()
	if host != nil {
		news(host)
	}
}

// Settled forgets a pod: it is bound, or gone.
func (w *Pods) Settled(pod types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.byUID[pod]; r != nil {
		w.remove(r)
	}
}

// Waiters returns the pods of the namespaces that are wanted which were refused and have no node since, those that wait
// longest first.
func (w *Pods) Waiters(wanted func(namespace string) bool) []Waiter {
	type seen struct {
		Waiter
		ref     ledger.PodRef
		touched time.Time
	}
	w.mu.Lock()
	all := make([]seen, 0, len(w.byUID))
	for _, r := range w.byUID {
		all = append(all, seen{r.Waiter, r.ref, r.touched})
	}
	w.mu.Unlock()
	list := make([]Waiter, 0, len(all))
	for _, r := range all {
		pod := w.pod(r.ref)
		switch {
		case pod != nil && pod.Node == "" && !pod.Finished && !pod.Deleting:
			if r.Times > 0 {
				list = append(list, r.Waiter)
			}
		case time.Since(r.touched) > forgetAfter:
			w.forget(r.ref.UID, r.touched) // it was refused after it was seen to be bound or gone, or never was
		}
	}
	slices.SortFunc(list, func(a, b Waiter) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Last.Rejection.Pod.UID, b.Last.Rejection.Pod.UID))
	})
	// In order: wanted may know some namespaces only.
	return slices.DeleteFunc(list, func(a Waiter) bool { return !wanted(a.Last.Rejection.Pod.Namespace) })
}

// forget forgets a pod that was not touched since a moment.
func (w *Pods) forget(pod types.UID, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.byUID[pod]; r != nil && r.touched.Equal(since) {
		w.remove(r)
	}
}

// pod returns a pod as the watch has brought it, nil where there is none of that UID.
func (w *Pods) pod(ref ledger.PodRef) *cluster.Pod {
	if w.inProcess() {
		return nil
	}
	if pod, ok := w.Pods.Pod(ref.Namespace, ref.Name); ok && pod.Ref.UID == ref.UID {
		return pod
	}
	return nil
}

// record returns the record of a pod, made if there is none, and touches it. mu is held.
func (w *Pods) record(pod ledger.PodRef) *record {
	r := w.byUID[pod.UID]
	if r == nil {
		if len(w.byUID) >= maxPods {
			w.makeRoom()
		}
		r = &record{ref: pod}
		w.byUID[pod.UID] = r
	}
	r.touched = time.Now()
	known := w.pod(r.ref) != nil
	if !known && r.ref != pod { // the first caller had the name wrong
		r.ref, r.Waiter = pod, Waiter{}
		known = w.pod(pod) != nil
	}
	w.hear(r, known)
	return r
}

// hear puts a record last among those that the watch knows, or among the others. mu is held.
func (w *Pods) hear(r *record, known bool) {
	if r.in != nil {
		r.in.Remove(r.place)
	}
	if r.in = &w.heard[0]; !known {
		r.in = &w.heard[1]
	}
	r.place = r.in.PushBack(r)
}

// makeRoom forgets a pod. mu is held.
func (w *Pods) makeRoom() {
	for first := w.heard[1].Front(); first != nil; first = w.heard[1].Front() {
		r, _ := first.Value.(*record)
		if w.pod(r.ref) == nil {
			w.remove(r)
			return
		}
		w.hear(r, true) // the watch has brought it since
	}
	oldest, _ := w.heard[0].Front().Value.(*record)
	w.remove(oldest)
}

// remove forgets all of a pod. mu is held.
func (w *Pods) remove(r *record) {
	if r.attempt != nil {
		r.attempt.leave()
	}
	if r.plan != nil {
		w.leave(r.plan)
		delete(w.plans, r.plan)
	}
	delete(w.byUID, r.ref.UID)
	r.in.Remove(r.place)
}

// tidy removes a record that says nothing any more. mu is held.
func (w *Pods) tidy(r *record) {
	if r.Times == 0 && r.attempt == nil && r.pause == (pause{}) && r.plan == nil && r.preemptor == (preemptor{}) &&
		len(r.notices) == 0 {
		w.remove(r)
	}
}
