//go:build e2e

package election

import (
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
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// The definitions of all our kinds are deleted, and the server that decides is killed while they are gone; then they
// are created again, replaced by an older version, and upgraded. Pods are bound all the while, and no term is lower
// than one before. In the end reservations are durable each time, the fence is up and all servers can be asked.
func TestDefinitionsComeAndGo(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	require.NoError(t, crd.Prepare(t.Context(), cp))
	c := newCluster(t, cp, 1)
	for i := range 2 {
		c.start(fmt.Sprint("server-", i), nil)
	}
	c.awaitHealed("started")
	before := term(t, c.leader())

	c.changeDefinitions(func(definition *unstructured.Unstructured) error {
		return c.definitions(definition).Delete(t.Context(), definition.GetName(), metav1.DeleteOptions{})
	})
	c.awaitNoFence()
	c.bindsOne()
	leader := c.leader()
	require.NoError(t, leader.Kill())
	require.NoError(t, leader.Start(t.Context()))
	c.bindsOne()

	require.NoError(t, crd.Define(t.Context(), cp))
	c.awaitHealed("created again")
	assert.Greater(t, term(t, c.leader()), before)

	before = term(t, c.leader())
	c.downgrade()
	c.bindsOne()
	c.changeDefinitions(func(definition *unstructured.Unstructured) error {
		return c.update(definition, func(map[string]any) {})
	})
	c.awaitHealed("upgraded")
	assert.GreaterOrEqual(t, term(t, c.leader()), before)
	c.RequireNeverOvercommitted()
	c.Eventually(func(t *assert.CollectT) {
		drift, err := c.leader().Metric(c.T.Context(), "globalreserve_ledger_drift")
		require.NoError(t, err)
		assert.Zero(t, drift, "the ledger differs from the cluster")
	})
}

// definitions reaches definitions of kinds.
func (c *cluster) definitions(definition *unstructured.Unstructured) dynamic.ResourceInterface {
	c.T.Helper()
	resource, err := c.Resource(definition, "")
	require.NoError(c.T, err)
	return resource
}

// changeDefinitions changes those of all our kinds, each of which is given as manifests/crd has it.
func (c *cluster) changeDefinitions(change func(definition *unstructured.Unstructured) error) {
	c.T.Helper()
	all, err := crd.Definitions()
	require.NoError(c.T, err)
	for _, definition := range all {
		require.NoError(c.T, change(definition))
	}
}

// update replaces a definition, whose schema is changed.
func (c *cluster) update(definition *unstructured.Unstructured, change func(properties map[string]any)) error {
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

// downgrade has the definitions lack fields, and waits until they are in force.
func (c *cluster) downgrade() {
	c.T.Helper()
	c.changeDefinitions(func(definition *unstructured.Unstructured) error {
		return c.update(definition, func(properties map[string]any) {
			drop(properties, "spec", "url")
			drop(properties, "spec", "publicKey")
			drop(properties, "status", "servers")
			drop(properties, "spec", "preemptible")
		})
	})
	c.Eventually(func(t *assert.CollectT) {
		terms := c.Objects.GlobalreserveV1alpha1().LedgerTerms()
		term, err := terms.Get(c.T.Context(), v1alpha1.LedgerTermName, metav1.GetOptions{})
		if assert.NoError(t, err) {
			assert.Empty(t, term.Spec.URL, "the older definition is in force")
		}
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
		_ = unstructured.SetNestedStringSlice(properties, slices.DeleteFunc(required,
			func(name string) bool { return name == field }), of, "required")
	}
}

// awaitNoFence waits until the server that decides says that late writes are not refused. The API server forgets
// definitions little by little: what carries no term it refuses at no time.
func (c *cluster) awaitNoFence() {
	c.T.Helper()
	c.CreatePod("stranger", nobody, "1m")
	c.Eventually(func(t *assert.CollectT) {
		require.NoError(c.T, c.BindDirectly("stranger", c.nodes[0], metav1.DryRunAll))
		up, err := c.leader().Metric(c.T.Context(), "globalreserve_fence_up")
		assert.NoError(t, err)
		assert.Zero(t, up)
	})
}

// createSmall creates a pod that asks for next to nothing.
func (c *cluster) createSmall() *corev1.Pod {
	c.T.Helper()
	return c.CreatePod(fmt.Sprint("small-", len(c.Pods())), nobody, "1m")
}

// bindsOne waits until a pod is bound that asks for next to nothing: it is decided, by a server that the others may not
// know.
func (c *cluster) bindsOne() {
	c.T.Helper()
	pod := c.createSmall()
	c.Eventually(func(t *assert.CollectT) {
		refusal, err := bindAt(c.T.Context(), c.leader(), pod, c.nodes[0])
		assert.NoError(t, err)
		assert.Empty(t, refusal)
	})
}

// awaitHealed waits until everything is as it should be.
func (c *cluster) awaitHealed(what string) {
	c.T.Helper()
	began := time.Now()
	pods := []*corev1.Pod{c.createSmall()}
	request := &reserver.Request{SchedulerName: nobody, Pods: pods, Nodes: c.nodes, TTLSeconds: 1}
	c.Eventually(func(t *assert.CollectT) {
		var answer reserver.Answer
		assert.NoError(t, c.servers[0].Post(c.T.Context(), testbed.ReservePath, request, &answer))
		assert.True(t, answer.Granted() && answer.Durable, "%+v", answer)
		for _, s := range c.servers {
			assert.NoError(t, controlplane.HTTPReady(s.URL+"/readyz", nil)(c.T.Context()), s.Name())
		}
		up, err := c.leader().Metric(c.T.Context(), "globalreserve_fence_up")
		assert.NoError(t, err)
		assert.NotZero(t, up, "the fence")
	})
	c.T.Logf("%s: all is as before after %s", what, time.Since(began).Round(time.Millisecond))
}
