package controller

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
)

// The rate of wake-ups, and how many may come at once: each is a write to the
// API server and a scheduling attempt.
const (
	wakeupsPerSecond = 100
	wakeupBurst      = 50
	// The same in the scheduler's own process, where it is only an attempt.
	wakeupsPerSecondInProcess = 2000
	wakeupBurstInProcess      = 500
)

// raceWindow is how much later than a scheduler the ledger may hear of an event
// both watch. A scheduler that was told of freed capacity first, asked, and was
// refused by a ledger that had not heard of it yet would not ask again. It is
// longer than the longest pause of the reflectors in pkg/cluster (7.5 s).
const raceWindow = 8 * time.Second

// announcedDelay is how long a scheduler has to act on freed capacity that it hears of
// itself, before its pods are woken for it.
const announcedDelay = time.Second

// catchUp is how long after a watch was resumed what it brings may be old.
const catchUp = 3 * time.Second

// restShare is how many times as long as a look at all refusals took the loop rests
// before the next one.
const restShare = 4

// PodPatcher changes an annotation of a pod. The patch must apply only to the
// pod with the given UID.
type PodPatcher interface {
	Annotate(ctx context.Context, pod ledger.PodRef, key, value string) error
}

// WakeupOptions configures Wakeups. All fields are needed.
type WakeupOptions struct {
	Ledger  ledger.Reader
	Patcher PodPatcher
	// Pods are the cluster's pods as the ledger has them.
	Pods *cluster.Pods
	// WokenElsewhere reports whether the pods of a scheduler are not to be woken at the start.
	WokenElsewhere func(scheduler string) bool
	Log            logrus.FieldLogger
	// Ready returns nil once the ledger has all pods and reservations.
	Ready func(context.Context) error
	// Question is how pods ask for capacity.
	Question *placement.Builder
	// Steer wakes a pod by sending it to a node that holds capacity for it. It reports
	// false where the pod has to be woken otherwise.
	Steer func(pod *cluster.Pod) bool
	// NominateNow wakes a pod, that was offered so many nodes, by sending it to one with free capacity that its
	// scheduler might not look at. It reports false where the pod has to be woken otherwise.
	NominateNow func(pod *cluster.Pod, offered int) bool
	// OnWakeup is called after each pod that was woken.
	OnWakeup func()
	// InProcess says that waking a pod costs no write to the API server, and that the
	// scheduler counts on it alone: pods are woken at once, and for all capacity.
	InProcess bool
}

// Wakeups wakes pods that filter refused, when capacity is freed that they may fit
// in: all of it where only the ledger knows it was freed (a reservation expired,
// was given back, a bind failed) or heard of it late, and, where schedulers hear
// of it themselves, for pods refused just before (see raceWindow). Pods are woken
// in order of priority, and only if they fit one of the nodes with freed capacity at
// that moment. Capacity newly held frees nothing, but wakes the pods that may use it.
// A pod that was not offered the node where capacity is kept for it is woken now and then.
// A pod whose own claim ends is woken whatever is free: the allocation kept it from all
// other nodes.
//
// Refusals do not outlive the process, and schedulers do not repeat them: once
// it is ready, every pending pod counts as refused and every node as freed.
type Wakeups struct {
	WakeupOptions
	refused *refusals
	limiter *rate.Limiter

	// lastFreed is the newest revision at which capacity was freed. It is set
	// before the refused pods are gone through and read after one was added, so
	// that no pod slips through between the two.
	lastFreed atomic.Uint64
	patches   atomic.Uint64 // so far

	changedClaims *cache.Expiring // the objects of device claims that came, went or were made anew just before, by podName
	mapped        *cache.Expiring // the resources that Mapped has told of just before, by v1.ResourceName: the UIDs of pods refused since

	mu        sync.Mutex
	late      []*refusal      // decided with an older view than lastFreed
	resumed   bool            // CatchUp was called
	resumedAt uint64          // with this revision, or a newer one
	matched   map[string]bool // namespaces that Matched was called for
	relimited bool            // LimitsChanged was called
	kick      chan struct{}

	// looking is held during a look at all refusals, so that of those it finds news
	// for the one of the highest priority is taken first.
	looking sync.Mutex

	// Of the loop alone:
	history   freed // what refusals on their way here may not know of
	fresh     freed // what no refusal was looked at for yet
	lateUntil time.Time
	nextLook  time.Time
	events    []ledger.Event // empty; memory that is used again for every read
	all       []*refusal     // empty; the same for every look

	since uint64         // the ledger's revision when this was made: nothing before is news
	done  sync.WaitGroup // of Run
}

