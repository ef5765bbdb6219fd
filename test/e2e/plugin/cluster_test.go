package plugin

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	namespace = "default"
	// scheduler is the name of the scheduler under test.
	scheduler = "globalreserve-scheduler"
	// poll is how often a condition is looked at; soon is how long it may take to come true, far
	// above what it takes on an idle machine.
	poll = 20 * time.Millisecond
	soon = 30 * time.Second
)

// cluster is a control plane with a globalreserve-scheduler, and in mode remote a server.
type cluster struct {
	*controlplane.ControlPlane
	t            *testing.T
	reservations versioned.Interface
	watcher      *clusterload.Watcher
	server       *testbed.Server // nil in mode local
	scheduler    *clusterload.PluginScheduler
	// ledger is whoever serves the ledger.
	ledger testbed.Caller
	nodes  []string
}

// setup says what a cluster is like.
type setup struct {
	remote    bool
	nodes     int
	cpu       string // of a node
	scheduler clusterload.PluginSchedulerOptions
	// plane is the control plane; nil is that of most tests.
	plane *controlplane.Shared
	// proxied puts a FaultProxy between the scheduler and the API server.
	proxied bool
	// via puts something between the scheduler and the server; nil is nothing.
	via func(serverURL string) (url string)
}

// eachMode runs a test with the ledger in the scheduler and in a server.
func eachMode(t *testing.T, s setup, test func(t *testing.T, c *cluster)) {
	for mode, remote := range map[string]bool{"local": false, "remote": true} {
		t.Run(mode, func(t *testing.T) {
			s.remote = remote
			c, _ := newCluster(t, s)
			test(t, c)
		})
	}
}

func newCluster(t *testing.T, s setup) (*cluster, *controlplane.FaultProxy) {
	t.Helper()
	ctx := t.Context()
	if s.plane == nil {
		s.plane = &shared
	}
	c := &cluster{ControlPlane: s.plane.StartT(t), t: t}
	c.reservations = testbed.Objects(t, c.ControlPlane)
	var err error
	c.nodes, err = c.CreateNodes(ctx, s.nodes, controlplane.NodeTemplate{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(s.cpu), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("250"),
	}})
	require.NoError(t, err)
	c.watcher = testbed.Watch(t, c.ControlPlane)
	o := s.scheduler
	o.Name, o.ServerArgs = scheduler, map[string]any{"bindTimeout": "2s"} // as short as clusterload.QuickStart
	if s.remote {
		c.server = testbed.StartServer(t, c.ControlPlane, clusterload.ServerOptions{})
		o.RemoteURL, c.ledger = c.server.URL, c.server.Caller
		if s.via != nil {
			o.RemoteURL = s.via(c.server.URL)
		}
	}
	var proxy *controlplane.FaultProxy
	if s.proxied {
		proxy, err = c.StartFaultProxy()
		require.NoError(t, err)
		o.Kubeconfig, err = proxy.Kubeconfig("system:kube-scheduler")
		require.NoError(t, err)
	}
	c.scheduler, err = clusterload.StartPluginScheduler(ctx, c.ControlPlane, o)
	require.NoError(t, err)
	if !s.remote {
		c.ledger.URL = c.scheduler.URL
	}
	return c, proxy
}

// newPod asks for CPU.
func newPod(name, cpu string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			SchedulerName: scheduler, TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{
				Name: "c", Image: "registry.invalid/none",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
			}},
		},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func (c *cluster) create(pod *corev1.Pod) *corev1.Pod {
	c.t.Helper()
	created, err := c.Client().CoreV1().Pods(namespace).Create(c.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(c.t, err)
	return created
}

func (c *cluster) pod(name string) *corev1.Pod {
	c.t.Helper()
	pod, err := c.Client().CoreV1().Pods(namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	return pod
}

func (c *cluster) delete(name string) {
	c.t.Helper()
	err := c.Client().CoreV1().Pods(namespace).Delete(c.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	if !apierrors.IsNotFound(err) {
		require.NoError(c.t, err)
	}
}

// bound waits until a pod is bound and returns its node.
func (c *cluster) bound(name string) string {
	c.t.Helper()
	var node string
	require.Eventually(c.t, func() bool {
		node = c.pod(name).Spec.NodeName
		return node != ""
	}, soon, poll, "pod %s is not bound", name)
	return node
}

// refused waits until the scheduler has refused a pod for what GlobalReserve said, and returns the
// message.
func (c *cluster) refused(name string) string {
	c.t.Helper()
	var message string
	require.Eventually(c.t, func() bool {
		for _, condition := range c.pod(name).Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				message = condition.Message
				return true
			}
		}
		return false
	}, soon, poll, "pod %s is not refused", name)
	return message
}

// reserve has somebody else reserve CPU on a node, for a pod that does not exist.
func (c *cluster) reserve(name, cpu, node string, ttl time.Duration) *reserver.Request {
	c.t.Helper()
	r := &reserver.Request{
		SchedulerName: "somebody-else", Pods: []*corev1.Pod{newPod(name, cpu)}, Nodes: []string{node},
		TTLSeconds: int64(ttl / time.Second), Durable: ptr.To(false),
	}
	var answer reserver.Answer
	require.NoError(c.t, c.ledger.Post(c.t.Context(), testbed.ReservePath, r, &answer))
	require.Empty(c.t, answer.Error)
	return r
}

func (c *cluster) unreserve(r *reserver.Request) {
	c.t.Helper()
	var answer reserver.Answer
	require.NoError(c.t, c.ledger.Post(c.t.Context(), testbed.UnreservePath, &reserver.Request{SchedulerName: r.SchedulerName, Pods: r.Pods}, &answer))
	require.Empty(c.t, answer.Error)
}

// claims lists the claims that are not those of bound pods, as namespace/name@node.
func (c *cluster) claims() []string {
	c.t.Helper()
	answer, err := c.ledger.Claims(c.t.Context())
	require.NoError(c.t, err)
	claims := []string{}
	for _, claim := range answer.Claims {
		if claim.State != "Bound" {
			claims = append(claims, fmt.Sprintf("%s/%s@%s", claim.Namespace, claim.Pod, claim.Node))
		}
	}
	return claims
}

// in returns the same cluster for a subtest.
func (c *cluster) in(t *testing.T) *cluster {
	inner := *c
	inner.t = t
	return &inner
}

// awaitEmpty waits until nothing is held on a node.
func (c *cluster) awaitEmpty(node string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		var answer reserver.NodeAnswer
		return c.ledger.Get(c.t.Context(), testbed.NodesPath+"/"+node, &answer) == nil && len(answer.Claims) == 0
	}, soon, poll)
}

func (c *cluster) createPriorities(classes map[string]int32) {
	c.t.Helper()
	for name, value := range classes {
		_, err := c.Client().SchedulingV1().PriorityClasses().Create(c.t.Context(), &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, PreemptionPolicy: ptr.To(corev1.PreemptNever),
		}, metav1.CreateOptions{})
		require.NoError(c.t, err)
	}
}
