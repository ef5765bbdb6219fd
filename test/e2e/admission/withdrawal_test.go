package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	// grace is for how long the capacity of a binding that does not happen is taken at least.
	grace = 3 * time.Second
	// givenBackWithin is how soon it must be free again.
	givenBackWithin = 20 * time.Second
	// graces is how often a test begins again that was too slow to look while the capacity is taken.
	graces = 5
)

// awaitOtherHook waits until the API server calls the other webhook.
func (c *cluster) awaitOtherHook(h *otherHook) {
	c.T.Helper()
	h.set(refuse)
	c.create("probe", "1m")
	c.Eventually(func(t *assert.CollectT) {
		assert.ErrorContains(t, c.BindDirectly("probe", "node-0", metav1.DryRunAll), "the other webhook")
	})
	h.set(allow)
	c.Delete("probe")
}

// requireGivenBack waits until nothing is being bound any more.
func (c *cluster) requireGivenBack() {
	c.T.Helper()
	require.EventuallyWithT(c.T, func(t *assert.CollectT) { assert.Zero(t, c.allocationsIn("Binding")) }, givenBackWithin, testbed.Poll)
}

// TestWithdrawnBindings is about bindings that we allow and that do not happen.
func TestWithdrawnBindings(t *testing.T) {
	c := newCluster(t, 2, nil)
	h := c.startOtherHook()
	c.awaitOtherHook(h)
	with := func(test func(*testing.T, *cluster, *otherHook)) func(*testing.T, *cluster) {
		return func(t *testing.T, c *cluster) {
			h.set(allow)
			test(t, c, h)
		}
	}
	c.run(t, map[string]func(*testing.T, *cluster){
		"refused by another webhook":        with(refusedByAnother),
		"to another node then":              with(toAnotherNode),
		"late":                              with(lateBinding),
		"the pod is deleted":                with(podDeleted(false)),
		"the pod is deleted and made again": with(podDeleted(true)),
		"the server stops":                  with(serverStops),
	})
}

// Its capacity is given back within seconds, and a pod that needs all of it is bound.
func refusedByAnother(t *testing.T, c *cluster, h *otherHook) {
	withdrawn := c.decided(naive, "withdrawn")
	c.create("refused", "4")
	c.create("waiting", "4")
	testbed.Measure(t, graces, func(try assert.TestingT) {
		start := time.Now()
		h.set(refuse)
		require.ErrorContains(t, c.BindDirectly("refused", "node-0"), "the other webhook")
		h.set(allow)
		err := c.BindDirectly("waiting", "node-0", metav1.DryRunAll)
		if assert.Less(try, time.Since(start), grace) {
			require.ErrorContains(t, err, "largest holder default/refused")
		}
		c.requireGivenBack()
		withdrawn++
	})
	require.NoError(t, c.BindDirectly("waiting", "node-0"))
	c.Eventually(func(t *assert.CollectT) { assert.Equal(t, withdrawn, c.decided(naive, "withdrawn")) })

	// Its scheduler turns to another node: the first one does not keep it.
	require.NoError(t, c.BindDirectly("refused", "node-1"))
}

// A scheduler whose binding failed need not wait for the capacity to be given back before it may turn to
// another node.
func toAnotherNode(t *testing.T, c *cluster, h *otherHook) {
	testbed.Measure(t, 5, func(try assert.TestingT) {
		c.create("moved", "4")
		h.set(refuse)
		require.Error(t, c.BindDirectly("moved", "node-0"))
		h.set(allow)
		start := time.Now()
		c.Eventually(func(t *assert.CollectT) { assert.NoError(t, c.BindDirectly("moved", "node-1")) })
		assert.Less(try, time.Since(start), 2*time.Second)
		c.clear()
	})
}

// slotUp has the binding of a pod reach the other webhook, and go on when the function it returns is called,
// which tells how it went.
func (c *cluster) slotUp(h *otherHook, name string) (release func() error) {
	c.T.Helper()
	reached, released := make(chan struct{}), make(chan struct{})
	h.set(func(request *admissionv1.AdmissionRequest) bool {
		if request.Name == name {
			close(reached)
			<-released
		}
		return true
	})
	result := make(chan error, 1)
	go func() { result <- c.BindDirectly(name, "node-0") }()
	select {
	case <-reached:
	case err := <-result:
		require.FailNow(c.T, "the binding does not reach the other webhook", "%v", err)
	case <-time.After(testbed.Soon):
		require.FailNow(c.T, "the binding does not reach the other webhook")
	}
	return func() error {
		close(released)
		return <-result
	}
}

// A binding that is held up behind us for longer than we wait for it: its capacity is given to another
// pod, and then it must not be carried out any more.
func lateBinding(t *testing.T, c *cluster, h *otherHook) {
	c.create("late", "4")
	c.create("other", "4")
	var release func() error
	requireTooLate := func() {
		err := release()
		require.Error(t, err)
		assert.True(t, apierrors.IsConflict(err), "%v", err)
	}
	testbed.Measure(t, graces, func(try assert.TestingT) {
		start := time.Now()
		release = c.slotUp(h, "late")
		binding, err := c.allocationsIn("Binding"), c.BindDirectly("other", "node-0", metav1.DryRunAll)
		inTime := assert.Less(try, time.Since(start), grace)
		if inTime {
			assert.Equal(t, 1, binding, "while it may be carried out, its capacity is taken")
			require.Error(t, err)
		}
		c.requireGivenBack()
		if !inTime {
			requireTooLate()
		}
	})
	require.NoError(t, c.BindDirectly("other", "node-0"))
	requireTooLate()
	late := c.Pod("late")
	assert.Empty(t, late.Spec.NodeName)
	assert.NotEmpty(t, late.Annotations["globalreserve.io/binding-withdrawn"])
}

// A pod that is deleted, and one that is deleted and made again, between our permission and the
// write: the capacity is free again, and the new pod is not bound in the place of the old one.
func podDeleted(again bool) func(*testing.T, *cluster, *otherHook) {
	return func(t *testing.T, c *cluster, h *otherHook) {
		c.create("p", "4")
		h.set(func(request *admissionv1.AdmissionRequest) bool {
			if request.Name == "p" {
				pods := c.Client().CoreV1().Pods(c.Namespace)
				assert.NoError(t, pods.Delete(t.Context(), "p", metav1.DeleteOptions{}))
				if again {
					_, err := pods.Create(t.Context(), testbed.NewPod("p", naive, "3"), metav1.CreateOptions{})
					assert.NoError(t, err)
				}
			}
			return true
		})
		require.Error(t, c.BindDirectly("p", "node-0"))
		c.requireGivenBack()
		h.set(allow)
		c.create("other", "4")
		require.NoError(t, c.BindDirectly("other", "node-0"))
		if again {
			assert.Empty(t, c.Pod("p").Spec.NodeName)
		}
	}
}

// A server that is told to stop leaves nothing behind that could be carried out later.
func serverStops(t *testing.T, c *cluster, h *otherHook) {
	c.create("late", "4")
	c.create("other", "4")
	release := c.slotUp(h, "late")
	require.NoError(t, c.Server.Restart(t.Context()))
	// A server that starts wakes the pods that wait: a binding meanwhile may find its pod changed.
	c.Eventually(func(t *assert.CollectT) { assert.NoError(t, c.BindDirectly("other", "node-0")) })
	require.Error(t, release())
}
