package drain

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// rounds is a Drain of node a, whose owners are gone, so that nothing is made for a pod that is evicted.
type rounds struct {
	*Drain
	cluster *fake.Clientset
	plans   []reserver.DrainPlanAnswer // one after another; the last one stays
	evicted []string
	forbids atomic.Bool // a budget does
}

// newRounds has pods on node a, and places on node b.
func newRounds(t *testing.T, pods ...*Pod) *rounds {
	r := &rounds{}
	objects := []runtime.Object{
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}},
	}
	for _, pod := range pods {
		objects = append(objects, pod.Object)
	}
	r.Drain, _, r.cluster = newDrain(objects...)
	r.Reservations = decided(available)
	r.cluster.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if r.forbids.Load() {
			return true, nil, apierrors.NewTooManyRequests("the budget needs it", 0)
		}
		name := a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).Name
		r.evicted = append(r.evicted, name)
		return true, nil, r.cluster.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), "team", name)
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(r.plans[0]))
		if len(r.plans) > 1 {
			r.plans = r.plans[1:]
		}
	}))
	t.Cleanup(server.Close)
	var err error
	r.Server, err = client.New(client.Options{URL: server.URL, RetryFor: time.Nanosecond})
	require.NoError(t, err)
	t.Cleanup(r.Server.Close)
	return r
}

func planOf(pods ...*Pod) (answer reserver.DrainPlanAnswer) {
	answer.Revision = 1
	for _, pod := range pods {
		answer.Pods = append(answer.Pods, *pod.DrainPod)
	}
	return answer
}

// What has no place stays, also where others have gone before it was found that it has none.
func TestNothingGoesWithoutAPlace(t *testing.T) {
	nowhere := podOf("Job", "job", "job-1", "u1")
	nowhere.To, nowhere.Why = "", "no node fits"
	first := podOf("Deployment", "web", "web-1", "u2")
	r := newRounds(t, first, nowhere)
	r.plans = []reserver.DrainPlanAnswer{planOf(first, nowhere)}
	err := r.Run(t.Context())
	require.ErrorAs(t, err, new(*UnplacedError))
	assert.EqualError(t, err, "there is no place for 1 pods: team/job-1")
	assert.Empty(t, r.evicted)
	node, err := r.cluster.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	assert.False(t, node.Spec.Unschedulable)
	list, err := r.list(t.Context(), "")
	require.NoError(t, err)
	assert.Empty(t, list)
}

// After the first round, too, a pod stays that has no place, and others go that have theirs.
func TestNothingGoesWithoutAPlaceLater(t *testing.T) {
	first, late := podOf("Deployment", "web", "web-1", "u1"), podOf("Deployment", "web", "web-2", "u2")
	nowhere := podOf("Job", "job", "job-1", "u3")
	nowhere.To, nowhere.Why = "", "no node fits"
	r := newRounds(t, first)
	came := false
	r.cluster.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if len(r.evicted) == 1 && !came {
			came = true
			assert.NoError(t, r.cluster.Tracker().Add(late.Object))
			assert.NoError(t, r.cluster.Tracker().Add(nowhere.Object))
		}
		return false, nil, nil
	})
	late.Slot = "team/" + r.Name() + "-web-b/web-1" // that of the first, which its replacement has not used
	r.plans = []reserver.DrainPlanAnswer{planOf(first), planOf(late, nowhere), planOf(nowhere)}
	err := r.Run(t.Context())
	assert.EqualError(t, err, "there is no place for 1 pods: team/job-1")
	assert.Equal(t, []string{"web-1", "web-2"}, r.evicted)
}

// While a budget keeps a pod from going its place may go: then the pod stays, whatever the budget allows by then.
func TestAPlaceThatGoesWhileTheBudgetForbids(t *testing.T) {
	web := podOf("Deployment", "web", "web-1", "u1")
	r := newRounds(t, web)
	why, err := r.keep(t.Context(), &Plan{Go: []*Pod{web}})
	require.NoError(t, err)
	require.Empty(t, why)
	require.NoError(t, r.cordon(t.Context(), true))
	m := &moving{Drain: r.Drain, pod: web, placed: true}
	require.NoError(t, m.look(t.Context()))
	for name, lose := range map[string]func(){
		"its node is cordoned": func() {
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: v1.NodeSpec{Unschedulable: true}}
			require.NoError(t, r.cluster.Tracker().Update(v1.SchemeGroupVersion.WithResource("nodes"), node, ""))
		},
		"it is given back": func() { require.NoError(t, r.giveBack(t.Context())) },
	} {
		lose()
		require.NoError(t, r.move(t.Context(), web), name)
		assert.Empty(t, r.evicted, name)
	}
}

// An undo ends a drain that goes on: no other pod is evicted, and nothing stays kept.
func TestUndoEndsARun(t *testing.T) {
	first, second := podOf("Deployment", "web", "web-1", "u1"), podOf("Deployment", "web", "web-2", "u2")
	for name, when := range map[string]string{"between two pods": "delete", "while a budget forbids": "forbid"} {
		t.Run(name, func(t *testing.T) {
			r := newRounds(t, first, second)
			r.plans = []reserver.DrainPlanAnswer{planOf(first, second)}
			undone := false
			r.cluster.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				if !undone { // as Undo does, which cannot be called while the fake answers
					undone = true
					node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
					assert.NoError(t, r.cluster.Tracker().Update(v1.SchemeGroupVersion.WithResource("nodes"), node, ""))
					assert.NoError(t, r.giveBack(t.Context()))
				}
				r.forbids.Store(when == "forbid")
				return false, nil, nil
			})
			err := r.Run(t.Context())
			require.ErrorIs(t, err, errTakenBack)
			assert.ErrorContains(t, err, "node/a is schedulable again")
			assert.Len(t, r.evicted, map[string]int{"delete": 1, "forbid": 0}[when])
			node, err := r.cluster.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
			require.NoError(t, err)
			assert.False(t, node.Spec.Unschedulable)
			list, err := r.list(t.Context(), "")
			require.NoError(t, err)
			assert.Empty(t, list)
		})
	}
}

