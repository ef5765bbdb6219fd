package autoscaling

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// podsWorld is a Holder between a ledger with a node of 4 CPUs, where namespace "small" may use one CPU, and an API
// server that is a fake.
type podsWorld struct {
	*testing.T
	client *fake.Clientset
	ledger *ledger.Ledger
	pods   *cluster.Pods
	rules  *policy.Policy
	h      *Holder
	now    time.Time
	limits [2]map[string]*ledger.Limits // by kind
}

func newPodsWorld(t *testing.T) *podsWorld {
	t.Helper()
	w := &podsWorld{
		T: t, client: fake.NewClientset(), ledger: ledger.New(ledger.Options{}), pods: cluster.NewPods(), now: time.Now(),
		rules: policy.Default(),
	}
	placementtest.Nodes(w.ledger, 4000, "a")
	w.limit(ledger.OfNamespace, "small", 1000)
	log, _ := logtest.NewNullLogger()
	question := placementtest.NewBuilder(w.ledger)
	gated := gatestest.Ledger(w.ledger)
	waits := requeue.New(requeue.Options{Ledger: w.ledger.Reader, Gates: gated.Gates, Question: question, Log: log})
	waits.Asks("s", "listed")
	w.h = NewHolder(Options{
		Ledger: gated, Pods: w.pods, Question: question, Waiting: waits,
		Patcher: requeue.APIPatcher{Pods: w.client.CoreV1(), Term: &election.OwnTerm{}},
		Policy:  policy.NewStore(w.rules, time.Minute), Metrics: metrics.New(), Log: log,
	})
	return w
}

func (w *podsWorld) limit(kind ledger.BudgetKind, name string, milliCPU int64) {
	w.limits[kind] = maps.Clone(w.limits[kind])
	if w.limits[kind] == nil {
		w.limits[kind] = map[string]*ledger.Limits{}
	}
	w.limits[kind][name] = &ledger.Limits{Use: []resources.Amount{{Column: resources.CPU, Value: milliCPU}}}
	w.ledger.SetLimits(kind, w.limits[kind])
}

// tried is a pod that its scheduler has found no node for.
func (w *podsWorld) tried(namespace, name, cpu string) *v1.Pod {
	w.Helper()
	pod, err := w.client.CoreV1().Pods(namespace).Create(w.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), ResourceVersion: "7",
		},
		Spec: v1.PodSpec{SchedulerName: "s", Containers: []v1.Container{{
			Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse(cpu)}},
		}}},
		Status: v1.PodStatus{Conditions: []v1.PodCondition{
			{Type: v1.PodInitialized, Status: v1.ConditionTrue},
			{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: "0/1 nodes"},
		}},
	}, metav1.CreateOptions{})
	require.NoError(w, err)
	w.see(pod)
	return pod
}

// see has the watch bring a pod.
func (w *podsWorld) see(pod *v1.Pod) {
	w.Helper()
	read, err := w.h.Question.Reader.NewPod(pod)
	require.NoError(w, err)
	w.pods.Put(read)
}

