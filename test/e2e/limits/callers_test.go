//go:build e2e

package limits

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestCallersStayWithinTheirLimits: what a caller may use is refused with a reason of its own on each path, whatever
// scheduler the pods name; others go on, and a changed policy counts.
func TestCallersStayWithinTheirLimits(t *testing.T) {
	const limited = "schedulers: [{name: batch, callers: [%q], limits: {cpu: %s}}]\n" // of 8
	file := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(caller, cpu string) {
		require.NoError(t, os.WriteFile(file, []byte(policyHead+fmt.Sprintf(limited, caller, cpu)), 0o600))
	}
	write(ledger.Trusted, "25%")
	c := newCluster(t, 2, "--policy-file="+file)
	reserve := func(name string, durable bool) *reserver.Answer {
		request := &reserver.Request{
			SchedulerName: testbed.Nobody, Pods: []*corev1.Pod{testbed.NewPod(name, testbed.Nobody, "1500m")},
			Nodes: []string{"node-0"}, Durable: &durable,
		}
		request.Pods[0].Namespace = c.Namespace
		return c.Reserve(request)
	}
	requireRefused := func(answer *reserver.Answer) {
		t.Helper()
		require.NotEmpty(t, answer.Error)
		require.Equal(t, ledger.CallerLimit.String(), answer.Rejections[0].Reason, answer.Rejections[0].Message)
	}
	bound := c.CreatePod("bound", testbed.Nobody, "1500m", testbed.Annotated("globalreserve.io/reservation", "true"))
	require.Empty(t, c.Bind(bound, "node-0"))
	assert.Equal(t, ledger.Trusted, c.Pod("bound").Annotations["globalreserve.io/caller"])
	requireRefused(reserve("a", false))
	requireRefused(reserve("a", true))
	second := c.CreatePod("second", "another-name", "1500m")
	assert.Contains(t, c.Bind(second, "node-1"), "schedulers.limits")
	_, err := c.Ledger.Filter(t.Context(), second, "node-1")
	assert.ErrorContains(t, err, "all that the policy allows")
	assert.NotZero(t, c.Metric("globalreserve_limit_refusals_total", "reason", ledger.CallerLimit.String()))
	c.AwaitEvent("Pod", "second", ledger.CallerLimit.String(), "schedulers.limits")
	c.Delete("bound") // what a deleted pod leaves is its caller's
	c.AwaitReservation("bound", "Available")
	requireRefused(reserve("a", false))
	require.NoError(t, c.BindDirectly("second", "node-1"), "another caller's binding")

	me, err := c.Client().AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	require.NoError(t, err)
	write(me.Status.UserInfo.Username, "25%")
	c.Eventually(func(t *assert.CollectT) { assert.Empty(t, reserve("a", false).Error, "nobody limits plain HTTP now") })
	c.CreatePod("third", testbed.Nobody, "1")
	require.ErrorContains(t, c.BindDirectly("third", "node-1"), "schedulers.limits",
		"second counts, bound before there was a limit")
	placed := testbed.NewPod("placed", testbed.Nobody, "1", func(p *corev1.Pod) { p.Spec.NodeName = "node-1" })
	_, err = c.Client().CoreV1().Pods(c.Namespace).Create(t.Context(), placed, metav1.CreateOptions{})
	require.ErrorContains(t, err, "schedulers.limits")
	c.CreateReservation("by-hand", "{ttl: 10m, slots: [{name: a, requests: {cpu: 1}}]}")
	c.Eventually(func(t *assert.CollectT) {
		rsv, err := c.Reservations().Get(context.Background(), "by-hand", metav1.GetOptions{})
		if assert.NoError(t, err) && assert.NotEmpty(t, rsv.Status.Conditions) {
			assert.Equal(t, ledger.CallerLimit.String(), rsv.Status.Conditions[0].Reason)
		}
	})
	write(me.Status.UserInfo.Username, "50%")
	c.AwaitReservation("by-hand", "Available")
	c.RequireNeverOvercommitted()
}

// TestOnlyListedCallersActForALimitedScheduler: who is not listed gets nothing for the scheduler's pods on paths that
// the server does not carry out itself, and what waits for that goes on when the policy lists it.
func TestOnlyListedCallersActForALimitedScheduler(t *testing.T) {
	const limited = "schedulers: [{name: %s, callers: [somebody-else%s], limits: {cpu: 100%%}}]\n"
	file := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(more string) {
		require.NoError(t, os.WriteFile(file, []byte(policyHead+fmt.Sprintf(limited, testbed.Nobody, more)), 0o600))
	}
	write("")
	c := newCluster(t, 1, "--policy-file="+file)
	me, err := c.Client().AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	require.NoError(t, err)

	c.CreatePod("p", testbed.Nobody, "1")
	require.ErrorContains(t, c.BindDirectly("p", "node-0"), "may not act for scheduler")
	placed := testbed.NewPod("placed", testbed.Nobody, "1", func(p *corev1.Pod) { p.Spec.NodeName = "node-0" })
	_, err = c.Client().CoreV1().Pods(c.Namespace).Create(t.Context(), placed, metav1.CreateOptions{})
	require.ErrorContains(t, err, "may not act for scheduler")
	c.CreateReservation("by-hand", "{ttl: 10m, schedulerName: "+testbed.Nobody+", slots: [{name: a, requests: {cpu: 1}}]}")
	c.Eventually(func(t *assert.CollectT) {
		rsv, err := c.Reservations().Get(context.Background(), "by-hand", metav1.GetOptions{})
		if assert.NoError(t, err) && assert.NotEmpty(t, rsv.Status.Conditions) {
			assert.Contains(t, rsv.Status.Conditions[0].Message, "may not act for scheduler")
		}
	})
	trusted := c.CreatePod("trusted", testbed.Nobody, "1")
	require.Empty(t, c.Bind(trusted, "node-0"), "plain HTTP may act for all")

	write(", " + me.Status.UserInfo.Username)
	c.AwaitReservation("by-hand", "Available")
	require.NoError(t, c.BindDirectly("p", "node-0"))
	c.RequireNeverOvercommitted()
}
