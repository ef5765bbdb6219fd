package durable

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const scheduler = "batch-scheduler"

// shared is the control plane of all tests that do not break it, with our definitions.
var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// cluster is a control plane with a GlobalReserve server and no scheduler.
type cluster struct {
	testbed.Cluster
	nodes []string
}

// newCluster starts a cluster with nodes of four CPUs.
func newCluster(t testing.TB, nodes int) *cluster {
	t.Helper()
	c := &cluster{Cluster: testbed.NewCluster(t, shared.StartT(t))}
	c.nodes = c.AddNodes(nodes, controlplane.NodeTemplate{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("250"),
	}})
	c.StartServer(clusterload.ServerOptions{})
	return c
}

// gangOn is a request for one pod on each of the nodes.
func gangOn(nodes []string, pods ...*corev1.Pod) *reserver.Request {
	return &reserver.Request{SchedulerName: scheduler, Pods: pods, Nodes: nodes, TTLSeconds: 600}
}

// create creates n pods and returns them as the API server has them.
func (c *cluster) create(prefix, cpu string, n int) []*corev1.Pod {
	c.T.Helper()
	return c.Create(testbed.NewPods(n, prefix, scheduler, cpu)...)
}

// giveBack gives back a whole reservation.
func (c *cluster) giveBack(reservation string) {
	c.T.Helper()
	require.Empty(c.T, c.Unreserve(&reserver.Request{SchedulerName: scheduler, Reservation: reservation}).Error)
}

// bigGang is a gang of pods that do not exist yet, spread over the nodes.
func (c *cluster) bigGang(prefix string, n int, cpu string) *reserver.Request {
	pods, nodes := make([]*corev1.Pod, n), make([]string, n)
	for i := range pods {
		pods[i] = testbed.NewPod(fmt.Sprintf("%s-%d", prefix, i), scheduler, cpu)
		pods[i].UID = types.UID(fmt.Sprintf("%08d-0000-0000-0000-%012d", i, i))
		nodes[i] = c.nodes[i%len(c.nodes)]
	}
	return gangOn(nodes, pods...)
}
