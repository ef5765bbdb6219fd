//go:build e2e

package admission

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// forgeries are what a copy of a pod in a request may say that the API server's does not.
var forgeries = map[string]func(*corev1.Pod){
	"requests": func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1m") },
	"priority": func(pod *corev1.Pod) { pod.Spec.Priority = new(int32(2_000_000_000)) },
	"annotations": testbed.Annotated(v1alpha1.ReservationIndexAnnotation, "web", v1alpha1.MatchedReservationAnnotation,
		"default/kept/0",
		corev1.MirrorPodAnnotationKey, "x"),
	"resourceVersion":    func(pod *corev1.Pod) { pod.ResourceVersion = "999999999" },
	"no resourceVersion": func(pod *corev1.Pod) { pod.ResourceVersion = "" },
	"UID":                func(pod *corev1.Pod) { pod.UID = "forged" },
	"UID of another pod": nil, // that of one of higher priority that may use the reservation
	"no UID":             func(pod *corev1.Pod) { pod.UID = "" },
	"deleted, and bound": func(pod *corev1.Pod) { pod.DeletionTimestamp, pod.Spec.NodeName = &metav1.Time{}, "node-0" },
	"all that it counts by": func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1m")
		pod.Spec.Priority, pod.ResourceVersion = new(int32(2_000_000_000)), "999999999"
		pod.Annotations = testbed.Pairs(v1alpha1.ReservationIndexAnnotation, "web")
	},
}

// TestForgedPods sends forged copies of a pod that fits nowhere on every path: of its node one CPU is free, and the
// rest is kept by a reservation that a pod of higher priority may end and that other pods may use. Whatever is
// answered, the pod is not bound, nothing is overcommitted and the reservation stays.
func TestForgedPods(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.CreateReservation("kept",
		`{ttl: 1h, priority: 100, preemptible: true, consumers: {index: web}, slots: [{name: "0", nodeName: node-0, requests: {cpu: 3}}]}`)
	c.AwaitReservation("kept", v1alpha1.ReservationAvailable)
	held := c.Held()
	c.CreatePriorityClass("important", 1000)
	other := c.create("other", "100", testbed.Annotated(v1alpha1.ReservationIndexAnnotation, "web"),
		func(pod *corev1.Pod) { pod.Spec.PriorityClassName = "important" })
	for name, forge := range forgeries {
		t.Run(name, func(t *testing.T) {
			inner := *c
			inner.T = t
			pod := inner.create("p", "3")
			forged := pod.DeepCopy()
			if forge == nil {
				forge = func(pod *corev1.Pod) { pod.UID = other.UID }
			}
			forge(forged)
			inner.sendForged(pod, forged)
			assert.Empty(t, inner.Pod("p").Spec.NodeName)
			assert.Equal(t, held, inner.Held(), "slots")
			assert.Empty(t, inner.Allocations().Allocations)
			inner.AwaitReservation("kept", v1alpha1.ReservationAvailable)
			inner.RequireNeverOvercommitted()
			inner.Delete("p")
		})
	}
}

// sendForged asks for a forged copy on every path, and for the pod itself after that. What is kept in memory for the
// copy is given back at last.
func (c *cluster) sendForged(pod, forged *corev1.Pod) {
	c.T.Helper()
	nodes := []string{"node-0"}
	send := func(path string, question any) {
		c.T.Helper()
		reply, err := c.Ledger.Send(c.T.Context(), http.MethodPost, path, question)
		require.NoError(c.T, err)
		assert.Less(c.T, reply.Status, http.StatusInternalServerError, "%s: %s", path, reply.Body)
	}
	bind := func(uid types.UID) {
		c.T.Helper()
		send(testbed.BindPath, &extenderv1.ExtenderBindingArgs{
			PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: uid,
			Node: "node-0",
		})
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: pod.Namespace, Name: pod.Name, UID: uid,
				ResourceVersion: forged.ResourceVersion, Annotations: forged.Annotations,
			},
			Target: corev1.ObjectReference{Kind: "Node", Name: "node-0"},
		}
		assert.Error(c.T, c.Client().CoreV1().Pods(c.Namespace).Bind(c.T.Context(), binding, metav1.CreateOptions{}),
			"admission")
	}
	args := &extenderv1.ExtenderArgs{Pod: forged, NodeNames: &nodes}
	for range 4 { // a pod may end reservations when it has been looked at for some times in vain
		send(testbed.FilterPath, args)
		send(testbed.PrioritizePath, args)
		send(testbed.PreemptPath, &extenderv1.ExtenderPreemptionArgs{
			Pod:                   forged,
			NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{"node-0": {}},
		})
	}
	bind(forged.UID)
	gang := &reserver.Request{SchedulerName: naive, Pods: []*corev1.Pod{forged}, Nodes: nodes, TTLSeconds: 60}
	send(testbed.ReservePath, gang)
	assert.NotEmpty(c.T, c.Bind(pod, "node-0"), "whatever was reserved for the copy, the pod asks for more")
	bind(forged.UID)
	send(testbed.UnreservePath, &reserver.Request{SchedulerName: naive, Pods: []*corev1.Pod{forged}})
	assert.NotEmpty(c.T, c.Bind(pod, "node-0"))
	again := forged.DeepCopy()
	again.Name, again.Spec.NodeName = "placed", "node-0"
	again.ResourceVersion, again.Spec.Priority, again.DeletionTimestamp = "", nil, nil
	again.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("3")
	delete(again.Annotations, v1alpha1.ReservationIndexAnnotation) // a pod that has it may use the slot
	_, err := c.Client().CoreV1().Pods(c.Namespace).Create(c.T.Context(), again, metav1.CreateOptions{})
	assert.Error(c.T, err, "created with a node")
}
