//go:build e2e

package controlplane

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestShared has one control plane serve several tests: each finds what was prepared, and of the tests
// before neither an object nor a process.
func TestShared(t *testing.T) {
	shared := Shared{Prepare: func(ctx context.Context, c *ControlPlane) error {
		return c.CreateNamespace(ctx,
			"prepared")
	}}
	t.Cleanup(func() { require.NoError(t, shared.discard()) })
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
	_, err = c.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().
		Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "nowhere"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name:         "nowhere.example.com",
				ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{""}, APIVersions: []string{"v1"},
						Resources: []string{"pods"},
					},
				}},
				SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			}},
		}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := c.Client().CoreV1().Pods("default").Create(ctx, testPod("refused", "nobody", "1"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsInternalError(err)
	}, Patience, pollInterval, "the webhook is asked")
}

// TestSharedIsGivenUp has a test take away what all tests are to find: it is told, and the next one gets a
// control plane that is whole.
func TestSharedIsGivenUp(t *testing.T) {
	shared := Shared{Prepare: func(ctx context.Context, c *ControlPlane) error {
		return c.CreateNamespace(ctx,
			"prepared")
	}}
	t.Cleanup(func() { require.NoError(t, shared.discard()) })
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
