package requeue

import (
	"context"
	"iter"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// The rate of wake-ups, and how many may come at once: each is a write to the API server and a scheduling attempt.
const (
	wakeupsPerSecond = 100
	wakeupBurst      = 50
	// The same in the scheduler's own process, where it is only an attempt.
	wakeupsPerSecondInProcess = 2000
	wakeupBurstInProcess      = 500
)

// raceWindow is how much later than a scheduler the ledger may receive an event that both watch: a scheduler refused
// meanwhile does not ask again. It is longer than the longest pause of the reflectors in pkg/kube/cluster (7.5 s).
const raceWindow = 8 * time.Second

// announcedDelay is how long a scheduler has to act on freed capacity that it sees itself, before its pods are woken
// for it.
const announcedDelay = time.Second

// catchUp is how long after a watch was resumed what it brings may be old.
const catchUp = 3 * time.Second

// restShare is how many times as long as a look at all attempts the loop rests after it.
const restShare = 4

// Patcher sets annotations of a pod. The patch must apply only to the pod with the given UID.
type Patcher interface {
	Annotate(ctx context.Context, pod ledger.PodRef, annotations map[string]string) error
}

// loop is what brings freed capacity and attempts together. Pods are woken for all capacity of which only the ledger
// knows that it was freed, or learned late. Where schedulers see it themselves, only pods that were refused just before
// are woken (see raceWindow). Schedulers do not repeat to a server what one before it refused: once it is ready, every
// pending pod counts as refused and every node as freed.
type loop struct {
	journal   *informer.Journal
	history   freed     // what attempts on their way here may not know of
	fresh     freed     // what no attempt was looked at for yet
	now       time.Time // when the journal is read
	lateUntil time.Time
	nextLook  time.Time
	attempts  []*attempt       // empty; memory that is used again for every look
	asked     ledger.Placement // memory that is used again for every pod that is looked at
}

// Await remembers a pod, to be woken for capacity that it was refused on at least one of the nodes offered. revision is
// the ledger's from before that was decided, so that capacity freed in between is not missed. barred says that it was
// refused whatever is free, by a gate or for a limit.
func (w *Pods) Await(pod *cluster.Pod, revision uint64, offered []string, barred bool) {
	if pod.Ref.UID == "" {
		return
	}
	a := &attempt{pod: pod, revision: revision, at: time.Now(), sample: len(offered)}
	if barred {
		placement := pod.Placement("")
		a.barred.Store(true)
		a.gated.Store(w.Gates.Refuse(&placement) != nil)
	}
	if len(offered) <= maxOffered {
		a.offered = handles(offered)
	}
	w.await(a)
	if w.isElsewhere(pod, offered) {
		w.tell(a, news{many: true}, a.at.Add(announcedDelay))
	}
}

// await remembers an attempt that has failed, so that its pod is woken.
func (w *Pods) await(a *attempt) {
	w.failed(a)
	if w.claimChanged(a.pod) {
		w.tell(a, news{many: true}, a.at)
	}
	if a.barred.Load() {
		w.lookAt(a)
	} else {
		w.lookLate(a)
	}
}

// lookLate queues an attempt to be looked at for what was freed since it began.
func (w *Pods) lookLate(a *attempt) {
	if w.lastFreed.Load() > a.revision { // what it was refused for may be over by now
		w.lookAt(a)
	}
}

func (w *Pods) lookAt(a *attempt) {
	w.mu.Lock()
	w.asked.late = append(w.asked.late, a)
	w.mu.Unlock()
	informer.Poke(w.kick)
}

// AwaitGate remembers a pod that a gate refuses, to be woken when the policy lets it in, and writes an Event on why it
// is refused. A pod that waits for another caller, whom the gates let in, is left to that caller.
func (w *Pods) AwaitGate(pod *cluster.Pod, revision uint64, offered []string) {
	if w.waitsForAnother(pod) {
		return
	}
	w.Await(pod, revision, offered, true)
	w.TellRefused(pod, offered)
}

// waitsForAnother reports whether a pod is tried again for another caller, whom the gates let in.
func (w *Pods) waitsForAnother(pod *cluster.Pod) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.byUID[pod.Ref.UID]
	if r == nil || r.attempt == nil || r.attempt.taken || r.attempt.pod.Caller == pod.Caller {
		return false
	}
	placement := r.attempt.pod.Placement("")
	return w.Gates.Refuse(&placement) == nil
}

// isElsewhere reports whether capacity is kept for a pod on a node that its scheduler did not offer. The scheduler may
// see no room there yet, because it has not seen a pod leave, and nothing makes it look again when it does.
func (w *Pods) isElsewhere(pod *cluster.Pod, offered []string) bool {
	if len(offered) == 0 {
		return false
	}
	place, ok := w.Ledger.PlaceOf(pod.Ref)
	return ok && !slices.Contains(offered, place)
}

