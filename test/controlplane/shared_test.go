//go:build e2e

package controlplane

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newShared has a namespace prepared.
func newShared(t *testing.T) *Shared {
	t.Helper()
	shared := &Shared{Prepare: func(ctx context.Context, c *ControlPlane) error {
		return c.CreateNamespace(ctx, "prepared")
	}}
	t.Cleanup(func() { require.NoError(t, shared.discard()) })
	return shared
}

// TestShared has one control plane serve several tests: each finds what was prepared, and of the tests
// before neither an object nor a process.
func TestShared(t *testing.T) {
	shared := newShared(t)
	var first *Process
	for _, round := range []string{"first", "second"} {
		t.Run(round, func(t *testing.T) {
			c := shared.StartT(t)
			require.Equal(t, []string{"default", "kube-node-lease", "kube-public", "kube-system", "prepared"}, namespaces(t, c))
			require.NoError(t, c.StartScheduler(t.Context(), "scheduler", nil))
			process, err := c.Process("scheduler")
			require.NoError(t, err)
			if first == nil {
				first = process
			}
			_, err = c.Process(APIServer)
			require.ErrorContains(t, err, "no part named", "a test could stop what others use")
			leaveBehind(t, c)
		})
	}
	require.False(t, first.Running())
	began := time.Now()
	t.Run("nothing is left", func(t *testing.T) {
		c := shared.StartT(t)
		nodes, err := c.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		require.NoError(t, err)
		require.Empty(t, nodes.Items)
		pods, err := c.Client().CoreV1().Pods("").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		require.NoError(t, err)
		require.Empty(t, pods.Items)
	})
	t.Logf("a test that does nothing takes %s", time.Since(began).Round(time.Millisecond))
}

func namespaces(t *testing.T, c *ControlPlane) (names []string) {
	t.Helper()
	list, err := c.Client().CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// leaveBehind makes what is hard to get rid of: a pod that is bound, one with a finalizer that is being
// deleted, a namespace that nobody ends, and a webhook that cannot be reached.
func leaveBehind(t *testing.T, c *ControlPlane) {
	t.Helper()
	ctx := t.Context()
	_, err := c.CreateNodes(ctx, 3, NodeTemplate{})
	require.NoError(t, err)
	createPod(t, c, testPod("bound", "scheduler", "1"))
	requirePod(t, c, "bound", isBound)
	held := testPod("held", "nobody", "1")
	held.Finalizers = []string{"example.com/for-ever"}
	createPod(t, c, held)
	require.NoError(t, c.Client().CoreV1().Pods("default").Delete(ctx, "held", metav1.DeleteOptions{}))
	require.NoError(t, c.CreateNamespace(ctx, "ends"))
	require.NoError(t, c.Client().CoreV1().Namespaces().Delete(ctx, "ends", metav1.DeleteOptions{}))
	require.NoError(t, c.Apply(ctx, []byte(nowhere), ""))
	require.Eventually(t, func() bool {
		_, err := c.Client().CoreV1().Pods("default").Create(ctx, testPod("refused", "nobody", "1"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsInternalError(err)
	}, Patience, pollInterval, "the webhook is asked")
}

const nowhere = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: nowhere}
webhooks:
- name: nowhere.example.com
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  sideEffects: None
  admissionReviewVersions: [v1]
`

// TestSharedIsGivenUp has a test take away what all tests are to find: it is told, and the next one gets a
// control plane that is whole.
func TestSharedIsGivenUp(t *testing.T) {
	shared := newShared(t)
	ctx := t.Context()
	require.NoError(t, shared.start(ctx))
	base := shared.base
	tenant, err := base.Tenant()
	require.NoError(t, err)
	require.NoError(t, base.etcdDelete(ctx, "/registry/namespaces/prepared"))
	require.ErrorContains(t, shared.leave(tenant, false),
		"/registry/namespaces/prepared is gone: the test needs a control plane of its own")
	require.NoError(t, shared.start(ctx))
	require.NotSame(t, base, shared.base)
	require.Contains(t, namespaces(t, shared.base), "prepared")
}
