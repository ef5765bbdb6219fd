package remote

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const (
	// maxTold is how many pods one request tells of, and tellPause how long after its answer the next one is sent: together
	// as many as the server looks at, and reads if its watch has not brought them.
	maxTold   = 100
	tellPause = 500 * time.Millisecond
	// maxUntold is how many pods wait to be told of. Beyond it the oldest are forgotten: they are refused again.
	maxUntold = 2000
)

// Refused implements schedulerplugin.Backend. The server finds out by itself which nodes refuse the pod, and why.
func (b *backend) Refused(pod *cluster.Pod, _ []string) { b.teller.add(pod.Ref) }

// tell has the server remember that pods were refused.
func (b *backend) tell(ctx context.Context, pods []ledger.PodRef) error {
	names := make([]reserver.PodName, len(pods))
	for i, pod := range pods {
		names[i] = reserver.PodName{Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID)}
	}
	_, err := b.reserving.TellRefused(ctx, names)
	return err
}

// teller tells of pods that were refused, one request at a time. Make one with newTeller.
type teller struct {
	tell func(ctx context.Context, pods []ledger.PodRef) error
	log  logrus.FieldLogger
	wake chan struct{}

	mu     sync.Mutex // guards what follows
	untold []ledger.PodRef
	known  map[ledger.PodRef]bool // those of untold
}

func newTeller(tell func(context.Context, []ledger.PodRef) error, log logrus.FieldLogger) *teller {
	return &teller{tell: tell, log: log, wake: make(chan struct{}, 1), known: map[ledger.PodRef]bool{}}
}

// add has a pod told of, once if it is refused again before that. It does not wait.
func (t *teller) add(pod ledger.PodRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known[pod] {
		return
	}
	if len(t.untold) == maxUntold {
		delete(t.known, t.untold[0])
		t.untold = t.untold[1:]
	}
	t.untold = append(t.untold, pod)
	t.known[pod] = true
	select {
	case t.wake <- struct{}{}:
	default: // it has an unread wake-up already
	}
}

// next takes the pods to tell of next, the oldest first.
func (t *teller) next() []ledger.PodRef {
	t.mu.Lock()
	defer t.mu.Unlock()
	pods := t.untold[:min(len(t.untold), maxTold)]
	t.untold = t.untold[len(pods):]
	for _, pod := range pods {
		delete(t.known, pod)
	}
	return pods
}

// run tells until ctx ends. What the server does not take is dropped, and the log says so once until it takes some again.
func (t *teller) run(ctx context.Context) error {
	failing := false
	for {
		select {
		case <-t.wake:
		case <-ctx.Done():
			return nil
		}
		for pods := t.next(); len(pods) > 0; pods = t.next() {
			err := t.tell(ctx, pods)
			if err != nil && !failing && ctx.Err() == nil {
				t.log.WithError(err).Warn("The server is not told which pods are refused, so its lists of refusals and of pods that wait lack them")
			}
			failing = err != nil
			select {
			case <-time.After(tellPause):
			case <-ctx.Done():
				return nil
			}
		}
	}
}