// after lets time pass, has what is due written, and returns the pod's condition PodScheduled.
func (w *podsWorld) after(d time.Duration, pod *v1.Pod) (reason, message string) {
	w.Helper()
	w.now = w.now.Add(d)
	for _, due := range w.h.look(w.now) {
		w.h.write(w.Context(), due, w.now)
	}
	got, err := w.client.CoreV1().Pods(pod.Namespace).Get(w.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(w, err)
	w.see(got)
	require.Len(w, got.Status.Conditions, 2)
	assert.Equal(w, v1.ConditionFalse, got.Status.Conditions[1].Status)
	return got.Status.Conditions[1].Reason, got.Status.Conditions[1].Message
}

func TestHoldsBackWhatIsOverAQuota(t *testing.T) {
	w := newPodsWorld(t)
	large, small := w.tried("small", "large", "2"), w.tried("small", "fitting", "1")
	elsewhere := w.tried("other", "large", "2")
	reason, message := w.after(newsEvery, large)
	assert.Equal(t, v1alpha1.PodReasonHeldBack, reason)
	assert.Contains(t, message, "ResourceQuota")
	for _, pod := range []*v1.Pod{small, elsewhere} {
		reason, message = w.after(0, pod)
		assert.Equal(t, v1.PodReasonUnschedulable, reason)
		assert.Equal(t, "0/1 nodes", message, "it is not written")
	}

	// Without news of the pods, the limit counts anew within seconds.
	w.limit(ledger.OfNamespace, "small", 2000)
	reason, _ = w.after(newsEvery, large)
	require.Equal(t, v1alpha1.PodReasonHeldBack, reason)
	reason, message = w.after(allEvery, large)
	assert.Equal(t, v1.PodReasonUnschedulable, reason)
	assert.Contains(t, message, "no limit")
	w.limit(ledger.OfNamespace, "small", 500)
	reason, _ = w.after(allEvery, small)
	assert.Equal(t, v1alpha1.PodReasonHeldBack, reason)
}

func TestHoldsBackWhatIsOverACallersLimit(t *testing.T) {
	w := newPodsWorld(t)
	w.limit(ledger.OfCaller, "listed", 1000)
	pod := w.tried("other", "large", "2")
	reason, message := w.after(allEvery, pod)
	assert.Equal(t, v1alpha1.PodReasonHeldBack, reason)
	assert.Contains(t, message, "schedulers.limits")
	w.h.Waiting.Asks("s", ledger.Trusted)
	reason, _ = w.after(allEvery, pod)
	assert.Equal(t, v1.PodReasonUnschedulable, reason, "who asks now has no limit")
}

// TestPutsBack: what was held back is Unschedulable again when nothing holds it back any more, whatever that was.
func TestPutsBack(t *testing.T) {
	for name, change := range map[string]func(w *podsWorld){
		"switched off": func(w *podsWorld) { w.rules.Autoscaling.HoldBackPods = false },
		"no limits":    func(w *podsWorld) { w.ledger.SetLimits(ledger.OfNamespace, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newPodsWorld(t)
			pod := w.tried("small", "large", "2")
			reason, _ := w.after(newsEvery, pod)
			require.Equal(t, v1alpha1.PodReasonHeldBack, reason)
			change(w)
			reason, _ = w.after(allEvery, pod)
			assert.Equal(t, v1.PodReasonUnschedulable, reason)
		})
	}
}

// TestDoesNotFightTheScheduler: one that writes its reason again after each write is left alone for longer each time,
// whatever its back-off, and one that tries the pod again later is not.
func TestDoesNotFightTheScheduler(t *testing.T) {
	for _, backOff := range []time.Duration{time.Second, 10 * time.Second} {
		w := newPodsWorld(t)
		pod := w.tried("small", "large", "2")
		again := func(after time.Duration) (reason string) {
			w.see(pod) // as its scheduler says
			_, err := w.client.CoreV1().Pods("small").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
			require.NoError(t, err)
			reason, _ = w.after(after, pod)
			return reason
		}
		writes := 0
		for range 10 * time.Minute / backOff {
			if again(backOff) == v1alpha1.PodReasonHeldBack {
				writes++
			}
		}
		assert.LessOrEqual(t, writes, 15, "%v", backOff)
		assert.GreaterOrEqual(t, writes, 8, "%v", backOff)
		again(time.Hour)
		assert.Equal(t, v1alpha1.PodReasonHeldBack, again(time.Minute))
		assert.Equal(t, v1alpha1.PodReasonHeldBack, again(time.Minute))
	}
}

// TestHoldsBackSomeOfEachNamespace: one with many pods does not have others wait.
func TestHoldsBackSomeOfEachNamespace(t *testing.T) {
	w := newPodsWorld(t)
	held := w.tried("small", "held", "2")
	reason, _ := w.after(newsEvery, held)
	require.Equal(t, v1alpha1.PodReasonHeldBack, reason)
	w.h.Pods = cluster.NewPods()
	w.pods = w.h.Pods
	for i := range 3 * podBurst {
		w.tried("small", fmt.Sprint("many-", i), "2")
	}
	w.limit(ledger.OfNamespace, "few", 1000)
	w.tried("few", "large", "2")
	back := w.tried("free", "held", "2")
	back.Status.Conditions[1].Reason = v1alpha1.PodReasonHeldBack
	w.see(back)
	due := w.h.look(w.now.Add(allEvery))
	require.Len(t, due, podBurst)
	for _, namespace := range []string{"free", "few"} {
		assert.True(t, slices.ContainsFunc(due[:3], func(p *cluster.Pod) bool { return p.Ref.Namespace == namespace }))
	}
	assert.Len(t, w.h.look(w.now.Add(allEvery+newsEvery)), podBurst, "the others are news still")
}

func TestHoldsNothingBackThatMayBeBound(t *testing.T) {
	for name, change := range map[string]func(w *podsWorld, pod *v1.Pod){
		"the policy": func(w *podsWorld, _ *v1.Pod) { w.rules.Autoscaling.HoldBackPods = false },
		"no limits":  func(w *podsWorld, _ *v1.Pod) { w.ledger.SetLimits(ledger.OfNamespace, nil) },
		"an error": func(w *podsWorld, pod *v1.Pod) {
			pod.Status.Conditions[1].Reason = v1.PodReasonSchedulerError
			w.see(pod)
		},
		"being deleted": func(w *podsWorld, pod *v1.Pod) { pod.DeletionTimestamp = new(metav1.Now()); w.see(pod) },
		"never tried":   func(w *podsWorld, pod *v1.Pod) { pod.Status.Conditions[1].Type = "Other"; w.see(pod) },
		"bound":         func(w *podsWorld, pod *v1.Pod) { pod.Spec.NodeName = "a"; w.see(pod) },
		"nobody asks":   func(w *podsWorld, pod *v1.Pod) { pod.Spec.SchedulerName = "never-asks"; w.see(pod) },
		"a member of a gang": func(w *podsWorld, pod *v1.Pod) {
			read, err := w.h.Question.Reader.NewPod(pod)
			require.NoError(w, err)
			read.Gang = &kinds.Mark{}
			w.pods.Put(read)
		},
		"held back by the server before": func(w *podsWorld, pod *v1.Pod) { // it would be put back
			pod.Spec.SchedulerName = "has-not-asked-yet"
			pod.Status.Conditions[1].Reason = v1alpha1.PodReasonHeldBack
			w.see(pod)
		},
		"being bound": func(w *podsWorld, pod *v1.Pod) { // it would be put back
			pod.Status.Conditions[1].Reason = v1alpha1.PodReasonHeldBack
			w.see(pod)
			placed := ledger.PodRef{Namespace: "small", Name: pod.Name, UID: pod.UID}
			w.ledger.ObservePod(ledger.PodObservation{Pod: placed, Node: "a", Request: &resources.Request{}, ResourceVersion: 9})
		},
		"a slot that it may use": func(w *podsWorld, pod *v1.Pod) {
			w.limit(ledger.OfNamespace, "small", 2000)
			result := w.ledger.Reserve(ledger.Plan{Slots: []ledger.Slot{{
				Ref: ledger.SlotRef{Namespace: "small", Name: "r", Slot: "s"}, Node: "a",
				Request: placementtest.Request(2000),
			}}, Mode: ledger.AllOrNothing}, w.now)
			require.Empty(w, result.Rejections)
			require.NoError(w, w.h.Question.Matcher.Set(&v1alpha1.Reservation{
				ObjectMeta: metav1.ObjectMeta{Namespace: "small", Name: "r"},
				Spec: v1alpha1.ReservationSpec{
					Slots: []v1alpha1.Slot{{Name: "s"}}, Consumers: &v1alpha1.ConsumerSpec{Index: "i"},
				},
			}))
			pod.Annotations = map[string]string{v1alpha1.ReservationIndexAnnotation: "i"}
			w.see(pod)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPodsWorld(t)
			pod := w.tried("small", "large", "2")
			change(w, pod)
			w.after(newsEvery, pod)
			for _, action := range w.client.Actions() {
				assert.NotEqual(t, "patch", action.GetVerb())
			}
		})
	}
}

