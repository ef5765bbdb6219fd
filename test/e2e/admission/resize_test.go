//go:build e2e

package admission

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// resize has a pod ask for so much CPU where it is, as kubectl does.
func (c *cluster) resize(name, cpu string, dryRun ...string) error {
	patch := fmt.Appendf(nil, `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":%q}}}]}}`, cpu)
	_, err := c.Client().CoreV1().Pods(c.Namespace).Patch(c.T.Context(), name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{DryRun: dryRun}, "resize")
	return err
}

// bound is the account's CPU that the pods of node-0 have.
func (c *cluster) bound() int64 { return c.CPU("node-0").Bound }

func TestResizes(t *testing.T) {
	c := newCluster(t, 1, nil)
	h := c.startOtherHook()
	c.run(t, map[string]func(*testing.T, *cluster){
		"what is free, and what is not": resizes,
		"the quota":                     resizeBeyondQuota,
		"as kube-scheduler counts":      resizeInProgress,
		"refused by another webhook":    func(t *testing.T, c *cluster) { resizeThatFails(t, c, h) },
	})
}

// A pod grows into what is free, and into nothing that others have or that is kept for others; it always shrinks.
func resizes(t *testing.T, c *cluster) {
	c.create("grows", "1", onNode0)
	c.create("other", "1", onNode0)
	c.CreateReservation("kept",
		`{ttl: 1h, consumers: {index: web}, slots: [{name: "0", nodeName: node-0, requests: {cpu: 1}}]}`)
	c.AwaitReservation("kept", v1alpha1.ReservationAvailable)
	c.Eventually(func(t *assert.CollectT) { assert.Equal(t, 2, c.allocationsIn("Bound")) })
	granted := c.decided(naive, "granted")
	err := c.resize("grows", "2500m")
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.ErrorContains(t, err,
		`pod default/grows cannot grow where it is: node "node-0" has too little cpu for pod default/grows: requested 1.5 CPU, 1 free`)
	require.ErrorContains(t, err, "ask for less, or replace the pod")
	before := c.Allocations()
	require.NoError(t, c.resize("grows", "2", metav1.DryRunAll))
	assert.Equal(t, before, c.Allocations(), "allocations, and the revision")
	require.NoError(t, c.resize("grows", "2"))
	assert.EqualValues(t, 3000, c.bound(), "at once")
	require.Error(t, c.resize("other", "1100m"))
	require.NoError(t, c.resize("grows", "500m"))
	c.Eventually(func(t *assert.CollectT) { assert.EqualValues(t, 1500, c.bound()) })
	require.NoError(t, c.resize("other", "2500m"))
	c.Eventually(func(t *assert.CollectT) { assert.Equal(t, granted+2, c.decided(naive, "granted")) })
	require.NoError(t, c.Reservations().Delete(t.Context(), "kept", metav1.DeleteOptions{}))
}

// What is free on the node is of no use to a namespace whose reservations use up its quota: ResourceQuota does not see
// them.
func resizeBeyondQuota(t *testing.T, c *cluster) {
	c.create("grows", "1", onNode0)
	c.CreateReservation("kept", `{ttl: 1h, slots: [{name: "0", nodeName: node-0, requests: {cpu: 1}}]}`)
	c.AwaitReservation("kept", v1alpha1.ReservationAvailable)
	quotas := c.Client().CoreV1().ResourceQuotas(c.Namespace)
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "quota"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.cpu": resource.MustParse("2500m")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	defer func() { assert.NoError(t, quotas.Delete(t.Context(), "quota", metav1.DeleteOptions{})) }()
	c.Eventually(func(t *assert.CollectT) {
		err := c.resize("grows", "2", metav1.DryRunAll)
		assert.True(t, apierrors.IsForbidden(err), "%v", err)
		assert.ErrorContains(t, err, `namespace "default" would use more cpu than its ResourceQuota`)
	})
	require.NoError(t, c.resize("grows", "1500m"))
	require.NoError(t, c.Reservations().Delete(t.Context(), "kept", metav1.DeleteOptions{}))
}

// While a kubelet carries a resize out, the largest of what is asked, allocated and actuated counts.
func resizeInProgress(t *testing.T, c *cluster) {
	c.create("shrinks", "3", onNode0)
	say := func(allocated, actuated string, conditions ...corev1.PodCondition) {
		pod := c.Pod("shrinks")
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			AllocatedResources: testbed.Requests(allocated),
			Resources:          &corev1.ResourceRequirements{Requests: testbed.Requests(actuated)},
		}}
		pod.Status.Conditions = conditions
		_, err := c.Client().CoreV1().Pods(c.Namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	say("3", "3")
	require.NoError(t, c.resize("shrinks", "1"))
	c.create("other", "2")
	require.ErrorContains(t, c.BindDirectly("other", "node-0"), "1 free", "the kubelet has not done it")
	require.NoError(t, c.resize("shrinks", "2"), "it counts for more already")
	require.NoError(t, c.resize("shrinks", "1"))
	say("1", "3")
	require.ErrorContains(t, c.BindDirectly("other", "node-0"), "1 free")
	say("1", "1")
	c.Eventually(func(t *assert.CollectT) { assert.NoError(t, c.BindDirectly("other", "node-0")) })
	require.ErrorContains(t, c.resize("shrinks", "2500m"), "1 free")
	require.NoError(t, c.resize("shrinks", "2"))
	say("1", "1", corev1.PodCondition{
		Type: corev1.PodResizePending, Status: corev1.ConditionTrue,
		Reason: corev1.PodReasonInfeasible, ObservedGeneration: c.Pod("shrinks").Generation,
	})
	c.Eventually(func(t *assert.CollectT) { assert.EqualValues(t, 3000, c.bound()) }, "what is infeasible does not count")
	c.create("late", "1", onNode0)
	require.ErrorContains(t, c.resize("shrinks", "1500m"), "0 free", "less than asked for in vain, and more than it has")
}

// The capacity of a resize that another webhook refuses, after ours, is given back.
func resizeThatFails(t *testing.T, c *cluster, h *otherHook) {
	defer h.set(allow)
	c.create("grows", "1", onNode0)
	c.create("waits", "2")
	c.awaitOtherHook(h)
	h.set(func(request *admissionv1.AdmissionRequest) bool { return request.SubResource != "resize" })
	err := c.resize("grows", "3")
	var status apierrors.APIStatus
	require.ErrorAs(t, err, &status)
	require.EqualValues(t, http.StatusForbidden, status.Status().Code, "%v", err)
	require.ErrorContains(t, err, "the other webhook")
	assert.EqualValues(t, 3000, c.bound(), "it might have been written")
	require.Error(t, c.BindDirectly("waits", "node-0"))
	c.Eventually(func(t *assert.CollectT) { assert.EqualValues(t, 1000, c.bound()) })
	require.NoError(t, c.BindDirectly("waits", "node-0"))
}
