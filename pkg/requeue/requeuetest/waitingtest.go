// Package requeuetest makes requeue.Pods for the tests of packages that use them. Writes remembers what they write.
package requeuetest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	logtest "github.com/sirupsen/logrus/hooks/test"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/requeue"
)

// Writes remembers what is written to pods.
type Writes struct {
	mu        sync.Mutex // guards what follows
	woken     []string
	nominated map[string]string
	told      []string
}

// Woken are the names of the pods that an annotation was written to, in order.
func (w *Writes) Woken() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.woken)
}

// Nominated is the node that a pod of a name is nominated for, "" for none.
func (w *Writes) Nominated(pod string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nominated[pod]
}

// Told are the Events on pods, in order: "pod reason: note".
func (w *Writes) Told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.told)
}

// Forget forgets what was written.
func (w *Writes) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken, w.nominated, w.told = nil, map[string]string{}, nil
}

// Eventf implements events.EventRecorder.
func (w *Writes) Eventf(on, _ runtime.Object, _, reason, _, note string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	about, _ := on.(*v1.ObjectReference)
	w.told = append(w.told, fmt.Sprintf("%s %s: %s", about.Name, reason, fmt.Sprintf(note, args...)))
}

// Annotate implements requeue.Patcher.
func (w *Writes) Annotate(_ context.Context, pod ledger.PodRef, _ map[string]string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken = append(w.woken, pod.Name)
	return nil
}

// Nominate implements requeue.Nominator.
func (w *Writes) Nominate(_ context.Context, pod ledger.PodRef, _ uint64, node string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nominated[pod.Name] = node
	return nil
}

// Clear implements requeue.Nominator.
func (w *Writes) Clear(_ context.Context, pod ledger.PodRef, _ string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.nominated, pod.Name)
	return nil
}

// New returns the pods that wait of a cluster. They take no pod for refused at the start.
func New(l *gates.GatedLedger, q *placement.Builder, pods *cluster.Pods, nodes *cluster.Nodes,
) (*requeue.Pods, *Writes) {
	log, _ := logtest.NewNullLogger()
	writes := &Writes{nominated: map[string]string{}}
	return requeue.New(requeue.Options{
		Ledger: l.Reader, Gates: l.Gates, Question: q, Pods: pods, Patcher: writes, Nominator: writes, Recorder: writes,
		Metrics: metrics.New(), Log: log, Nodes: nodes,
		ClaimTrouble: func(*cluster.Pod) (ledger.Reason, string) { return ledger.Fits, "" },
		Ready: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
	}), writes
}

// Hosted returns the pods that wait of a scheduler in the same process.
func Hosted(l *gates.GatedLedger, q *placement.Builder) (*requeue.Pods, *Writes) {
	log, _ := logtest.NewNullLogger()
	writes := &Writes{}
	return requeue.New(requeue.Options{Ledger: l.Reader, Gates: l.Gates, Question: q, Patcher: writes, Log: log}), writes
}
