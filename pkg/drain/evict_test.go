package drain

import (
	"bytes"
	"fmt"
	"sync/atomic"
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
		Kube: client, Nodes: []string{"a"}, Out: &bytes.Buffer{}, ErrOut: complaints,
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
		require.NoError(t, (&moving{Drain: d, pod: pod}).evict(t.Context()))
		assert.Equal(t, []types.UID{"old", "old", "old"}, asked)
		assert.Equal(t, 3*poll, time.Since(began))
		assert.Equal(t, "pod/team/db-0 has to wait: the budget needs 1 pod\n", complaints.String(), "once")
	})
}

// The pod that is made for one has to be bound, or ready, and so have the others that were made since.
func TestAwaitsWhatIsMade(t *testing.T) {
	for _, untilReady := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			pod, labels := podOf("ReplicaSet", "web", "web-1", "old"), map[string]string{"app": "web"}
			web := func(name, node string, ready bool) *v1.Pod {
				made := podOf("ReplicaSet", "web", name, name).Object
				made.Labels, made.Spec.NodeName = labels, node
				if ready {
					made.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
				}
				return made
			}
			d, _, client := newDrain(&appsv1.ReplicaSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web"}, Spec: appsv1.ReplicaSetSpec{
					Replicas: ptr.To(int32(4)), Selector: &metav1.LabelSelector{MatchLabels: labels},
				},
			}, web("web-1", "a", true), web("web-2", "b", true), web("waited before", "", false))
			d.UntilReady = untilReady
			m := &moving{Drain: d, pod: pod, placed: true}
			var err error
			m.before, err = d.standing(t.Context(), pod.maker())
			require.NoError(t, err)
			require.Len(t, m.before.pods, 3)
			pods := v1.SchemeGroupVersion.WithResource("pods")
			require.NoError(t, client.Tracker().Delete(pods, "team", "web-1"))
			var steps atomic.Int32
			for i, step := range []*v1.Pod{
				web("web-3", "", false), web("web-4", "", false), web("web-3", "b", true), web("web-4", "c", false),
				web("web-4", "c", true),
			} {
				time.AfterFunc(time.Duration(i+1)*10*poll+poll/2, func() { // while nobody looks
					steps.Add(1)
					_ = client.Tracker().Delete(pods, "team", step.Name)
					assert.NoError(t, client.Tracker().Add(step))
				})
			}
			what, err := m.await(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "evicted; web-3 is on b", what)
			assert.Equal(t, map[bool]int32{false: 4, true: 5}[untilReady], steps.Load())
		})
	}
}

func TestOwnersThatMakeNoOther(t *testing.T) {
	meta, labels := metav1.ObjectMeta{Namespace: "team", Name: "o"}, map[string]string{"app": "o"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	job := func(change func(*batchv1.Job)) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: meta}
		j.Spec.Parallelism, j.Spec.Completions, j.Spec.Selector = ptr.To(int32(3)), ptr.To(int32(9)), selector
		change(j)
		return j
	}
	tests := map[string]struct {
		kind  string
		owner runtime.Object
		want  bool
	}{
		"a Deployment": {"Deployment", &appsv1.Deployment{
			ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(3)), Selector: selector},
		}, false},
		"a ReplicaSet that was scaled down": {"ReplicaSet", &appsv1.ReplicaSet{
			ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To(int32(2)), Selector: selector},
		}, true},
		"a StatefulSet": {"StatefulSet", &appsv1.StatefulSet{
			ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: ptr.To(int32(3)), Selector: selector},
		}, false},
		"a controller": {"ReplicationController", &v1.ReplicationController{
			ObjectMeta: meta, Spec: v1.ReplicationControllerSpec{Replicas: ptr.To(int32(3)), Selector: labels},
		}, false},
		"one that is gone":        {"ReplicaSet", nil, true},
		"a Job":                   {"Job", job(func(*batchv1.Job) {}), false},
		"a Job with enough":       {"Job", job(func(j *batchv1.Job) { j.Status.Succeeded = 7 }), true},
		"a Job that is suspended": {"Job", job(func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }), true},
		"a Job that has failed": {"Job", job(func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: v1.ConditionTrue}}
		}), true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var objects []runtime.Object
			if tc.owner != nil {
				objects = append(objects, tc.owner)
			}
			before := &standing{known: true, wants: 3}
			for i := range 3 { // two of which are left
				pod := podOf(tc.kind, "o", fmt.Sprint("o-", i), fmt.Sprint(i)).Object
				pod.Labels = labels
				if tc.kind == "Deployment" {
					pod.Labels = map[string]string{"app": "o", appsv1.DefaultDeploymentUniqueLabelKey: "hash"}
					pod.OwnerReferences[0].Kind, pod.OwnerReferences[0].Name = "ReplicaSet", "o-hash"
				}
				foreign := pod.DeepCopy() // which the selector selects, too
				foreign.Name, foreign.OwnerReferences[0].Name = "foreign-"+pod.Name, "other"
				objects = append(objects, foreign)
				before.pods = append(before.pods, *pod)
				if i == 2 {
					pod.DeletionTimestamp = ptr.To(metav1.Now())
				}
				objects = append(objects, pod)
			}
			d, _, _ := newDrain(objects...)
			now, err := d.standing(t.Context(), owner{namespace: "team", kind: tc.kind, name: "o"})
			require.NoError(t, err)
			require.True(t, now.known)
			assert.Equal(t, tc.want, now.settled(before, false))
		})
	}
}
