package admission

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

func TestBindings(t *testing.T) {
	newCluster(t, 2, nil).run(t, map[string]func(*testing.T, *cluster){
		"bindings":                              bindings,
		"a dry run changes nothing":             dryRun,
		"pods created with a node":              podsCreatedWithANode,
		"a reservation is kept and consumed":    reservationIsKept,
		"a binding that the API server refuses": bindingThatFails,
	})
}

// A binding that does not fit is refused with a text that tells why, through pods/binding and
// through the older bindings alike; one that fits goes through and is counted.
func bindings(t *testing.T, c *cluster) {
	granted := c.decided(naive, "granted")
	conflicts := func() int { return c.Metric("globalreserve_conflicts_total", "resource", "cpu", "scheduler", naive) }
	refused := conflicts()
	older := func(name, node string, _ ...string) error {
		return c.Client().CoreV1().RESTClient().Post().Namespace(c.Namespace).Resource("bindings").Body(&corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
		}).Do(t.Context()).Error()
	}
	for name, bind := range map[string]func(name, node string, dryRun ...string) error{
		"pods-binding": c.BindDirectly,
		"bindings":     older,
	} {
		first, second := name+"-first", name+"-second"
		c.create(first, "3")
		c.create(second, "2")
		require.NoError(t, bind(first, "node-0"))
		err := bind(second, "node-0")
		require.Error(t, err)
		assert.True(t, apierrors.IsConflict(err), "%v", err)
		assert.ErrorContains(t, err, `node "node-0" has too little cpu for pod default/`+second+
			`: requested 2 CPU, 1 free; largest holder default/`+first)
		refusal := c.AwaitRefusal("path=admission&pod=" + second)
		assert.Equal(t, []string{"node-0", first}, []string{refusal.Rejection.Node, refusal.Rejection.Holders[0].Pod})
		require.NoError(t, bind(second, "node-1"))
		assert.Equal(t, "node-0", c.Pod(first).Spec.NodeName)
		assert.Equal(t, "node-1", c.Pod(second).Spec.NodeName)
		c.Clear()
	}
	err := c.BindDirectly("no-such-pod", "node-0")
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	c.Eventually(func(t *assert.CollectT) { // a decision is counted when it is answered
		assert.Equal(t, granted+4, c.decided(naive, "granted"))
		assert.Equal(t, refused+2, conflicts())
	})
}

func onNode0(pod *corev1.Pod) { pod.Spec.NodeName = "node-0" }

// A dry run decides like a real binding.
func dryRun(t *testing.T, c *cluster) {
	c.create("big", "5")
	c.create("small", "1")
	before, granted := c.Allocations(), c.decided(naive, "granted")
	require.NoError(t, c.BindDirectly("small", "node-0", metav1.DryRunAll))
	require.ErrorContains(t, c.BindDirectly("big", "node-0", metav1.DryRunAll), "too little cpu")
	pods, options := c.Client().CoreV1().Pods(c.Namespace), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	_, err := pods.Create(t.Context(), testbed.NewPod("with-node", naive, "1", onNode0), options)
	require.NoError(t, err)
	_, err = pods.Create(t.Context(), testbed.NewPod("with-node", naive, "5", onNode0), options)
	require.ErrorContains(t, err, "too little cpu")
	assert.Equal(t, before, c.Allocations(), "allocations, and the revision")
	assert.Equal(t, granted, c.decided(naive, "granted"))
}

// Pods created with a node are decided on like bindings.
func podsCreatedWithANode(t *testing.T, c *cluster) {
	try := func(name, cpu string, changes ...func(*corev1.Pod)) error {
		pod := testbed.NewPod(name, naive, cpu, append(changes, onNode0)...)
		_, err := c.Client().CoreV1().Pods(c.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	}
	require.NoError(t, try("first", "3"))
	err := try("second", "2")
	require.Error(t, err)
	var status apierrors.APIStatus
	require.ErrorAs(t, err, &status)
	assert.EqualValues(t, http.StatusConflict, status.Status().Code)
	assert.ErrorContains(t, err, "largest holder default/first")

	err = try("first", "1")
	assert.True(t, apierrors.IsAlreadyExists(err), "%v", err)

	created := c.create("", "1", onNode0, func(pod *corev1.Pod) { pod.GenerateName = "generated-" })
	assert.Regexp(t, "^generated-[a-z0-9]+$", created.Name)
	c.Eventually(func(t *assert.CollectT) { assert.Equal(t, 2, c.allocationsIn("Bound")) })
	assert.Zero(t, c.allocationsIn("Binding"))

	// Made again at once under the same name.
	c.Delete("first")
	c.Eventually(func(t *assert.CollectT) { assert.NoError(t, try("first", "3")) })
	err = try("mirror", "4", testbed.Annotated(corev1.MirrorPodAnnotationKey, "x"))
	require.ErrorContains(t, err, "too little cpu", "the annotation alone opens nothing")
	c.create("unbound", "100") // has no node, so the webhook has nothing to say
}

// Capacity that a Reservation holds is refused to a naive scheduler's pods, and given to those it is for,
// which then say so.
func reservationIsKept(t *testing.T, c *cluster) {
	c.CreateReservation("kept",
		`{ttl: 1h, consumers: {index: web}, slots: [{name: "0", nodeName: node-0, requests: {cpu: 3}}]}`)
	c.AwaitReservation("kept", v1alpha1.ReservationAvailable)
	c.create("other", "3")
	require.ErrorContains(t, c.BindDirectly("other", "node-0"), "largest holder reservation default/kept/0")
	c.create("consumer", "3", testbed.Annotated(v1alpha1.ReservationIndexAnnotation, "web"))
	require.NoError(t, c.BindDirectly("consumer", "node-0"))
	assert.Equal(t, map[string]string{"consumer": "default/kept/0"}, testbed.Matched(c.Pods()))
	c.AwaitReservation("kept", v1alpha1.ReservationSucceeded)
}

// The API server would refuse the binding when it writes: the pod has gates.
func bindingThatFails(t *testing.T, c *cluster) {
	c.create("gated", "4", func(pod *corev1.Pod) {
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
	})
	c.create("other", "4")
	require.ErrorContains(t, c.BindDirectly("gated", "node-0"), "schedule it when they are gone")
	assert.Zero(t, c.allocationsIn("Binding"))
	require.NoError(t, c.BindDirectly("other", "node-0"))
}
