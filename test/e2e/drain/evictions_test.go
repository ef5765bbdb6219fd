//go:build e2e

package drain

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const responder = "example.com/place-first"

// TestEvictions runs examples/evictions. kube-controller-manager 1.37.1 has no controller that makes an Eviction of an
// EvictionRequest, and says whose turn it is: the test does.
func TestEvictions(t *testing.T) {
	b := newBench(t, 3, "4")
	b.deploy(app{name: "web", kind: "Deployment", replicas: 8, cpu: "1"})
	b.startResponder()

	first := b.anyPod("web")
	eviction := b.evict(first)
	b.awaitResponse(eviction, "pod/"+b.Namespace+"/"+first.Name+" evicted; web-", true)
	b.awaitPods("web", 8)
	assert.NotContains(t, b.pods("web"), first.Name)
	assert.False(t, b.cordoned(first.Spec.NodeName))
	assert.Empty(t, b.ListReservations())

	b.deploy(app{name: "filler", kind: "Deployment", replicas: 4, cpu: "1"})
	second := b.anyPod("web")
	eviction = b.evict(second)
	b.awaitResponse(eviction, "there is no place: ", false)
	assert.Contains(t, b.pods("web"), second.Name)
	b.budget("web", 8)
	require.NoError(t, b.Client().AppsV1().Deployments(b.Namespace).Delete(t.Context(), "filler", metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationForeground),
	}))
	b.awaitResponse(eviction, "has to wait", false)
	require.Len(t, b.ListReservations(), 1)
	b.withdraw(eviction)
	b.Eventually(func(t *assert.CollectT) { assert.Empty(t, b.ListReservations()) })
	assert.Contains(t, b.pods("web"), second.Name)
	b.RequireNeverOvercommitted()
}

// startResponder runs the example with the roles that its README names.
func (b *bench) startResponder() {
	b.T.Helper()
	role, err := os.ReadFile(testbed.File(b.T, "examples", "evictions", "role.yaml"))
	require.NoError(b.T, err)
	b.Apply(string(role) + `
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {generateName: test-}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: eviction-responder}
subjects: [{kind: User, name: drainer}]
`)
	log := filepath.Join(b.LogDir(), "evictions.log")
	_, err = b.StartProcess(b.T.Context(), controlplane.ProcessOptions{
		Name: "evictions", Path: testbed.Program(b.T, "evictions"), LogFile: log,
		Args: []string{
			"--kubeconfig=" + b.kubeconfig, "--globalreserve-url=" + b.Documented(), "--responder=" + responder, "--every=1s",
		},
		Ready: clusterload.LogSays(log, "responding to Evictions"),
	})
	require.NoError(b.T, err)
}

func (b *bench) anyPod(app string) corev1.Pod {
	b.T.Helper()
	for _, pod := range b.pods(app) {
		return pod
	}
	require.Fail(b.T, "no pods", app)
	return corev1.Pod{}
}

// evict makes an Eviction of a pod that is the responder's turn, and then that of the Eviction API.
func (b *bench) evict(pod corev1.Pod) *lifecyclev1alpha1.Eviction {
	b.T.Helper()
	evictions := b.Client().LifecycleV1alpha1().Evictions(b.Namespace)
	e, err := evictions.Create(b.T.Context(), &lifecyclev1alpha1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
		Spec: lifecyclev1alpha1.EvictionSpec{Target: lifecyclev1alpha1.EvictionTarget{
			Pod: &lifecyclev1alpha1.EvictionPodReference{Name: pod.Name, UID: pod.UID},
		}},
	}, metav1.CreateOptions{})
	require.NoError(b.T, err)
	const last = lifecyclev1alpha1.EvictionResponderImperativeEviction
	e.Status.TargetResponders = []lifecyclev1alpha1.TargetResponder{
		{Name: responder, Priority: ptr.To(int32(20_000)), State: lifecyclev1alpha1.ResponderStateActive},
		{Name: last, Priority: ptr.To(int32(100)), State: lifecyclev1alpha1.ResponderStateInactive},
	}
	e.Status.Responders = []lifecyclev1alpha1.ResponderStatus{
		{Name: responder, StartTime: ptr.To(metav1.Now())}, {Name: last},
	}
	e, err = evictions.UpdateStatus(b.T.Context(), e, metav1.UpdateOptions{FieldManager: "evictionrequest-controller"})
	require.NoError(b.T, err)
	return e
}

// awaitResponse waits until the responder has said this, and whether it is done.
func (b *bench) awaitResponse(e *lifecyclev1alpha1.Eviction, text string, done bool) {
	b.T.Helper()
	b.Eventually(func(t *assert.CollectT) {
		now, err := b.Client().LifecycleV1alpha1().Evictions(b.Namespace).Get(b.T.Context(), e.Name, metav1.GetOptions{})
		require.NoError(b.T, err)
		require.Len(b.T, now.Status.Responders, 2)
		assert.Contains(t, ptr.Deref(now.Status.Responders[0].Message, ""), text)
		assert.NotNil(t, now.Status.Responders[0].HeartbeatTime)
		assert.Equal(t, done, now.Status.Responders[0].CompletionTime != nil)
	})
}

// withdraw ends an Eviction that nobody asks for any more.
func (b *bench) withdraw(e *lifecyclev1alpha1.Eviction) {
	b.T.Helper()
	b.Eventually(func(t *assert.CollectT) { // the responder writes it, too
		evictions := b.Client().LifecycleV1alpha1().Evictions(b.Namespace)
		now, err := evictions.Get(b.T.Context(), e.Name, metav1.GetOptions{})
		require.NoError(b.T, err)
		now.Status.TargetResponders[0].State = lifecyclev1alpha1.ResponderStateCanceled
		now.Status.Conditions = []metav1.Condition{{
			Type: string(lifecyclev1alpha1.EvictionConditionFailed), Status: metav1.ConditionTrue,
			Reason:             string(lifecyclev1alpha1.EvictionConditionReasonCanceledDueToNoRequesters),
			LastTransitionTime: metav1.Now(),
		}}
		_, err = evictions.UpdateStatus(b.T.Context(), now, metav1.UpdateOptions{FieldManager: "evictionrequest-controller"})
		assert.NoError(t, err)
	})
}
