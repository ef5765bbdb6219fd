package election

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const nobody = testbed.Nobody

// cluster is a control plane with nodes of 4 CPUs and several servers.
type cluster struct {
	testbed.Cluster
	nodes   []string
	servers []*testbed.Server
}

func newCluster(t *testing.T, cp *controlplane.ControlPlane, nodes int) *cluster {
	t.Helper()
	c := &cluster{Cluster: testbed.NewCluster(t, cp)}
	c.nodes = c.AddNodes(nodes, controlplane.NodeTemplate{})
	return c
}

// start starts one more server, which has to wait where another one decides.
func (c *cluster) start(name string, proxy *controlplane.FaultProxy, args ...string) *testbed.Server {
	c.T.Helper()
	server := testbed.StartServer(c.T, c.ControlPlane, clusterload.ServerOptions{
		Name: name, Proxy: proxy, StandBy: true,
		Args: args,
	})
	c.servers = append(c.servers, server)
	return server
}

// awaitLeader waits until a server decides.
func (c *cluster) awaitLeader(server *testbed.Server) {
	c.T.Helper()
	require.Eventually(c.T, func() bool { return decides(c.T.Context(), server) }, testbed.Soon, testbed.Poll)
}

func decides(ctx context.Context, server *testbed.Server) bool {
	leads, err := server.Metric(ctx, "globalreserve_leader")
	return err == nil && leads == 1 && controlplane.HTTPReady(server.URL+"/readyz", nil)(ctx) == nil
}

// errNobody says that no server has decided.
var errNobody = errors.New("no server decides")

// bindAt asks one server for a bind. An error means that it does not decide.
func bindAt(ctx context.Context, server *testbed.Server, pod *corev1.Pod, node string) (refusal string, err error) {
	var answer struct{ Error, Outcome string }
	err = server.Post(ctx, testbed.BindPath, &extenderv1.ExtenderBindingArgs{
		PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID, Node: node,
	}, &answer)
	if err == nil && answer.Outcome == "not_ready" {
		err = fmt.Errorf("%w: %s", errNobody, answer.Error)
	}
	return answer.Error, err
}

// leader waits for the server that decides.
func (c *cluster) leader() (leader *testbed.Server) {
	c.T.Helper()
	require.Eventually(c.T, func() bool {
		for _, s := range c.servers {
			if decides(c.T.Context(), s) {
				leader = s
			}
		}
		return leader != nil
	}, testbed.Soon, testbed.Poll)
	return leader
}
