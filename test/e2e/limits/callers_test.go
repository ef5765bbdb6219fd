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

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

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