// NewWakeups returns Wakeups that are not running.
func NewWakeups(o WakeupOptions) *Wakeups {
	limiter := rate.NewLimiter(wakeupsPerSecond, wakeupBurst)
	if o.InProcess {
		limiter = rate.NewLimiter(wakeupsPerSecondInProcess, wakeupBurstInProcess)
	}
	return &Wakeups{
		WakeupOptions: o,
		refused:       newRefusals(),
		limiter:       limiter,
		kick:          make(chan struct{}, 1), matched: map[string]bool{},
		changedClaims: cache.NewExpiring(), mapped: cache.NewExpiring(),
		history: newFreed(), fresh: newFreed(),
		events: make([]ledger.Event, 0, eventBatch),
		since:  o.Ledger.Revision(),
	}
}

// Refused records that filter refused the pod capacity on at least one of the nodes
// offered. revision is the ledger's from before that was decided, so that capacity
// freed in between is not missed. overLimit says that it was refused whatever is free.
func (w *Wakeups) Refused(pod *cluster.Pod, revision uint64, offered []string, overLimit bool) {
	if pod.Ref.UID == "" {
		return
	}
	r := &refusal{pod: pod, revision: revision, at: time.Now(), overLimit: overLimit, sample: len(offered)}
	if len(offered) <= maxOffered {
		r.offered = make([]unique.Handle[string], len(offered))
		for i, node := range offered {
			r.offered[i] = unique.Make(node)
		}
	}
	w.refused.add(r)
	if w.claimChanged(pod) || w.justMapped(pod) {
		w.refused.tell(r, news{many: true}, r.at)
	}
	if w.isElsewhere(pod, offered) {
		w.refused.tell(r, news{many: true}, r.at.Add(announcedDelay))
	}
	if w.lastFreed.Load() > revision {
		w.mu.Lock()
		w.late = append(w.late, r)
		w.mu.Unlock()
		w.kickLoop()
	}
}

// isElsewhere reports whether capacity is kept for a pod on a node that its scheduler did not offer. The scheduler may see no
// room there yet, for it has not heard of a pod that left, and nothing tells it to look again when it does.
func (w *Wakeups) isElsewhere(pod *cluster.Pod, offered []string) bool {
	if len(offered) == 0 {
		return false
	}
	place, ok := w.Ledger.PlaceOf(pod.Ref)
	return ok && !slices.Contains(offered, place)
}

// Wake wakes a pod whatever is free: it was promised another attempt.
func (w *Wakeups) Wake(pod *cluster.Pod) {
	r := &refusal{pod: pod, at: time.Now()}
	w.refused.add(r)
	w.refused.tell(r, news{sure: true}, r.at)
}

// LastCaller returns the caller that filter refused a pod that is still pending last, "" where there was none or limits are
// nobody's.
func (w *Wakeups) LastCaller(pod types.UID) (caller string) {
	if r := w.refused.of(pod); r != nil {
		caller = r.pod.Caller
	}
	return caller
}

// Matched says that Reservations names a reservation of a namespace which it did not name
// before: capacity that is held already may be news to the pods there.
func (w *Wakeups) Matched(namespace string) {
	w.mu.Lock()
	w.matched[namespace] = true
	w.mu.Unlock()
	w.kickLoop()
}

// LimitsChanged says that namespaces, or callers, may use more than before, or less.
func (w *Wakeups) LimitsChanged() {
	w.mu.Lock()
	w.relimited = true
	w.mu.Unlock()
	w.kickLoop()
}

// Settled forgets a pod: it is bound, or gone.
func (w *Wakeups) Settled(uid types.UID) { w.refused.forget(uid) }

