package drain

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// podOf is a pod on node a that an object controls, and its plan.
func podOf(kind, owner, name, uid string) *Pod {
	return &Pod{
		DrainPod: &reserver.DrainPod{
			Namespace: "team", Pod: name, UID: uid, Node: "a", OwnerKind: kind, OwnerName: owner,
			Action: reserver.DrainMove, To: "b",
		},
		Object: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: name, UID: types.UID(uid),
				OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: owner, UID: "owner", Controller: ptr.To(true)}},
			},
			Spec: v1.PodSpec{NodeName: "a"},
		},
	}
}

// newDrain returns a Drain of a cluster, what it complains of, and its API server.
func newDrain(objects ...runtime.Object) (*Drain, *bytes.Buffer, *fake.Clientset) {
	client, complaints := fake.NewClientset(objects...), &bytes.Buffer{}
	return New(Options{
		Kube: client, Nodes: []string{"a"}, GracePeriod: -1, Out: &bytes.Buffer{}, ErrOut: complaints,
	}), complaints, client
}

// While a budget forbids an eviction it is tried again; the pod of that name that was made meanwhile is left alone.
func TestEvictsThePodItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := podOf("StatefulSet", "db", "db-0", "old")
		d, complaints, client := newDrain(pod.Object)
		var asked []types.UID
		client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			eviction := a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
			asked = append(asked, *eviction.DeleteOptions.Preconditions.UID)
			if len(asked) == 3 { // somebody else has deleted it, and its owner has made another one
				again := pod.Object.DeepCopy()
				again.UID = "new"
				assert.NoError(t, client.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), again, "team"))
			}
			return true, nil, apierrors.NewTooManyRequests("the budget needs 1 pod", 0)
		})
		began := time.Now()
		require.NoError(t, d.evict(t.Context(), pod))
		assert.Equal(t, []types.UID{"old", "old", "old"}, asked)
		assert.Equal(t, 3*poll, time.Since(began))
		assert.Equal(t, "pod/team/db-0 has to wait: the budget needs 1 pod\n", complaints.String(), "once")
	})
}

// The pod that is made for one has to be bound, or ready, and so have the others that were made since.
func TestAwaitsWhatIsMade(t *testing.T) {
	for _, untilReady := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			pod := podOf("ReplicaSet", "web", "web-1", "old")
			d, _, client := newDrain(&appsv1.ReplicaSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web"},
				Spec:       appsv1.ReplicaSetSpec{Replicas: ptr.To(int32(3))},
			}, podOf("ReplicaSet", "web", "web-2", "other").Object, podOf("ReplicaSet", "web", "web-x", "another").Object)
			d.UntilReady = untilReady
			set := func(name, node string, ready bool) {
				made := podOf("ReplicaSet", "web", name, name).Object
				if made.Spec.NodeName = node; ready {
					made.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
				}
				_ = client.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), "team", name)
				assert.NoError(t, client.Tracker().Add(made))
			}
			var steps []string
			go func() {
				for _, step := range []struct {
					name, node string
					ready      bool
				}{{"web-3", "", false}, {"web-4", "", false}, {"web-3", "b", true}, {"web-4", "c", false}, {"web-4", "c", true}} {
					time.Sleep(10 * poll) //nolint:forbidigo // in a bubble
					steps = append(steps, fmt.Sprint(step))
					set(step.name, step.node, step.ready)
				}
			}()
			what, err := d.await(t.Context(), pod, sets.New[types.UID]("other", "another"))
			require.NoError(t, err)
			assert.Equal(t, "evicted; web-3 is on b", what)
			assert.Len(t, steps, map[bool]int{false: 4, true: 5}[untilReady])
			time.Sleep(time.Minute) //nolint:forbidigo // in a bubble: for the steps that are left
		})
	}
}

func TestOwnersThatMakeNoOther(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "team", Name: "o"}
	job := func(change func(*batchv1.Job)) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: meta}
		j.Spec.Parallelism, j.Spec.Completions = ptr.To(int32(2)), ptr.To(int32(4))
		change(j)
		return j
	}
	set := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To(int32(2)), Ordinals: &appsv1.StatefulSetOrdinals{Start: 1},
	}}
	tests := map[string]struct {
		kind, pod string
		owner     runtime.Object
		has       int
		want      bool
	}{
		"a ReplicaSet with too few": {"ReplicaSet", "o-1", &appsv1.ReplicaSet{
			ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To(int32(3))},
		}, 2, false},
		"a ReplicaSet that was scaled down": {"ReplicaSet", "o-1", &appsv1.ReplicaSet{
			ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To(int32(2))},
		}, 2, true},
		"a ReplicaSet that is gone": {"ReplicaSet", "o-1", nil, 0, true},
		"a controller": {"ReplicationController", "o-1", &v1.ReplicationController{
			ObjectMeta: meta, Spec: v1.ReplicationControllerSpec{Replicas: ptr.To(int32(2))},
		}, 1, false},
		"a StatefulSet's own":     {"StatefulSet", "o-2", set, 0, false},
		"a StatefulSet's former":  {"StatefulSet", "o-3", set, 0, true},
		"before the first":        {"StatefulSet", "o-0", set, 0, true},
		"a Job":                   {"Job", "o-1", job(func(*batchv1.Job) {}), 1, false},
		"a Job with enough":       {"Job", "o-1", job(func(j *batchv1.Job) { j.Status.Succeeded = 3 }), 1, true},
		"a Job that is suspended": {"Job", "o-1", job(func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }), 0, true},
		"a Job that has failed": {"Job", "o-1", job(func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: v1.ConditionTrue}}
		}), 0, true},
		"another kind": {"CloneSet", "o-1", nil, 5, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var objects []runtime.Object
			if tc.owner != nil {
				objects = append(objects, tc.owner)
			}
			d, _, _ := newDrain(objects...)
			got, err := d.wantsNoMore(t.Context(), podOf(tc.kind, "o", tc.pod, "u"), tc.has)
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}
}
