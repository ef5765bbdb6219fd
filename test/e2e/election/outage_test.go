//go:build e2e

package election

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// etcd and the API server are killed, and start again; the servers cannot watch for a while, and miss what etcd forgets
// meanwhile. Afterwards the ledger equals what there is, on the server that decides and on the one that stands by.
func TestTheLedgerIsRightAfterOutages(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	require.NoError(t, crd.Prepare(t.Context(), cp))
	c := newCluster(t, cp, 2)
	proxy, err := cp.StartFaultProxy()
	require.NoError(t, err)
	for _, name := range []string{"first", "second"} {
		c.start(name, proxy)
	}
	c.leader()
	before := c.strangers()
	for _, part := range []string{controlplane.Etcd, controlplane.APIServer} {
		c.restart(part)
		c.requireNoDifference(part + " was killed")
	}

	proxy.SetFault(follows)
	c.restart(controlplane.APIServer) // which ends the watches that there are
	old := c.version()
	c.changeUnseen(before)
	require.NoError(t, cp.CompactEtcd(t.Context()))
	c.restart(controlplane.APIServer) // or it would remember some time
	c.requireForgotten(old)
	proxy.SetFault(nil)
	c.requireNoDifference("changes were missed, and forgotten")
	c.RequireNeverOvercommitted()
}

// collections are the paths by which servers follow objects.
var collections = regexp.MustCompile(`/(pods|nodes|reservations|extendedresources|extendedresourceclaims)$`)

// follows reports whether a request lists or watches what a ledger is made from.
func follows(r *http.Request) bool {
	return r.Method == http.MethodGet && collections.MatchString(r.URL.Path)
}

// restart kills a part of the control plane and starts it again. Meanwhile a server is asked for a bind and a
// reservation; whatever becomes of them, the ledger has to know.
func (c *cluster) restart(part string) {
	c.T.Helper()
	created := len(c.Pods())
	pods := c.Create(testbed.NewPods(2, fmt.Sprint("asked-", created), nobody, "100m")...)
	require.NoError(c.T, c.Kill(part))
	var asking sync.WaitGroup
	asking.Go(func() { _, _ = bindAt(c.T.Context(), c.servers[0], pods[0], c.nodes[0]) })
	asking.Go(func() {
		request := &reserver.Request{SchedulerName: nobody, Pods: pods[1:], Nodes: c.nodes[:1], TTLSeconds: 600}
		_ = c.servers[0].Post(c.T.Context(), testbed.ReservePath, request, &reserver.Answer{})
	})
	require.NoError(c.T, c.StartPart(c.T.Context(), part))
	asking.Wait()
}

// strangers makes what will change behind the servers' backs: a node, pods and a reservation on it.
func (c *cluster) strangers() []string {
	c.T.Helper()
	nodes := c.AddNodes(2, controlplane.NodeTemplate{Prefix: "strange"})
	for i, node := range nodes {
		for k := range 3 {
			pod := c.CreatePod(fmt.Sprintf("stranger-%d-%d", i, k), nobody, "100m")
			require.NoError(c.T, c.BindDirectly(pod.Name, node))
		}
		c.CreateReservation(fmt.Sprint("strange-", i), `{"slots":[{"name":"a","nodeName":"`+node+
			`","requests":{"cpu":"1"}}]}`)
		c.AwaitReservation(fmt.Sprint("strange-", i), "Available")
	}
	return nodes
}

// changeUnseen changes objects of each kind: some are gone, others new, or not what they were.
func (c *cluster) changeUnseen(nodes []string) {
	c.T.Helper()
	ctx := c.T.Context()
	c.Delete("stranger-0-0", "stranger-1-0", "stranger-1-1", "stranger-1-2")
	c.DeleteNode(nodes[1])
	c.ChangeNode(nodes[0], func(n *corev1.Node) { n.Spec.Unschedulable = true })
	node, err := c.Client().CoreV1().Nodes().Get(ctx, nodes[0], metav1.GetOptions{})
	require.NoError(c.T, err)
	node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("3")
	_, err = c.Client().CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	require.NoError(c.T, err)
	again := c.CreatePod("stranger-0-0", nobody, "200m") // of another pod's name
	require.NoError(c.T, c.BindDirectly(again.Name, nodes[0]))
	require.NoError(c.T, c.Reservations().Delete(ctx, "strange-0", metav1.DeleteOptions{}))
	require.NoError(c.T, c.Reservations().Delete(ctx, "strange-1", metav1.DeleteOptions{}))
}

// version is how far the pods are.
func (c *cluster) version() string {
	c.T.Helper()
	list, err := c.Client().CoreV1().Pods("").List(c.T.Context(), metav1.ListOptions{Limit: 1})
	require.NoError(c.T, err)
	return list.ResourceVersion
}

// requireForgotten fails if pods can still be watched from a version on.
func (c *cluster) requireForgotten(version string) {
	c.T.Helper()
	watch, err := c.Client().CoreV1().Pods("").Watch(c.T.Context(), metav1.ListOptions{ResourceVersion: version})
	if err == nil {
		defer watch.Stop()
		err = apierrors.FromObject((<-watch.ResultChan()).Object)
	}
	require.True(c.T, apierrors.IsResourceExpired(err) || apierrors.IsGone(err), "%v", err)
}

// requireNoDifference waits until both servers find that they have the ledger right.
func (c *cluster) requireNoDifference(when string) {
	c.T.Helper()
	began := time.Now()
	require.EventuallyWithT(c.T, func(t *assert.CollectT) {
		c.revive()
		whole := 0
		for _, server := range c.servers {
			report := c.diff(server)
			assert.NotEmpty(t, report.Server, server.Name())
			assert.Empty(t, report.Differences, server.Name())
			assert.Subset(t, report.Compared, []string{"pods", "nodes"}, server.Name())
			if slices.Contains(report.Compared, "reservations") {
				whole++
			}
		}
		assert.Equal(t, 1, whole, "servers that decide, and so have all of it")
	}, 2*testbed.Soon, testbed.Poll, when) // a watch that failed for long is tried again after up to a minute
	c.T.Logf("%s: no differences after %s", when, time.Since(began).Round(time.Millisecond))
}

// diff is how the ledger of a server differs from the cluster; nothing where it cannot be told yet.
func (c *cluster) diff(server *testbed.Server) (report reserver.DiffAnswer) {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(c.T.Context(), testbed.Soon)
	defer cancel()
	if err := server.Call(ctx, http.MethodGet, "/debug/diff", nil, &report); err != nil {
		c.T.Logf("%s: %v", server.Name(), err)
		return reserver.DiffAnswer{}
	}
	return report
}

// revive starts servers again that have ended, as a kubelet does: the one that decides, or takes over, ends where it
// cannot renew its Lease, and for nothing else.
func (c *cluster) revive() {
	c.T.Helper()
	for _, server := range c.servers {
		if !server.Running() {
			c.T.Logf("%s has ended", server.Name())
			assert.Contains(c.T, testbed.Tail(server.LogFile(), 5), "globalreserve: election: ")
			assert.NoError(c.T, server.Start(c.T.Context()))
		}
	}
}
