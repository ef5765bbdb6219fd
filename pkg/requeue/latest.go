package requeue

// maxLatest is how many of the latest refusals are remembered.
const maxLatest = 10_000

// latest are the latest refusals of all pods.
type latest struct {
	ring  []*Refusal // the refusal of number n is at n % maxLatest
	count uint64     // how many there were
}

// Refused remembers a refusal, and that its pod waits. It takes the memory of r over, but of no strings. It reports
// whether the pod waits, and returns the refusal before, nil where there was none.
func (w *Pods) Refused(r *Refusal) (before *Refusal, waits bool) {
	r.compact()
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &w.latest
	r.Number = l.count + 1
	if l.count < maxLatest {
		l.ring = append(l.ring, r)
	} else {
		l.ring[l.count%maxLatest] = r
	}
	l.count++
	return w.refused(r)
}

// RefusedAgain remembers a refusal that is one more of many. It is the last of its pod, but not among the latest of
// all, as it would drive out those of others.
func (w *Pods) RefusedAgain(r *Refusal) {
	r.compact()
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Number = w.latest.count
	w.refused(r)
}

// refused remembers that a pod waits, if it does. mu is held.
func (w *Pods) refused(r *Refusal) (before *Refusal, waits bool) {
	if !r.waits() {
		return nil, false
	}
	known := w.record(r.Rejection.Pod)
	if known.ref != r.Rejection.Pod {
		return nil, false // another pod has the UID
	}
	if known.Times == 0 {
		known.Since = r.At
	}
	before, known.Last = known.Last, r
	known.Times++
	if known.woken {
		known.woken = false
		w.Metrics.ObserveVainWakeup()
	}
	return before, true
}

// RefusalsAfter returns the refusals that are remembered after the one of a number, oldest first, and the number of the
// last there was.
func (w *Pods) RefusalsAfter(number uint64) (refusals []*Refusal, last uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &w.latest
	oldest := l.count - uint64(len(l.ring))
	from := min(max(number, oldest), l.count)
	refusals = make([]*Refusal, 0, l.count-from)
	for n := from; n < l.count; n++ {
		refusals = append(refusals, l.ring[n%maxLatest])
	}
	return refusals, l.count
}