// Wake wakes a pod whatever is free: it was promised another attempt.
func (w *Pods) Wake(pod *cluster.Pod) {
	if host := w.hostOf(pod.Scheduler); host != nil {
		host.Wake(pod)
		return
	}
	a := &attempt{pod: pod, at: time.Now()}
	w.failed(a)
	w.tell(a, news{sure: true}, a.at)
}

// LastCaller returns the caller that a pod which still waits is tried again for, or else the one that was refused it
// last; "" where there was none.
func (w *Pods) LastCaller(pod types.UID) (caller string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch r := w.byUID[pod]; {
	case r == nil:
		return ""
	case r.attempt != nil:
		return r.attempt.pod.Caller
	case r.Times > 0:
		return r.Last.Caller
	default:
		return ""
	}
}

// Matched says that Reservations names a reservation of a namespace which it did not name
// before: capacity that is held already may be news to the pods there.
func (w *Pods) Matched(namespace string) {
	w.mu.Lock()
	w.asked.matched[namespace] = true
	w.mu.Unlock()
	informer.Poke(w.kick)
	w.passOn(func(host *Pods) { host.Matched(namespace) })
}

// LimitsChanged is called when namespaces, or callers, may use more or less than before, or the policy has changed.
func (w *Pods) LimitsChanged() {
	w.mu.Lock()
	w.asked.relimited = true
	w.mu.Unlock()
	informer.Poke(w.kick)
	w.passOn((*Pods).LimitsChanged)
}

// CatchUp is called after a watch was broken: schedulers may have known for long what the ledger has received since a
// revision, and what it receives in the next moments.
func (w *Pods) CatchUp(since uint64) {
	w.mu.Lock()
	if !w.asked.resumed || since < w.asked.resumedAt {
		w.asked.resumed, w.asked.resumedAt = true, since
	}
	w.mu.Unlock()
	informer.Poke(w.kick)
}

// seed takes pending pods for refused by a server that ran before, and every node for freed since.
func (w *Pods) seed(pending iter.Seq[*cluster.Pod]) {
	for pod := range pending {
		if pod.Deleting || pod.Ref.UID == "" || w.hostOf(pod.Scheduler) != nil || w.attemptOf(pod.Ref.UID) != nil {
			continue
		}
		a := &attempt{pod: pod, at: time.Now()}
		w.failed(a) // one that comes in between is replaced: this one is looked at for all there is
		if now := w.pod(pod.Ref); now == nil || now.Node != "" || now.Finished {
			w.Settled(pod.Ref.UID) // it was settled before it was remembered
			continue
		}
		w.tell(a, news{many: true, held: true}, a.at)
	}
}

// lookWhenFreed looks at the attempts when capacity was freed, until ctx ends.
func (w *Pods) lookWhenFreed(ctx context.Context, changes <-chan struct{}) {
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
		case <-w.kick:
		case <-again.C:
		}
		// Those late now were added when history had at most what is read next.
		late, all := w.takeAsked()
		for _, a := range late {
			w.look(a, &w.loop.history)
		}
		if w.loop.fresh.empty() && !all {
			continue
		}
		if wait := time.Until(w.loop.nextLook); wait > 0 {
			again.Reset(wait)
			continue
		}
		w.lookAtAll()
	}
}

// takeAsked takes the attempts that are late, and then reads the ledger's changes. It also reports whether all attempts
// are to be looked at, whatever was freed.
func (w *Pods) takeAsked() (late []*attempt, all bool) {
	l := &w.loop
	w.mu.Lock()
	late, w.asked.late = w.asked.late, nil
	all = len(w.asked.matched) > 0 || w.asked.relimited
	resumed, since := w.asked.resumed, w.asked.resumedAt
	w.asked.resumed = false
	w.mu.Unlock()
	if l.now = time.Now(); resumed {
		l.lateUntil = l.now.Add(catchUp)
		l.journal.Rewind(since)
	}
	l.journal.CatchUp()
	return late, all
}

// lookAtAll looks at every attempt for what was freed. It costs time that grows
// with the attempts, so the loop rests afterwards.
func (w *Pods) lookAtAll() {
	began := time.Now()
	l := &w.loop
	w.mu.Lock()
	matched := w.asked.matched
	w.asked.matched, w.asked.relimited = map[string]bool{}, false
	w.mu.Unlock()
	w.looking.Lock()
	l.attempts = w.appendAttempts(l.attempts[:0])
	for _, a := range l.attempts {
		w.look(a, &l.fresh)
		if matched[a.pod.Ref.Namespace] {
			w.lookAtSlots(a)
		}
	}
	w.looking.Unlock()
	clear(l.attempts)
	l.fresh.clear()
	l.history.prune(began.Add(-raceWindow))
	l.nextLook = time.Now().Add(restShare * time.Since(began))
}