// CatchUp says that what the ledger has heard since a revision, and hears in the
// next moments, schedulers may have known for long: a watch was broken.
func (w *Wakeups) CatchUp(since uint64) {
	w.mu.Lock()
	if !w.resumed || since < w.resumedAt {
		w.resumed, w.resumedAt = true, since
	}
	w.mu.Unlock()
	w.kickLoop()
}

// Run wakes pods until ctx ends.
func (w *Wakeups) Run(ctx context.Context) error {
	wake, unsubscribe := w.Ledger.Subscribe()
	defer unsubscribe()
	defer w.done.Wait()
	w.done.Go(func() { w.dispatch(ctx) })
	w.done.Go(func() {
		if w.Ready(ctx) == nil {
			w.seed()
		}
	})
	w.run(ctx, wake)
	return nil
}

// seed takes every pending pod for refused by a server that ran before, and every
// node for freed since.
func (w *Wakeups) seed() {
	for pod := range w.Pods.PendingPods() {
		if pod.Deleting || pod.Ref.UID == "" || w.WokenElsewhere(pod.Scheduler) {
			continue
		}
		r := &refusal{pod: pod, at: time.Now()}
		if !w.refused.addFirst(r) {
			continue
		}
		if now, ok := w.Pods.Pod(pod.Ref.Namespace, pod.Ref.Name); !ok || now.Ref.UID != pod.Ref.UID || now.Node != "" || now.Finished {
			w.refused.forget(pod.Ref.UID) // it was settled before it was added
			continue
		}
		w.refused.tell(r, news{many: true, held: true}, r.at)
	}
}

func (w *Wakeups) kickLoop() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// run looks at the refusals when capacity was freed.
func (w *Wakeups) run(ctx context.Context, wake <-chan struct{}) {
	seen := w.since
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-w.kick:
		case <-again.C:
		}
		// Those late now were added when history had at most what is read next.
		late, all := w.takeLate()
		seen = w.readNew(seen)
		for _, r := range late {
			w.look(r, &w.history)
		}
		if w.fresh.empty() && !all {
			continue
		}
		if wait := time.Until(w.nextLook); wait > 0 {
			again.Reset(wait)
			continue
		}
		w.lookAtAll()
	}
}

func (w *Wakeups) takeMatched() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	matched := w.matched
	w.matched, w.relimited = map[string]bool{}, false
	return matched
}

// takeLate also reports whether all refusals are to be looked at, whatever was freed.
func (w *Wakeups) takeLate() (late []*refusal, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	late, w.late = w.late, nil
	return late, len(w.matched) > 0 || w.relimited
}

// readNew reads the ledger's changes since a revision and returns the newest.
func (w *Wakeups) readNew(seen uint64) uint64 {
	now := time.Now()
	w.mu.Lock()
	resumed, since := w.resumed, w.resumedAt
	w.resumed = false
	w.mu.Unlock()
	if resumed {
		w.lateUntil = now.Add(catchUp)
		seen = min(seen, since)
	}
	got := newFreed()
	seen = w.read(&got, seen, w.InProcess || now.Before(w.lateUntil))
	if !got.empty() {
		w.fresh.add(&got)
		w.history.add(&got)
		if newest := got.newest(); newest > w.lastFreed.Load() {
			w.lastFreed.Store(newest)
		}
	}
	return seen
}

// lookAtAll looks at every refusal for what was freed. It costs time that grows
// with the refusals, so the loop rests afterwards.
func (w *Wakeups) lookAtAll() {
	began := time.Now()
	matched := w.takeMatched()
	w.looking.Lock()
	w.all = w.refused.appendAll(w.all[:0])
	for _, r := range w.all {
		w.look(r, &w.fresh)
		if matched[r.pod.Ref.Namespace] {
			w.lookAtSlots(r)
		}
	}
	w.looking.Unlock()
	clear(w.all)
	w.fresh.clear()
	w.history.prune(began.Add(-raceWindow))
	took := time.Since(began)
	w.nextLook = time.Now().Add(restShare * took)
}
