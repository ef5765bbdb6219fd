package admission

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A binding that does not fit is refused with a text that tells why, through pods/binding and
// through the older bindings alike; one that fits goes through and is counted.
func TestBindings(t *testing.T) {
	c := newCluster(t, 2, nil)
	ctx := t.Context()
	older := func(ctx context.Context, name, node string) error {
		return c.naive.CoreV1().RESTClient().Post().Namespace(namespace).Resource("bindings").Body(binding(name, node)).Do(ctx).Error()
	}
	for name, bind := range map[string]func(context.Context, string, string) error{"pods-binding": c.bind, "bindings": older} {
		t.Run(name, func(t *testing.T) {
			first, second := name+"-first", name+"-second"
			c.create(pod(first, "3"))
			c.create(pod(second, "2"))
			require.NoError(t, bind(ctx, first, "node-0"))
			err := bind(ctx, second, "node-0")
			require.Error(t, err)
			assert.True(t, apierrors.IsConflict(err), "%v", err)
			assert.ErrorContains(t, err, `node "node-0" has too little cpu for pod default/`+second+`: requested 2000, free 1000; largest holder default/`+first)
			require.NoError(t, bind(ctx, second, "node-1"))
			for pod, node := range map[string]string{first: "node-0", second: "node-1"} {
				bound, err := c.Client().CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
				require.NoError(t, err)
				assert.Equal(t, node, bound.Spec.NodeName)
				c.remove(pod)
			}
			eventually(t, soon, func(t *assert.CollectT) {
				assert.Zero(t, c.claimsIn("Bound"))
			})
		})
	}
	err := c.bind(ctx, "no-such-pod", "node-0")
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	assert.Equal(t, 4, c.decided("naive", "granted"))
	assert.Equal(t, 2, c.metric("globalreserve_conflicts_total", "resource", "cpu", "scheduler", "naive"))
	assert.Zero(t, c.bypassed("naive"))
	assert.Zero(t, c.claimsIn("Binding"))
	c.requireNeverOvercommitted()
}

// A dry run decides like a real binding and changes nothing.
func TestDryRunChangesNothing(t *testing.T) {
	c := newCluster(t, 1, nil)
	ctx := t.Context()
	c.create(pod("big", "5"))
	c.create(pod("small", "1"))
	before := c.claims()
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	pods := c.naive.CoreV1().Pods(namespace)
	require.NoError(t, pods.Bind(ctx, binding("small", "node-0"), dryRun))
	require.ErrorContains(t, pods.Bind(ctx, binding("big", "node-0"), dryRun), "too little cpu")
	withNode := pod("with-node", "1")
	withNode.Spec.NodeName = "node-0"
	_, err := pods.Create(ctx, withNode, dryRun)
	require.NoError(t, err)
	withNode = pod("with-node", "5")
	withNode.Spec.NodeName = "node-0"
	_, err = pods.Create(ctx, withNode, dryRun)
	require.ErrorContains(t, err, "too little cpu")
	assert.Equal(t, before, c.claims(), "claims, and the revision")
	assert.Zero(t, c.decided("naive", "granted"))
}

// Pods created with a node are decided on like bindings, and have their claim by name.
func TestPodsCreatedWithANode(t *testing.T) {
	c := newCluster(t, 1, nil)
	ctx := t.Context()
	withNode := func(name, cpu string) *corev1.Pod {
		p := pod(name, cpu)
		p.Spec.NodeName = "node-0"
		return p
	}
	c.create(withNode("first", "3"))
	pods := c.naive.CoreV1().Pods(namespace)
	_, err := pods.Create(ctx, withNode("second", "2"), metav1.CreateOptions{})
	require.Error(t, err)
	var status apierrors.APIStatus
	require.ErrorAs(t, err, &status)
	assert.EqualValues(t, http.StatusConflict, status.Status().Code)
	assert.ErrorContains(t, err, "largest holder default/first")

	_, err = pods.Create(ctx, withNode("first", "1"), metav1.CreateOptions{})
	assert.True(t, apierrors.IsAlreadyExists(err), "%v", err)

	generated := withNode("", "1")
	generated.GenerateName = "generated-"
	created := c.create(generated)
	assert.Regexp(t, "^generated-[a-z0-9]{10}$", created.Name)
	eventually(t, soon, func(t *assert.CollectT) {
		assert.Equal(t, 2, c.claimsIn("Bound"))
	})
	assert.Zero(t, c.claimsIn("Binding"))

	// Made again at once under the same name.
	c.remove("first")
	eventually(t, soon, func(t *assert.CollectT) {
		_, err := pods.Create(ctx, withNode("first", "3"), metav1.CreateOptions{})
		assert.NoError(t, err)
	})
	mirror := withNode("mirror", "4")
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	_, err = pods.Create(ctx, mirror, metav1.CreateOptions{})
	require.ErrorContains(t, err, "too little cpu", "the annotation alone opens nothing")

	unbound := pod("unbound", "100")
	c.create(unbound) // has no node, so the webhook has nothing to say
	assert.Zero(t, c.bypassed("naive"))
	c.requireNeverOvercommitted()
}
