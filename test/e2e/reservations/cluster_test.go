package reservations

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// shared is the control plane of all tests, with our definitions.
var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// cluster is a control plane with a GlobalReserve server.
type cluster struct{ testbed.Cluster }

// newCluster starts a cluster without nodes.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{testbed.NewCluster(t, shared.StartT(t))}
	c.StartServer(clusterload.ServerOptions{})
	return c
}

// in returns the same cluster for a subtest with a namespace of its own.
func (c *cluster) in(t *testing.T, namespace string) *cluster {
	t.Helper()
	return &cluster{c.In(t, namespace)}
}

// nodes adds n nodes of four CPUs, named after the namespace, and waits until the server knows them.
func (c *cluster) nodes(n int) []string {
	c.T.Helper()
	names := c.AddNodes(n, controlplane.NodeTemplate{Prefix: c.Namespace +
		"-", Labels: map[string]string{"pool": c.Namespace}})
	c.Eventually(func(t *assert.CollectT) {
		answer, err := c.Ledger.Nodes(c.T.Context())
		require.NoError(t, err)
		known := map[string]bool{}
		for i := range answer.Nodes {
			known[answer.Nodes[i].Name] = true
		}
		for _, name := range names {
			assert.True(t, known[name], name)
		}
	})
	return names
}

// get returns a Reservation, which must be there.
func (c *cluster) get(name string) *v1alpha1.Reservation {
	c.T.Helper()
	rsv, err := c.Reservations().Get(c.T.Context(), name, metav1.GetOptions{})
	require.NoError(c.T, err)
	return rsv
}

// waitFor does what `kubectl wait --for=condition=...` does: it watches the object until the condition is there.
func (c *cluster) waitFor(name, condition string, status metav1.ConditionStatus) {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(c.T.Context(), testbed.Soon)
	defer cancel()
	stream, err := c.Reservations().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	require.NoError(c.T, err)
	defer stream.Stop()
	for event := range stream.ResultChan() {
		rsv, ok := event.Object.(*v1alpha1.Reservation)
		require.True(c.T, ok, "%+v", event)
		for _, found := range rsv.Status.Conditions {
			if found.Type == condition && found.Status == status && found.ObservedGeneration == rsv.Generation {
				return
			}
		}
	}
	require.Fail(c.T, "the condition did not come", "%s of %s: %+v", condition, name, c.get(name))
}

// reason is that of the Available condition.
func reason(rsv *v1alpha1.Reservation) string {
	for _, condition := range rsv.Status.Conditions {
		if condition.Type == v1alpha1.ConditionAvailable {
			return condition.Reason
		}
	}
	return ""
}

// columns are what `kubectl get rsv NAME` prints.
func (c *cluster) columns(name string) string {
	c.T.Helper()
	cells := c.Columns(name)
	return strings.Join([]string{cells["NodeName"], cells["Status"], cells["Consumed"]}, "|")
}

// createPod creates a pod of some CPUs. index, if any, is the capacity it may use.
func (c *cluster) createPod(name, cpu, index string) *corev1.Pod {
	c.T.Helper()
	return c.CreatePod(name, testbed.Nobody, cpu, withIndex(index))
}

func withIndex(index string) func(*corev1.Pod) {
	if index == "" {
		return func(*corev1.Pod) {}
	}
	return testbed.Annotated(v1alpha1.ReservationIndexAnnotation, index)
}
