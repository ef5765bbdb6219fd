package requeue

// maxAskers is for how many schedulers the caller that asks is remembered. Callers may make up names of schedulers.
const maxAskers = 1000

// Asks remembers that a caller, whom no gate refuses, asks where a pod of a scheduler may go.
func (w *Pods) Asks(scheduler, caller string) {
	w.asking.Lock()
	defer w.asking.Unlock()
	if len(w.askers) == maxAskers {
		clear(w.askers) // those there are ask again
	}
	w.askers[scheduler] = caller
}

// AskedBy returns the caller that asked last where a pod of a scheduler may go. asks is false where none has: it may
// not be known yet, or the scheduler binds pods without asking.
func (w *Pods) AskedBy(scheduler string) (caller string, asks bool) {
	w.asking.Lock()
	defer w.asking.Unlock()
	caller, asks = w.askers[scheduler]
	return caller, asks
}
