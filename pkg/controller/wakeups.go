package controller

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// RetryAnnotation is patched on a pending pod to make its scheduler try it
// again. kube-scheduler puts a pod that an extender refused back into its queue
// on any event about it, and a changed annotation is one.
const RetryAnnotation = "globalreserve.io/retry"

// The rate of wake-ups, and how many may come at once: each is a write to the
// API server and a scheduling attempt.
const (
	wakeupsPerSecond = 100
	wakeupBurst      = 50
)

// eventBatch is how many events are read at once.
const eventBatch = 1024

// raceWindow is how much later than a scheduler the ledger may hear of an event
// both watch. A scheduler that was told of freed room first, asked, and was
// refused by a ledger that had not heard of it yet would not ask again.
const raceWindow = 3 * time.Second

// patchTimeout bounds one wake-up, retryDelay spaces the tries of one that failed.
const (
	patchTimeout = 5 * time.Second
	retryDelay   = time.Second
)

// PodPatcher changes an annotation of a pod. The patch must apply only to the
// pod with the given UID.
type PodPatcher interface {
	Annotate(ctx context.Context, pod ledger.PodRef, key, value string) error
}

// Reservations says which reserved room pods may use.
type Reservations interface {
	// Candidates returns the holds a pod may use, the preferred ones first.
	Candidates(pod *podinfo.Info) []ledger.HoldRef
}

// WakeupOptions configures Wakeups. All fields are needed that do not say
// otherwise.
type WakeupOptions struct {
	Ledger  *ledger.Ledger
	Patcher PodPatcher
	Log     logrus.FieldLogger
	// Reservations is nil where pods use no holds but those kept for them alone.
	Reservations Reservations
	// Steer wakes a pod by sending it to a node that holds room for it. It reports
	// false where the pod has to be woken otherwise. nil never does.
	Steer func(pod *podinfo.Info) bool
	// OnWakeup is called after each pod that was woken.
	OnWakeup func()
}

// Wakeups wakes pods that filter refused, when room is freed that they may fit
// in: all of it where only the ledger knows it was freed (a reservation expired,
// was given back, a bind failed), and, where schedulers hear of it themselves,
// for pods refused just before (see raceWindow). Pods are woken in order of
// priority, and only if they fit one of the nodes with freed room at that moment.
// Room newly held frees nothing, but wakes the pods that may use it.
type Wakeups struct {
	WakeupOptions
	refused refusals
	limiter *rate.Limiter

	// lastFreed is the newest revision at which room was freed. It is set
	// before the refused pods are gone through and read after one was added, so
	// that no pod slips through between the two.
	lastFreed atomic.Uint64

	lateMu sync.Mutex
	late   map[types.UID]struct{} // refused with an older view than lastFreed, or to be tried again
	kick   chan struct{}          // late has become non-empty

	// Of the loop alone:
	history map[string]freedRoom // by node
	events  []ledger.Event       // empty; memory that is used again for every read

	cancel context.CancelFunc
	done   sync.WaitGroup
}

// freedRoom is the last time room was freed on a node.
type freedRoom struct {
	revision uint64
	// silent is the last revision at which it was freed without an event that
	// schedulers watch; 0 if there was none.
	silent uint64
	// held is the last revision at which a hold was placed there; 0 if there was
	// none.
	held uint64
	at   time.Time
}

// newsTo reports whether a scheduler that was refused does not know of the room.
func (f freedRoom) newsTo(r *refusal) bool {
	return f.silent > r.revision || (f.revision > r.revision && f.at.Sub(r.at) < raceWindow)
}

// NewWakeups returns Wakeups that are not started.
func NewWakeups(o WakeupOptions) *Wakeups {
	if o.Reservations == nil {
		o.Reservations = noReservations{}
	}
	if o.Steer == nil {
		o.Steer = func(*podinfo.Info) bool { return false }
	}
	return &Wakeups{
		WakeupOptions: o,
		refused:       refusals{byUID: map[types.UID]refusal{}},
		limiter:       rate.NewLimiter(wakeupsPerSecond, wakeupBurst),
		late:          map[types.UID]struct{}{},
		kick:          make(chan struct{}, 1),
		history:       map[string]freedRoom{},
		events:        make([]ledger.Event, 0, eventBatch),
	}
}

