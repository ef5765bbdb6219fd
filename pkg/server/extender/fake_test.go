package extender

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/background"
)

// fakeAPI is an API server's pods.
type fakeAPI struct {
	arbiter.API // nothing else is asked
	mu          sync.Mutex
	pods        map[types.NamespacedName]*v1.Pod
	// down is the answer to every read, if there is one, and refuse that to every
	// binding.
	down   error
	refuse func() error
	posts  int
}

func (a *fakeAPI) put(p *v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = p.DeepCopy()
}

// Get implements arbiter.API.
func (a *fakeAPI) Get(_ context.Context, namespace, name string) (*v1.Pod, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down != nil {
		return nil, a.down
	}
	p, ok := a.pods[types.NamespacedName{Namespace: namespace, Name: name}]
	if !ok {
		return nil, apierrors.NewNotFound(v1.Resource("pods"), name)
	}
	return p.DeepCopy(), nil
}

// Bind implements arbiter.API.
func (a *fakeAPI) Bind(_ context.Context, b *v1.Binding) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.posts++
	if a.refuse != nil {
		return a.refuse()
	}
	a.pods[types.NamespacedName{Namespace: b.Namespace, Name: b.Name}].Spec.NodeName = b.Target.Name
	return nil
}

var errDown = errors.New("no route to the API server")

// writes are what is written to pods to have schedulers try them again: who was
// woken, and who was nominated to which node.
type writes struct {
	mu        sync.Mutex
	woken     []string
	nominated map[string]string
}

// Annotate implements controller.PodPatcher.
func (w *writes) Annotate(_ context.Context, pod ledger.PodRef, _, _ string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken = append(w.woken, pod.Name)
	return nil
}

// Nominate implements steering.Nominator.
func (w *writes) Nominate(_ context.Context, pod ledger.PodRef, node string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nominated[pod.Name] = node
	return nil
}

// Clear implements steering.Nominator.
func (w *writes) Clear(context.Context, ledger.PodRef, string) error { return nil }

// bring has the watch bring a pod as it is.
func (w *world) bring(p *v1.Pod) {
	r := cluster.Reader{Table: w.ledger.Table()}.Compact(p)
	w.store.Put(r)
	w.store.Seen(r.ResourceVersion)
}

// create makes a pod one that the API server has, and the watch has brought.
func (w *world) create(p *v1.Pod) {
	w.api.put(p)
	w.bring(p)
}

// wokenAfter returns who has been woken a while after something happened. The
// caller is in a bubble.
func (w *world) wokenAfter(event func()) []string {
	defer background.Run(w.t, w.wakeups.Run)()
	event()
	<-time.After(3 * time.Second)
	w.writes.mu.Lock()
	defer w.writes.mu.Unlock()
	return w.writes.woken
}

// grow gives nodes capacity for everybody.
func (w *world) grow(nodes ...string) func() {
	return func() {
		for _, name := range nodes {
			if name != "" {
				w.node(name, 64000, 1<<40)
			}
		}
	}
}

// counts returns the counters of a family, by the labels named.
func (w *world) counts(family string, labels ...string) map[string]int {
	w.t.Helper()
	families, err := w.metrics.Gatherer().Gather()
	require.NoError(w.t, err)
	counts := map[string]int{}
	for _, f := range families {
		if f.GetName() != "globalreserve_"+family {
			continue
		}
		for _, m := range f.GetMetric() {
			key := ""
			for i, label := range labels {
				for _, l := range m.GetLabel() {
					if l.GetName() == label {
						key += map[bool]string{true: " "}[i > 0] + l.GetValue()
					}
				}
			}
			counts[key] += int(m.GetCounter().GetValue())
		}
	}
	return counts
}

func (w *world) requests() map[string]int { return w.counts("requests_total", "verb", "code") }

func (w *world) decisions() map[string]int {
	return w.counts("decisions_total", "verb", "scheduler", "result")
}

func (w *world) conflicts() map[string]int {
	return w.counts("conflicts_total", "scheduler", "resource")
}

// match has the reservation "match" match pods of the team t.
func (w *world) match() {
	require.NoError(w.t, w.question.Matcher.Set(&v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "match"},
		Spec: v1alpha1.ReservationSpec{
			Slots:     []v1alpha1.Slot{{Name: "s"}},
			Consumers: &v1alpha1.ConsumerSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "t"}}},
		},
	}))
}

// slot keeps two CPUs of a node.
func (w *world) slot(name, node string, preemptible bool) {
	require.True(w.t, w.ledger.ObserveSlot(ledger.Slot{
		Ref: ledger.SlotRef{Namespace: "ns", Name: name, Slot: "s"}, Node: node, Policy: ledger.Once,
		Request:     &resources.Request{Amounts: []resources.Amount{{Column: resources.CPU, Value: 2000}, {Column: resources.Pods, Value: 1}}},
		Preemptible: preemptible, Priority: -1,
	}))
}

// mayEndSlots reports whether a bind of a pod to node c may end the slot there.
func (w *world) mayEndSlots(p *v1.Pod) bool {
	_, err := w.o.Arbiter.AdmitBinding(context.Background(), &arbiter.BindingQuery{
		Pod: ledger.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, Node: "c", DryRun: true,
	})
	return err == nil
}

// assertUntold checks that nobody but the caller has heard of a pod.
func (w *world) assertUntold(t *testing.T, p *v1.Pod, nodes ...string) {
	t.Helper()
	assert.Empty(t, w.everywhere)
	assert.False(t, w.mayEndSlots(p))
	assert.Empty(t, w.wokenAfter(w.grow(nodes...)))
	assert.Empty(t, w.writes.nominated)
}