// An undo ends what is waited for, too: the pod that is made for one, and the last pods.
func TestUndoEndsAWait(t *testing.T) {
	web := podOf("Deployment", "web", "web-1", "u1")
	r := newRounds(t, web)
	for _, known := range []bool{true, false} {
		m := &moving{Drain: r.Drain, pod: web, placed: true, before: &standing{known: known}}
		_, err := m.await(t.Context())
		require.ErrorIs(t, err, errTakenBack)
	}
	require.ErrorIs(t, r.finish(t.Context()), errTakenBack)
	_, err := r.keep(t.Context(), &Plan{Go: []*Pod{web}})
	require.NoError(t, err)
	require.ErrorIs(t, r.finish(t.Context()), errTakenBack)
}

// While a pod waits its Reservation says for what, also after a run that was killed said something else.
func TestSaysWhatAPodWaitsFor(t *testing.T) {
	web := podOf("Deployment", "web", "web-1", "u1")
	r := newRounds(t, web) // its server is none for a bubble, and nobody asks it
	synctest.Test(t, func(t *testing.T) {
		_, err := r.keep(t.Context(), &Plan{Go: []*Pod{web}})
		require.NoError(t, err)
		says := func() string {
			list, err := r.list(t.Context(), "team")
			require.NoError(t, err)
			require.Len(t, list, 1)
			return list[0].Annotations[v1alpha1.DrainWaitsForAnnotation]
		}
		require.NoError(t, r.cordon(t.Context(), true))
		list, err := r.list(t.Context(), "team")
		require.NoError(t, err)
		r.mark(t.Context(), &list[0], "what was long ago")
		require.Equal(t, "what was long ago", says())
		r.forbids.Store(true)
		pods := v1.SchemeGroupVersion.WithResource("pods")
		r.cluster.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if r.forbids.Load() {
				return false, nil, nil
			}
			ending := web.Object.DeepCopy() // for a while
			ending.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			time.AfterFunc(3*poll/2, func() { assert.Empty(t, says(), "it waits for nothing any more") })
			time.AfterFunc(5*poll/2, func() { assert.NoError(t, r.cluster.Tracker().Delete(pods, "team", "web-1")) })
			return true, nil, r.cluster.Tracker().Update(pods, ending, "team")
		})
		time.AfterFunc(poll/2, func() { assert.Empty(t, says()) })
		time.AfterFunc(5*poll/2, func() { assert.Equal(t, "pod/team/web-1 has to wait: the budget needs it", says()) })
		time.AfterFunc(7*poll/2, func() { r.forbids.Store(false) })
		require.NoError(t, r.move(t.Context(), web))
		assert.Empty(t, says())
	})
}

// The rules of kubectl drain do not hold for namespaces that are skipped.
func TestFlagsThatPodsNeed(t *testing.T) {
	files := podOf("Deployment", "web", "web-1", "u1")
	files.Object.Spec.Volumes = []v1.Volume{{
		Name: "t", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}},
	}}
	bare := podOf("", "", "bare", "u2")
	bare.To, bare.Why, bare.Unmanaged, bare.Object.OwnerReferences = "", "nothing controls it", true, nil
	orphan := podOf("DaemonSet", "agent", "agent-1", "u3")
	orphan.Action, orphan.To, orphan.Why = reserver.DrainStay, "", "it is of a DaemonSet"
	r := newRounds(t, files, bare, orphan)
	r.IgnoreDaemonSets = true
	r.plans = []reserver.DrainPlanAnswer{planOf(files, bare, orphan)}
	_, err := r.Plan(t.Context())
	assert.EqualError(t, err, strings.Join([]string{
		"pod team/web-1: what is in its emptyDir is lost (use --delete-emptydir-data to evict it)",
		"pod team/bare: nothing controls it (use --force to evict it)",
		"pod team/agent-1: its DaemonSet is gone, so no other pod is made for it (use --force to evict it)",
	}, "\n"))
	r.Force, r.DeleteEmptyDirData = true, true
	plan, err := r.Plan(t.Context())
	require.NoError(t, err)
	assert.Len(t, plan.Go, 3)
	require.NoError(t, plan.Check(0), "nothing is made for a bare pod")
	r.Force, r.DeleteEmptyDirData, r.SkipNamespaces = false, false, []string{"team"}
	plan, err = r.Plan(t.Context())
	require.NoError(t, err)
	assert.Empty(t, plan.Go)
}

// One pod alone goes without its node being cordoned, and is a drain of its own.
func TestOnlyPods(t *testing.T) {
	one, other := podOf("Deployment", "web", "web-1", "u1"), podOf("Deployment", "web", "web-2", "u2")
	r := newRounds(t, one, other)
	whole := r.Name()
	how := r.Options
	how.Pods = []string{one.UID}
	r.Drain = New(how)
	assert.NotEqual(t, whole, r.Name())
	stays := planOf(other)
	stays.Pods[0].Action = reserver.DrainStay
	r.plans = []reserver.DrainPlanAnswer{planOf(one, other), stays}
	require.NoError(t, r.Run(t.Context()))
	assert.Equal(t, []string{"web-1"}, r.evicted)
	node, err := r.cluster.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	assert.False(t, node.Spec.Unschedulable)
	node.Spec.Unschedulable = true // by somebody else
	_, err = r.cluster.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, r.Undo(t.Context()))
	node, err = r.cluster.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	assert.True(t, node.Spec.Unschedulable)
}