// Refused records that filter refused the pod room on at least one node.
// revision is the ledger's from before that was decided, so that room freed in
// between is not missed.
func (w *Wakeups) Refused(pod *podinfo.Info, revision uint64) {
	if pod.Ref.UID == "" {
		return
	}
	w.refused.add(refusal{pod: pod, revision: revision, at: time.Now()})
	if w.lastFreed.Load() > revision {
		w.tryLate(pod.Ref.UID)
	}
}

// Wake wakes a pod whatever is free: it was promised another attempt.
func (w *Wakeups) Wake(pod *podinfo.Info) {
	w.refused.add(refusal{pod: pod, at: time.Now(), promised: true})
	w.tryLate(pod.Ref.UID)
}

// Settled forgets a pod: it is bound, or gone.
func (w *Wakeups) Settled(uid types.UID) { w.refused.forget(uid) }

// Start runs the loop until Stop.
func (w *Wakeups) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	wake, unsubscribe := w.Ledger.Subscribe()
	seen := w.Ledger.Revision()
	w.done.Go(func() {
		defer unsubscribe()
		w.run(ctx, wake, seen)
	})
}

// Stop ends the loop and waits for it.
func (w *Wakeups) Stop() {
	w.cancel()
	w.done.Wait()
}

func (w *Wakeups) tryLate(uid types.UID) {
	w.markLate(uid)
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

func (w *Wakeups) markLate(uid types.UID) {
	w.lateMu.Lock()
	defer w.lateMu.Unlock()
	w.late[uid] = struct{}{}
}

// takeLate empties the set of late refusals and returns them.
func (w *Wakeups) takeLate() []refusal {
	w.lateMu.Lock()
	late := w.late
	w.late = map[types.UID]struct{}{}
	w.lateMu.Unlock()
	refused := make([]refusal, 0, len(late))
	for uid := range late {
		if r, ok := w.refused.get(uid); ok {
			refused = append(refused, r)
		}
	}
	slices.SortFunc(refused, byPriority)
	return refused
}

func (w *Wakeups) run(ctx context.Context, wake <-chan struct{}, seen uint64) {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-w.kick:
		case <-retry.C:
		}
		var freed map[string]freedRoom
		seen, freed = w.readEvents(seen)
		failed := false
		if len(freed) > 0 {
			failed = w.wakeAll(ctx, w.refused.all(), freed)
		}
		if late := w.takeLate(); len(late) > 0 {
			failed = w.wakeAll(ctx, late, w.history) || failed
		}
		if failed {
			retry.Reset(retryDelay)
			continue
		}
		w.pruneHistory()
	}
}

// readEvents notes the nodes on which room was freed since a revision. It
// returns them and the revision it read up to.
func (w *Wakeups) readEvents(seen uint64) (uint64, map[string]freedRoom) {
	freed := map[string]freedRoom{}
	for {
		events, ok := w.Ledger.EventsSince(w.events[:0], seen, eventBatch)
		if !ok {
			// Too much has happened to tell where: treat every node as freed.
			seen = w.Ledger.Revision()
			w.Ledger.VisitNodes(func(name string) {
				freed[name] = freedRoom{revision: seen, silent: seen, held: seen, at: time.Now()}
			})
			events = events[:0]
		}
		for i := range events {
			seen = events[i].Revision
			noteFreed(freed, &events[i])
		}
		if len(events) < eventBatch {
			break
		}
	}
	for node, f := range freed {
		f.silent = max(f.silent, w.history[node].silent)
		f.held = max(f.held, w.history[node].held)
		w.history[node] = f
		if newest := max(f.revision, f.held); newest > w.lastFreed.Load() {
			w.lastFreed.Store(newest)
		}
	}
	return seen, freed
}

func noteFreed(freed map[string]freedRoom, e *ledger.Event) {
	node, silent := e.Node, false
	switch e.Type {
	case ledger.ClaimExpired, ledger.ClaimUnreserved, ledger.ClaimBindFailed,
		ledger.HoldReleased, ledger.HoldExpired, ledger.HoldPreempted, ledger.HoldConsumed:
		silent = true // a consumed hold gives back what its pod did not need
	case ledger.ClaimRemoved:
		silent = e.State != ledger.Bound // schedulers hear only of bound pods going
	case ledger.ClaimMoved:
		node, silent = e.MovedFrom, true
	case ledger.ClaimResized, ledger.NodeUpdated, ledger.HoldPlaced:
	default:
		return
	}
	f := freed[node]
	f.at = time.Now()
	switch {
	case e.Type == ledger.HoldPlaced:
		f.held = e.Revision
	case silent:
		f.silent, f.revision = e.Revision, e.Revision
	default:
		f.revision = e.Revision
	}
	freed[node] = f
}

