package controller

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/test/background"
)

// fakePatcher records who was woken, in order; answer decides how a patch ends.
type fakePatcher struct {
	mu     sync.Mutex
	woken  []string
	values map[string]bool // of the annotation, so far
	answer func(ctx context.Context, pod ledger.PodRef) error
}

func (f *fakePatcher) Annotate(ctx context.Context, pod ledger.PodRef, key, value string) error {
	if key != v1alpha1.RetryAnnotation || value == "" {
		return fmt.Errorf("unexpected annotation %s=%q", key, value)
	}
	if f.answer != nil {
		if err := f.answer(ctx, pod); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.woken = append(f.woken, pod.Name)
	if f.values == nil {
		f.values = map[string]bool{}
	}
	f.values[value] = true
	return nil
}

func (f *fakePatcher) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.woken...)
}

func silentLog() logrus.FieldLogger {
	log, _ := logrustest.NewNullLogger()
	return log
}

// world is a ledger with nodes of 4 CPU each and a started Wakeups.
type world struct {
	t        *testing.T
	ledger   *ledger.Ledger
	question *placement.Builder
	wakeups  *Wakeups
	patcher  *fakePatcher
	pods     *cluster.Pods
	// elsewhere reports whether another one wakes the pods of a scheduler at the start.
	elsewhere func(scheduler string) bool
	// send reports whether a pod is sent to free capacity.
	send  func(pod *cluster.Pod, offered int) bool
	ready chan struct{} // closed: the server is ready
	count atomic.Int64
}

// advance lets time pass in the bubble and waits until everybody has acted.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func newWorld(t *testing.T, nodes ...string) *world {
	w := makeWorld(t, nodes...)
	background.Run(t, w.wakeups.Run)
	return w
}

// makeWorld starts nothing.
func makeWorld(t *testing.T, nodes ...string) *world {
	w := &world{t: t, ledger: ledger.New(ledger.Options{FirstRevision: 100}), patcher: &fakePatcher{}, pods: cluster.NewPods(), ready: make(chan struct{})}
	placementtest.Nodes(w.ledger, 4000, nodes...)
	w.question = placementtest.NewBuilder(w.ledger)
	w.elsewhere = func(string) bool { return false }
	w.send = func(*cluster.Pod, int) bool { return false }
	w.wakeups = NewWakeups(WakeupOptions{
		Ledger: w.ledger.Reader, Question: w.question, Patcher: w.patcher, Pods: w.pods, Log: silentLog(), WokenElsewhere: func(scheduler string) bool { return w.elsewhere(scheduler) },
		Steer: func(*cluster.Pod) bool { return false }, NominateNow: func(pod *cluster.Pod, offered int) bool { return w.send(pod, offered) }, OnWakeup: func() { w.count.Add(1) },
		Ready: func(ctx context.Context) error {
			select {
			case <-w.ready:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
	return w
}

// put has the cluster have these pods.
func (w *world) put(pods ...*cluster.Pod) {
	for _, pod := range pods {
		w.pods.Put(pod)
	}
}

// pod also asks for one of each of some extended resources.
func (w *world) pod(name, cpu string, priority int32, extended ...v1.ResourceName) *cluster.Pod {
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
	for _, name := range extended {
		requests[name] = resource.MustParse("1")
	}
	info, err := cluster.Reader{Table: w.ledger.Table()}.NewPod(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"name": name},
		},
		Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{{Resources: v1.ResourceRequirements{
			Requests: requests,
		}}}},
	})
	require.NoError(w.t, err)
	return info
}

// match has the reservation r match the pods of these names.
func (w *world) match(names ...string) {
	rsv := &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: testSlot.Namespace, Name: testSlot.Name},
		Spec: v1alpha1.ReservationSpec{
			Slots: []v1alpha1.Slot{{Name: testSlot.Slot}},
			Consumers: &v1alpha1.ConsumerSpec{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "name", Operator: metav1.LabelSelectorOpIn, Values: names},
			}}},
		},
	}
	require.NoError(w.t, w.question.Matcher.Set(rsv))
}

func (w *world) reserve(p *cluster.Pod, node string, ttl time.Duration) {
	now := time.Now()
	result := w.ledger.Reserve(ledger.NewPlan([]ledger.Placement{p.Placement(node)}, ledger.AllOrNothing, now.Add(ttl)), now)
	require.Equal(w.t, 1, result.Granted)
}

func (w *world) observeBound(p *cluster.Pod, node string) {
	w.ledger.ObservePod(ledger.PodObservation{Pod: p.Ref, Node: node, Request: p.Request})
}

// refuse does what filter does for a pod that fits none of the nodes offered.
func (w *world) refuse(p *cluster.Pod, offered ...string) {
	w.wakeups.Refused(p, w.ledger.Revision(), offered, false)
}

func (w *world) unreserve(p *cluster.Pod, node string) {
	w.ledger.Unreserve([]ledger.Placement{p.Placement(node)})
}
