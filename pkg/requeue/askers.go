package requeue

import "sync"

// maxAskers is for how many schedulers the caller that asks is remembered. Callers may make up names of schedulers.
const maxAskers = 1000

// askers are the callers that ask for schedulers.
type askers struct {
	mu     sync.RWMutex // guards what follows
	byName map[string]string
}

// Asks remembers that a caller, whom no gate refuses, asks where a pod of a scheduler may go.
func (w *Pods) Asks(scheduler, caller string) {
	a := &w.askers
	a.mu.RLock()
	known, ok := a.byName[scheduler]
	a.mu.RUnlock()
	if ok && known == caller {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byName == nil {
		a.byName = map[string]string{}
	}
	if _, ok := a.byName[scheduler]; ok || len(a.byName) < maxAskers {
		a.byName[scheduler] = caller
	}
}

// AskedBy returns the caller that asked last where a pod of a scheduler may go. asks is false where none has: it may
// not be known yet, or the scheduler binds pods without asking.
func (w *Pods) AskedBy(scheduler string) (caller string, asks bool) {
	w.askers.mu.RLock()
	defer w.askers.mu.RUnlock()
	caller, asks = w.askers.byName[scheduler]
	return caller, asks
}