// pruneHistory forgets room freed so long ago that no refusal still on its way
// here can have been decided before it.
func (w *Wakeups) pruneHistory() {
	oldest := time.Now().Add(-2 * raceWindow)
	for node, f := range w.history {
		if f.at.Before(oldest) {
			delete(w.history, node)
		}
	}
}

// wakeAll wakes, in the order given, the refused pods for which there is news
// and that fit. It reports whether some could not be told; those are late then.
func (w *Wakeups) wakeAll(ctx context.Context, refused []refusal, freed map[string]freedRoom) (failed bool) {
	for i := range refused {
		r := &refused[i]
		held := w.fitsHeld(r, freed)
		if !held && !r.promised && !w.fitsFreed(r, freed) {
			continue
		}
		if w.limiter.Wait(ctx) != nil {
			return false // stopping
		}
		if !w.wakePod(ctx, r, held) {
			w.markLate(r.pod.Ref.UID)
			failed = true
		}
	}
	return failed
}

// fitsFreed reports whether the pod fits a node with freed room it has not
// heard of.
func (w *Wakeups) fitsFreed(r *refusal, freed map[string]freedRoom) bool {
	const chunk = 64 // most pods fit the first nodes, if any
	nodes := make([]string, 0, chunk)
	verdicts := make([]ledger.Verdict, 0, chunk)
	placement := w.placement(r.pod)
	fits := func() bool {
		verdicts = w.Ledger.AppendFit(verdicts[:0], &placement, nodes)
		nodes = nodes[:0]
		return slices.ContainsFunc(verdicts, func(v ledger.Verdict) bool { return v.Reason == ledger.Fits })
	}
	for node, f := range freed {
		if !f.newsTo(r) {
			continue
		}
		if nodes = append(nodes, node); len(nodes) == chunk && fits() {
			return true
		}
	}
	return len(nodes) > 0 && fits()
}

func (w *Wakeups) placement(pod *podinfo.Info) ledger.Placement {
	placement := pod.Placement("")
	placement.Holds = w.Reservations.Candidates(pod)
	return placement
}

// fitsHeld reports whether the pod could use a hold that is new to it.
func (w *Wakeups) fitsHeld(r *refusal, freed map[string]freedRoom) bool {
	for _, f := range freed {
		if f.held > r.revision {
			placement := w.placement(r.pod)
			return slices.ContainsFunc(w.Ledger.UsableHolds(&placement), func(h ledger.UsableHold) bool {
				return freed[h.Node].held > r.revision
			})
		}
	}
	return false
}

// wakePod wakes one pod, by sending it to a node if that is what it waited for,
// else by a patch. It reports false where it should be tried again.
func (w *Wakeups) wakePod(ctx context.Context, r *refusal, held bool) bool {
	log := w.Log.WithFields(logrus.Fields{"pod": r.pod.Ref.String(), "uid": r.pod.Ref.UID})
	latest, pending := w.refused.get(r.pod.Ref.UID)
	if !pending || latest.revision != r.revision {
		return true // settled, or it has been tried again meanwhile
	}
	if held && w.Steer(r.pod) {
		w.refused.forget(r.pod.Ref.UID)
		w.OnWakeup()
		log.WithField("priority", r.pod.Priority).Info("sent a pending pod to room that is held for it")
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	value := strconv.FormatUint(w.Ledger.Revision(), 10)
	err := w.Patcher.Annotate(ctx, r.pod.Ref, RetryAnnotation, value)
	switch {
	case err == nil:
		w.refused.forget(r.pod.Ref.UID)
		w.OnWakeup()
		log.WithField("priority", r.pod.Priority).Info("woke a pending pod: room was freed for it")
		return true
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		w.refused.forget(r.pod.Ref.UID)
		return true
	default:
		log.WithError(err).Warn("could not wake a pending pod; will try again")
		return false
	}
}

type noReservations struct{}

func (noReservations) Candidates(*podinfo.Info) []ledger.HoldRef { return nil }
