package limits

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// shared is the control plane of all tests, with our definitions.
var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// newCluster starts a cluster of so many nodes of 4 CPUs, whose API server asks the server about bindings.
func newCluster(t *testing.T, nodes int, args ...string) *testbed.Cluster {
	t.Helper()
	c := testbed.NewCluster(t, shared.StartT(t))
	c.AddNodes(nodes, controlplane.NodeTemplate{})
	c.StartAsked(clusterload.ServerOptions{Args: args})
	return &c
}

// TestPolicyLimits: what the policy limits is refused with a reason of its own on each path, while others go on; a
// changed policy counts, a bad file leaves the one before in force.
func TestPolicyLimits(t *testing.T) {
	file := testbed.Policy(t, "namespaces: {limited: {maxReserved: {cpu: 25%}, maxSlots: 2}}\n") // of 8
	outer := newCluster(t, 2, "--policy-file="+file)
	inner := outer.In(t, "limited")
	c := &inner
	reserve := func(c *testbed.Cluster, name, cpu string, durable bool) *reserver.Answer {
		request := &reserver.Request{
			SchedulerName: testbed.Nobody, Pods: []*corev1.Pod{testbed.NewPod(name, testbed.Nobody, cpu)},
			Nodes: []string{"node-0"}, Durable: &durable, TTLSeconds: 3600,
		}
		request.Pods[0].Namespace = c.Namespace
		return c.Reserve(request)
	}
	requireRefused := func(answer *reserver.Answer, reason ledger.Reason) {
		t.Helper()
		require.NotEmpty(t, answer.Error)
		require.Equal(t, reason.String(), answer.Rejections[0].Reason, answer.Rejections[0].Message)
	}
	c.Eventually(func(t *assert.CollectT) { assert.NotEmpty(t, reserve(c, "large", "2500m", false).Error) },
		"25% of 8 CPUs are known")
	requireRefused(reserve(c, "large", "2500m", false), ledger.ReservedLimit)
	requireRefused(reserve(c, "large", "2500m", true), ledger.ReservedLimit)
	c.CreateReservation("by-hand", "{ttl: 10m, slots: [{name: a, requests: {cpu: 2500m}}]}")
	c.Eventually(func(t *assert.CollectT) {
		rsv, err := c.Reservations().Get(context.Background(), "by-hand", metav1.GetOptions{})
		if assert.NoError(t, err) && assert.NotEmpty(t, rsv.Status.Conditions) {
			assert.Contains(t, rsv.Status.Conditions[0].Message, "maxReserved")
		}
	})
	others := outer.In(t, "unlimited")
	require.Empty(t, reserve(&others, "large", "2500m", false).Error)

	require.Empty(t, reserve(c, "a", "100m", false).Error)
	require.Empty(t, reserve(c, "b", "100m", true).Error)
	requireRefused(reserve(c, "c", "100m", false), ledger.SlotLimit)
	kept := c.CreatePod("kept", testbed.Nobody, "100m", testbed.Annotated("globalreserve.io/reservation", "true"))
	require.Empty(t, c.Bind(kept, "node-1"), "pods are not reservations")
	c.Delete("kept")
	c.AwaitEvent("Pod", "kept", "CapacityNotKept", "maxSlots")

	testbed.ChangePolicy(t, file, "namespaces: {limited: {maxReserved: {cpu: 25%}, maxSlots: 3}}\n")
	c.Eventually(func(t *assert.CollectT) { assert.Empty(t, reserve(c, "c", "100m", false).Error) })
	failed := c.Metric("globalreserve_policy_reload_failures_total")
	testbed.ChangePolicy(t, file, "namespaces: {limited: {maxSlots: many}}\n")
	c.Eventually(func(t *assert.CollectT) {
		assert.Greater(t, c.Metric("globalreserve_policy_reload_failures_total"), failed)
	})
	requireRefused(reserve(c, "d", "100m", false), ledger.SlotLimit)
	require.NotZero(t, c.Metric("globalreserve_policy_last_reload_success_timestamp_seconds"))
}