// TestHeldBackPodsThatCannotBeWritten: a pod that has changed since it was looked at, or that is gone, is no error, one
// that may not be written keeps no other from it, and where nothing can be written it is tried again with all pods. The
// resource version goes with the write, so that the API server can tell.
func TestHeldBackPodsThatCannotBeWritten(t *testing.T) {
	group := schema.GroupResource{Resource: "pods"}
	for name, tt := range map[string]struct {
		err                 error
		goesOn, isNoTrouble bool
	}{
		"changed":   {apierrors.NewConflict(group, "large", nil), true, true},
		"gone":      {apierrors.NewNotFound(group, "large"), true, true},
		"forbidden": {apierrors.NewForbidden(group, "large", nil), true, false},
		"too busy":  {apierrors.NewTooManyRequests("busy", 1), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPodsWorld(t)
			pod := w.tried("small", "large", "2")
			due := w.h.look(w.now)
			require.Len(t, due, 1)
			w.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				assert.Equal(t, "status", action.GetSubresource())
				patch, ok := action.(clienttesting.PatchAction)
				assert.True(t, ok)
				assert.Contains(t, string(patch.GetPatch()), `"metadata":{"resourceVersion":"7","uid":"`+string(pod.UID)+`"}`)
				return true, nil, tt.err
			})
			assert.Equal(t, tt.goesOn, w.h.write(t.Context(), due[0], w.now))
			assert.Equal(t, tt.isNoTrouble, w.h.Trouble() == nil)
			if !tt.isNoTrouble {
				assert.Empty(t, w.h.look(w.now.Add(newsEvery)))
			}
			assert.Len(t, w.h.look(w.now.Add(allEvery)), 1)
			w.h.Pods = cluster.NewPods()
			assert.Empty(t, w.h.look(w.now.Add(2*allEvery)))
			assert.NoError(t, w.h.Trouble(), "the pod is gone")
		})
	}
}
