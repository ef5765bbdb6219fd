package durable

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	namespace = "default"
	scheduler = "batch-scheduler"
	// nodeCPU is what every node offers.
	nodeCPU = "4"
	// poll is how often a condition is looked at; soon is how long it may take to come true, far
	// above what it takes on an idle machine.
	poll = 50 * time.Millisecond
	soon = 30 * time.Second
	// writers is how many requests a test sends side by side.
	writers = 16
)

// cluster is a control plane with a GlobalReserve server and no scheduler.
type cluster struct {
	*controlplane.ControlPlane
	t            testing.TB
	reservations versioned.Interface
	watcher      *clusterload.Watcher
	server       *testbed.Server
	nodes        []string
}

// newCluster starts a cluster with nodes of four CPUs. proxied puts a FaultProxy between the server,
// and nobody else, and the API server.
func newCluster(t testing.TB, nodes int, proxied bool) (*cluster, *controlplane.FaultProxy) {
	t.Helper()
	return clusterOn(t, shared.StartT(t), nodes, proxied)
}

func clusterOn(t testing.TB, cp *controlplane.ControlPlane, nodes int, proxied bool) (*cluster, *controlplane.FaultProxy) {
	t.Helper()
	c := &cluster{ControlPlane: cp, t: t}
	c.reservations = testbed.Objects(t, cp)
	var err error
	c.nodes, err = c.CreateNodes(t.Context(), nodes, controlplane.NodeTemplate{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(nodeCPU), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("250"),
	}})
	require.NoError(t, err)
	c.watcher = testbed.Watch(t, cp)
	options := clusterload.ServerOptions{}
	if proxied {
		options.Proxy, err = c.StartFaultProxy()
		require.NoError(t, err)
	}
	c.server = testbed.StartServer(t, cp, options)
	return c, options.Proxy
}

// in returns the same cluster for a subtest.
func (c *cluster) in(t *testing.T) *cluster {
	inner := *c
	inner.t = t
	return &inner
}

// request is the body of /reserve and /unreserve.
type request struct {
	SchedulerName string
	Pods          []*corev1.Pod `json:",omitempty"`
	Nodes         []string      `json:",omitempty"`
	TTLSeconds    int64         `json:",omitempty"`
	RequestID     string        `json:",omitempty"`
	Name          string        `json:",omitempty"`
	Reservation   string        `json:",omitempty"`
	Mode          string        `json:",omitempty"`
	Durable       *bool         `json:",omitempty"`
}

// groupOn is a request for one pod on each of the nodes.
func groupOn(nodes []string, pods ...*corev1.Pod) *request {
	return &request{SchedulerName: scheduler, Pods: pods, Nodes: nodes, TTLSeconds: 600}
}

// ask makes a request that is answered with 200.
func (c *cluster) ask(method, path string, body, answer any) {
	c.t.Helper()
	require.NoError(c.t, c.server.Call(c.t.Context(), method, path, body, answer))
}

func (c *cluster) reserve(r *request) (answer reserver.Answer) {
	c.t.Helper()
	c.ask(http.MethodPost, testbed.ReservePath, r, &answer)
	return answer
}

func (c *cluster) unreserve(r *request) (answer reserver.Answer) {
	c.t.Helper()
	c.ask(http.MethodPost, testbed.UnreservePath, r, &answer)
	return answer
}

// held lists what the server holds, as namespace/name/slot@node.
func (c *cluster) held() []string {
	c.t.Helper()
	var answer reserver.ReservationsAnswer
	c.ask(http.MethodGet, testbed.ReservationsPath, nil, &answer)
	held := []string{}
	for _, r := range answer.Reservations {
		for _, s := range r.Slots {
			held = append(held, r.Namespace+"/"+r.Name+"/"+s.Name+"@"+s.Node)
		}
	}
	return held
}

// cpu is the account of one node's CPU.
func (c *cluster) cpu(node string) reserver.NodeAmount {
	c.t.Helper()
	var answer reserver.NodeAnswer
	c.ask(http.MethodGet, testbed.NodesPath+"/"+node, nil, &answer)
	return answer.Node.Resources["cpu"]
}

// objects lists the Reservation objects.
func (c *cluster) objects() []v1alpha1.Reservation {
	c.t.Helper()
	list, err := c.reservations.GlobalreserveV1alpha1().Reservations("").List(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	return list.Items
}

func newPod(name, cpu string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			SchedulerName: scheduler,
			Containers: []corev1.Container{{
				Name: "main", Image: "example.invalid/not-pulled",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("64Mi"),
				}},
			}},
		},
	}
}

// create creates n pods and returns them as the API server has them.
func (c *cluster) create(prefix, cpu string, n int) []*corev1.Pod {
	c.t.Helper()
	pods := make([]*corev1.Pod, n)
	group, ctx := errgroup.WithContext(c.t.Context())
	group.SetLimit(writers)
	for i := range pods {
		group.Go(func() (err error) {
			pods[i], err = c.Client().CoreV1().Pods(namespace).Create(ctx, newPod(fmt.Sprintf("%s-%d", prefix, i), cpu), metav1.CreateOptions{})
			return err
		})
	}
	require.NoError(c.t, group.Wait())
	return pods
}

// bind binds a pod as a scheduler of its own does, past the server.
func (c *cluster) bind(pod *corev1.Pod, node string) {
	c.t.Helper()
	require.NoError(c.t, c.Client().CoreV1().Pods(pod.Namespace).Bind(c.t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{}))
}

// eventually polls a condition until it holds; what it last failed by is reported.
func (c *cluster) eventually(within time.Duration, condition func(t *assert.CollectT)) {
	c.t.Helper()
	require.EventuallyWithT(c.t, condition, within, poll)
}

// requireNeverOvercommitted fails if at any event a node had more bound than it offers.
func (c *cluster) requireNeverOvercommitted() {
	c.t.Helper()
	require.NoError(c.t, c.watcher.CatchUp(c.t.Context()))
	require.Empty(c.t, c.watcher.Violations(), "nodes were overcommitted")
}
