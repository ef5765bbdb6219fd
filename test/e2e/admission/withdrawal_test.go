package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// givenBackWithin is how soon the room of a binding that did not happen must be free again.
const givenBackWithin = 8 * time.Second

// awaitOtherHook waits until the API server calls the other webhook.
func (c *cluster) awaitOtherHook(h *otherHook) {
	c.t.Helper()
	h.set(refuse)
	c.create(pod("probe", "1m"))
	eventually(c.t, soon, func(t *assert.CollectT) {
		err := c.naive.CoreV1().Pods(namespace).Bind(c.t.Context(), binding("probe", "node-0"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		assert.ErrorContains(t, err, "the other webhook")
	})
	h.set(allow)
	c.remove("probe")
}

// requireGivenBack waits until nothing is being bound any more and one more binding was withdrawn.
func (c *cluster) requireGivenBack() {
	c.t.Helper()
	eventually(c.t, givenBackWithin, func(t *assert.CollectT) { assert.Zero(t, c.claimsIn("Binding")) })
}

// A binding that we allow and another webhook refuses: its room is given back within seconds, and a
// pod that needs all of it is bound.
func TestBindingRefusedByAnotherWebhook(t *testing.T) {
	c := newCluster(t, 2, nil)
	ctx := t.Context()
	h := c.startOtherHook()
	c.awaitOtherHook(h)
	c.create(pod("refused", "4"))
	c.create(pod("waiting", "4"))
	h.set(refuse)
	require.ErrorContains(t, c.bind(ctx, "refused", "node-0"), "the other webhook")
	h.set(allow)
	require.ErrorContains(t, c.bind(ctx, "waiting", "node-0"), "largest holder default/refused")
	c.requireGivenBack()
	require.NoError(t, c.bind(ctx, "waiting", "node-0"))
	assert.Equal(t, 1, c.decided("naive", "withdrawn"))

	// Its scheduler turns to another node: the first one does not keep it.
	require.NoError(t, c.bind(ctx, "refused", "node-1"))
	c.requireNeverOvercommitted()
}

// A scheduler whose binding failed need not wait for the room to be given back before it may turn to
// another node.
func TestBindingToAnotherNodeIsNotHeldUp(t *testing.T) {
	c := newCluster(t, 2, nil)
	ctx := t.Context()
	h := c.startOtherHook()
	c.awaitOtherHook(h)
	c.create(pod("moved", "4"))
	h.set(refuse)
	require.Error(t, c.bind(ctx, "moved", "node-0"))
	h.set(allow)
	start := time.Now()
	eventually(t, soon, func(t *assert.CollectT) { assert.NoError(t, c.bind(ctx, "moved", "node-1")) })
	assert.Less(t, time.Since(start), 2*time.Second)
	c.requireNeverOvercommitted()
}

// A binding that is held up behind us for longer than we wait for it: its room is given to another
// pod, and then it must not be carried out any more.
func TestLateBindingIsFencedOff(t *testing.T) {
	c := newCluster(t, 1, nil)
	ctx := t.Context()
	h := c.startOtherHook()
	c.awaitOtherHook(h)
	c.create(pod("late", "4"))
	c.create(pod("other", "4"))
	reached, release := make(chan struct{}), make(chan struct{})
	h.set(func(request *admissionv1.AdmissionRequest) bool {
		if request.Name == "late" {
			close(reached)
			<-release
		}
		return true
	})
	result := make(chan error, 1)
	go func() { result <- c.bind(ctx, "late", "node-0") }()
	<-reached
	assert.Equal(t, 1, c.claimsIn("Binding"), "while it may be carried out, its room is taken")
	require.Error(t, c.bind(ctx, "other", "node-0"))
	c.requireGivenBack()
	require.NoError(t, c.bind(ctx, "other", "node-0"))
	close(release)
	err := <-result
	require.Error(t, err)
	assert.True(t, apierrors.IsConflict(err), "%v", err)
	c.requireNeverOvercommitted()
	late, err := c.Client().CoreV1().Pods(namespace).Get(ctx, "late", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Empty(t, late.Spec.NodeName)
	assert.NotEmpty(t, late.Annotations["globalreserve.io/binding-withdrawn"])
}

// A pod that is deleted, and one that is deleted and made again, between our permission and the
// write: the room is free again, and the new pod is not bound in the place of the old one.
func TestPodDeletedWhileItsBindingIsUnderWay(t *testing.T) {
	for name, again := range map[string]bool{"deleted": false, "made again": true} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1, nil)
			ctx := t.Context()
			h := c.startOtherHook()
			c.awaitOtherHook(h)
			c.create(pod("p", "4"))
			h.set(func(request *admissionv1.AdmissionRequest) bool {
				if request.Name == "p" {
					assert.NoError(t, c.naive.CoreV1().Pods(namespace).Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
					if again {
						_, err := c.naive.CoreV1().Pods(namespace).Create(ctx, pod("p", "3"), metav1.CreateOptions{})
						assert.NoError(t, err)
					}
				}
				return true
			})
			require.Error(t, c.bind(ctx, "p", "node-0"))
			c.requireGivenBack()
			h.set(allow)
			c.create(pod("other", "4"))
			require.NoError(t, c.bind(ctx, "other", "node-0"))
			if again {
				p, err := c.Client().CoreV1().Pods(namespace).Get(ctx, "p", metav1.GetOptions{})
				require.NoError(t, err)
				assert.Empty(t, p.Spec.NodeName)
			}
			c.requireNeverOvercommitted()
		})
	}
}

// A binding that the API server itself refuses when it writes: the pod has gates.
func TestBindingThatFails(t *testing.T) {
	c := newCluster(t, 1, nil)
	ctx := t.Context()
	gated := pod("gated", "4")
	gated.Spec.SchedulingGates = gates("example.com/wait")
	c.create(gated)
	c.create(pod("other", "4"))
	err := c.bind(ctx, "gated", "node-0")
	require.ErrorContains(t, err, "schedulingGates")
	c.requireGivenBack()
	require.NoError(t, c.bind(ctx, "other", "node-0"))
	c.requireNeverOvercommitted()
}

// A server that is told to stop leaves nothing behind that could be carried out later.
func TestStopFencesOffWhatIsUnderWay(t *testing.T) {
	c := newCluster(t, 1, nil)
	ctx := t.Context()
	h := c.startOtherHook()
	c.awaitOtherHook(h)
	c.create(pod("late", "4"))
	c.create(pod("other", "4"))
	reached, release := make(chan struct{}), make(chan struct{})
	h.set(func(request *admissionv1.AdmissionRequest) bool {
		if request.Name == "late" {
			close(reached)
			<-release
		}
		return true
	})
	result := make(chan error, 1)
	go func() { result <- c.bind(ctx, "late", "node-0") }()
	<-reached
	require.NoError(t, c.server.Restart(ctx))
	require.NoError(t, c.bind(ctx, "other", "node-0"))
	close(release)
	require.Error(t, <-result)
	c.requireNeverOvercommitted()
}
