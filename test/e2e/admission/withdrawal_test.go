//go:build e2e

package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// holdUp has the binding of a pod reach the other webhook, and go on when the function it returns is called,
// which tells how it went.
func (c *cluster) holdUp(h *otherHook, name string) (release func() error) {
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
// pod, and then the API server must not carry it out any more.
func TestWithdrawnBinding(t *testing.T) {
	c := newCluster(t, 1, nil)
	h := c.startOtherHook()
	c.awaitOtherHook(h)
	c.create("late", "4")
	c.create("other", "4")
	release := c.holdUp(h, "late")
	assert.Equal(t, 1, c.allocationsIn("Binding"), "while it may be carried out, its capacity is taken")
	require.Error(t, c.BindDirectly("other", "node-0"))
	c.requireGivenBack()
	require.NoError(t, c.BindDirectly("other", "node-0"))
	err := release()
	require.Error(t, err)
	assert.True(t, apierrors.IsConflict(err), "%v", err)
	late := c.Pod("late")
	assert.Empty(t, late.Spec.NodeName)
	assert.NotEmpty(t, late.Annotations["globalreserve.io/binding-withdrawn"])
	assert.Equal(t, 1, c.decided(naive, "withdrawn"))
	c.RequireNeverOvercommitted()
}

// Another webhook always refuses what was allowed: a binding, and a resize, which their senders repeat. Their capacity
// comes to a pod that is honest.
func TestWhatIsRepeatedAndRefusedAfterwards(t *testing.T) {
	c := newCluster(t, 1, nil)
	h := c.startOtherHook()
	c.awaitOtherHook(h)
	c.create("refused", "3")
	c.create("grown", "1")
	require.NoError(t, c.BindDirectly("grown", "node-0"))
	h.set(func(request *admissionv1.AdmissionRequest) bool {
		return request.Name != "refused" && request.SubResource != "resize"
	})
	for name, repeated := range map[string]func() error{
		"binding": func() error { return c.BindDirectly("refused", "node-0") },
		"resize":  func() error { return c.resize("grown", "3") },
	} {
		t.Run(name, func(t *testing.T) {
			c.create("honest-"+name, "3")
			require.ErrorContains(t, repeated(), "the other webhook does not want it")
			began := time.Now()
			require.EventuallyWithT(t, func(t *assert.CollectT) {
				assert.Error(t, repeated())
				assert.NoError(t, c.BindDirectly("honest-"+name, "node-0"))
			}, testbed.Soon, 100*time.Millisecond)
			t.Logf("an honest pod is bound after %s", time.Since(began).Round(time.Millisecond))
			c.Delete("honest-" + name)
			c.Eventually(func(t *assert.CollectT) { assert.Equal(t, 1, c.allocationsIn("Bound")) })
		})
	}
	c.RequireNeverOvercommitted()
}
