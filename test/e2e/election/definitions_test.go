package election

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// healed is how soon everything is as before when definitions are back, far above what it takes on an idle machine.
const healed = 90 * time.Second

// Under load the definitions of all our kinds are deleted, and the server that decides is killed while they are gone;
// then they are created again, replaced by an older version, and upgraded: no node is ever overcommitted, no term is
// lower than one before, and soon reservations are durable, the fence is up and all servers can be asked.
func TestDefinitionsComeAndGo(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	require.NoError(t, crd.Prepare(t.Context(), cp))
	c := newCrowd(t, cp, clusterload.SlowLease...)
	stop := c.run()
	c.load.AssertDone(t, 2, "reserve", "bind a gang")
	before := c.term()
	c.forgiving.Store(true) // what is reserved goes with the definitions

	c.changeDefinitions(func(definition *unstructured.Unstructured) error {
		return c.definitions(definition).Delete(t.Context(), definition.GetName(), metav1.DeleteOptions{})
	})
	c.Eventually(func(t *assert.CollectT) {
		up, err := c.leader().Metric(c.T.Context(), "globalreserve_fence_up")
		assert.NoError(t, err)
		assert.Zero(t, up)
	}, "it is told that late writes are not refused")
	c.forget()
	c.bindsOne()
	leader := c.leader()
	require.NoError(t, leader.Kill())
	require.NoError(t, leader.Start(t.Context()))
	c.bindsOne()

	require.NoError(t, crd.Define(t.Context(), cp))
	c.awaitHealed("created again")
	assert.Greater(t, c.term(), before)

	before = c.term()
	c.changeDefinitions(func(definition *unstructured.Unstructured) error {
		return c.update(definition, func(properties map[string]any) {
			drop(properties, "spec", "url")
			drop(properties, "spec", "publicKey")
			drop(properties, "status", "servers")
			drop(properties, "spec", "preemptible")
		})
	})
	c.Eventually(func(t *assert.CollectT) {
		term, err := c.Objects.GlobalreserveV1alpha1().LedgerTerms().Get(c.T.Context(), v1alpha1.LedgerTermName, metav1.GetOptions{})
		if assert.NoError(t, err) {
			assert.Empty(t, term.Spec.URL, "the older definition is in force")
		}
	})
	c.bindsOne()
	c.changeDefinitions(func(definition *unstructured.Unstructured) error {
		return c.update(definition, func(properties map[string]any) {
			spec, _, _ := unstructured.NestedMap(properties, "spec", "properties")
			spec["purpose"] = map[string]any{"type": "string"} // of a version to come
			_ = unstructured.SetNestedMap(properties, spec, "spec", "properties")
		})
	})
	c.awaitHealed("upgraded")
	assert.GreaterOrEqual(t, c.term(), before)
	stop()
	c.forgiving.Store(false)
	c.requireGood()
}

// forget forgets the gangs that were reserved by objects which are gone.
func (c *crowd) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.gangs)
	clear(c.kept)
}

// definitions reaches definitions of kinds.
func (c *crowd) definitions(definition *unstructured.Unstructured) dynamic.ResourceInterface {
	c.T.Helper()
	resource, err := c.Resource(definition, "")
	require.NoError(c.T, err)
	return resource
}

// changeDefinitions changes those of all our kinds, each of which is given as manifests/crd has it.
func (c *crowd) changeDefinitions(change func(definition *unstructured.Unstructured) error) {
	c.T.Helper()
	all, err := crd.Definitions()
	require.NoError(c.T, err)
	for _, definition := range all {
		require.NoError(c.T, change(definition))
	}
}

// update replaces a definition, whose schema is changed.
func (c *crowd) update(definition *unstructured.Unstructured, change func(properties map[string]any)) error {
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	require.NoError(c.T, err)
	schema := versions[0].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
	change(schema["properties"].(map[string]any))
	require.NoError(c.T, unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"))
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := c.definitions(definition).Get(c.T.Context(), definition.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		definition.SetResourceVersion(now.GetResourceVersion())
		_, err = c.definitions(definition).Update(c.T.Context(), definition, metav1.UpdateOptions{})
		return err
	})
}

// drop takes a field out of a schema, if it is there.
func drop(properties map[string]any, of, field string) {
	inner, found, _ := unstructured.NestedMap(properties, of, "properties")
	if !found {
		return
	}
	delete(inner, field)
	_ = unstructured.SetNestedMap(properties, inner, of, "properties")
	required, found, _ := unstructured.NestedStringSlice(properties, of, "required")
	if found {
		_ = unstructured.SetNestedStringSlice(properties, slices.DeleteFunc(required, func(name string) bool { return name == field }), of, "required")
	}
}

// term is the term that the cluster is in.
func (c *crowd) term() int64 {
	c.T.Helper()
	term, err := c.Objects.GlobalreserveV1alpha1().LedgerTerms().Get(c.T.Context(), v1alpha1.LedgerTermName, metav1.GetOptions{})
	require.NoError(c.T, err)
	return term.Spec.Term
}

// createSmall creates a pod that fits on roomy.
func (c *crowd) createSmall() *corev1.Pod {
	c.T.Helper()
	return c.CreatePod(fmt.Sprint("small-", c.numbers.Add(1)), nobody, "1m", func(pod *corev1.Pod) {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}}
	})
}

// bindsOne waits until a pod is bound that asks for next to nothing: it is decided.
func (c *crowd) bindsOne() {
	c.T.Helper()
	pod := c.createSmall()
	c.Eventually(func(t *assert.CollectT) { assert.NoError(t, c.bind(c.T.Context(), pod, roomy)) })
}

// awaitHealed waits until everything is as it should be.
func (c *crowd) awaitHealed(what string) {
	c.T.Helper()
	began := time.Now()
	pod := c.createSmall()
	var durable time.Duration
	require.EventuallyWithT(c.T, func(t *assert.CollectT) {
		c.revive()
		ctx, cancel := context.WithTimeout(c.T.Context(), 5*time.Second) // it may be asked again
		defer cancel()
		answer, err := c.client.Reserve(ctx, &reserver.Request{SchedulerName: nobody, Pods: []*corev1.Pod{pod}, Nodes: []string{roomy}, TTLSeconds: 1})
		if assert.NoError(t, err) && assert.True(t, answer.Durable) && durable == 0 {
			durable = time.Since(began)
		}
		for _, s := range c.servers {
			assert.NoError(t, controlplane.HTTPReady(s.URL+"/readyz", nil)(c.T.Context()), s.Name())
		}
		up, err := c.leader().Metric(c.T.Context(), "globalreserve_fence_up")
		assert.NoError(t, err)
		assert.NotZero(t, up, "the fence")
	}, healed, testbed.Poll)
	c.T.Logf("%s: reservations are durable after %s, and all is as before after %s", what,
		durable.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}
