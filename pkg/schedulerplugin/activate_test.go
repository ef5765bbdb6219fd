package schedulerplugin

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// A pod that preempted others is woken again: kube-scheduler may keep it from its queue, and forget it there.
func TestPreemptingPodsAreWokenAgain(t *testing.T) {
	ref := ledger.PodRef{Namespace: "ns", Name: "urgent", UID: "1"}
	pod := func(nominated, node string) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID},
			Spec:       v1.PodSpec{NodeName: node}, Status: v1.PodStatus{NominatedNodeName: nominated},
		}
	}
	never := pod("n", "")
	never.Spec.PreemptionPolicy = ptr.To(v1.PreemptNever)
	tests := map[string]struct {
		before, after *v1.Pod // it was woken; the second one is there 50 ms later
		at            []time.Duration
	}{
		"no victims":         {pod("", ""), nil, []time.Duration{0}},
		"has victims":        {pod("n", ""), nil, []time.Duration{100, 200, 400, 800, 1600, 3200, 6400}},
		"is tried too early": {pod("", ""), pod("n", ""), []time.Duration{0, 100, 300, 700, 1500, 3100, 6300}},
		"is bound":           {pod("", ""), pod("n", "n"), []time.Duration{0}},
		"gives its node up":  {pod("n", ""), pod("", ""), []time.Duration{100}},
		"never preempts":     {never, nil, []time.Duration{0}},
		"is another one of its name": {pod("", ""), &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "urgent",
			UID: "2",
		}}, []time.Duration{0}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
				require.NoError(t, store.Add(test.before))
				handle := &fakeHandle{activated: make(chan string, 100)}
				a := newActivator(handle, corelisters.NewPodLister(store), func(*v1.Pod) {}, klog.Background())
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait() // until run has ended
				defer cancel()
				go a.run(ctx)
				began := time.Now()
				require.NoError(t, a.Annotate(ctx, ref, nil))
				if test.after != nil {
					<-time.After(50 * time.Millisecond)
					require.NoError(t, store.Update(test.after))
				}
				var at []time.Duration
				timeout := time.After(10*time.Second - time.Since(began))
				for done := false; !done; {
					select {
					case <-handle.activated:
						at = append(at, time.Since(began)/time.Millisecond)
					case <-timeout:
						done = true
					}
				}
				if test.after != nil && len(at) > 0 && at[0] == 50 {
					at[0] = 0 // it was read late
				}
				assert.Equal(t, test.at, at)
			})
		})
	}
}

func TestHints(t *testing.T) {
	f := newFixture(t)
	pod, bound, unbound := newPod("p", "1"), newPod("bound", "1"), newPod("unbound", "1")
	bound.Spec.NodeName = "a"
	tolerant := newPod("tolerant", "1")
	tolerant.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeUnschedulable, Operator: v1.TolerationOpExists}}
	cordoned := &v1.Node{Spec: v1.NodeSpec{Unschedulable: true}}
	barred := newPod("barred", "1")
	barred.Namespace = "limited"
	info, err := f.read(barred)
	require.NoError(t, err)
	f.ledger.Observer().SetLimits(ledger.OfNamespace, map[string]*ledger.Limits{
		"limited": {Use: []resources.Amount{{Column: resources.CPU, Value: 500}}},
	})
	f.waker.waiting.Await(info, f.server.ledger.Revision(), nil, true)
	for name, tc := range map[string]struct {
		hint          fwk.QueueingHintFn
		pod           *v1.Pod
		before, after any
		want          fwk.QueueingHint
	}{
		"a bound pod is gone":                 {f.afterPod, pod, bound, nil, fwk.Queue},
		"a bound pod was gone":                {f.afterPod, pod, cache.DeletedFinalStateUnknown{Obj: bound}, nil, fwk.Queue},
		"a pending pod is gone":               {f.afterPod, pod, unbound, nil, fwk.QueueSkip},
		"nobody knows what is gone":           {f.afterPod, pod, nil, nil, fwk.Queue},
		"one over a limit, and a pod is gone": {f.afterPod, barred, bound, nil, fwk.QueueSkip},
		"one over a limit, and a node":        {f.afterNode, barred, nil, &v1.Node{}, fwk.QueueSkip},
		"a node":                              {f.afterNode, pod, nil, &v1.Node{}, fwk.Queue},
		"a cordoned node":                     {f.afterNode, pod, nil, cordoned, fwk.QueueSkip},
		"a cordoned node that is tolerated":   {f.afterNode, tolerant, nil, cordoned, fwk.Queue},
		"a pod that cannot be counted":        {f.afterNode, newPod("wrong", "-1"), nil, &v1.Node{}, fwk.QueueSkip},
		"something else":                      {f.afterNode, pod, nil, nil, fwk.Queue},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.hint(klog.Background(), tc.pod, tc.before, tc.after)
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}
}
