//go:build e2e || chaos

package gangs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	nodeCPUs = 4 // of every node
	gangSize = 4 // of the gangs of other schedulers
	// singles is the schedulerName of the pods of the kube-scheduler beside them.
	singles = "default-scheduler"
)

const (
	// shipped is the deadline of a policy that does not say any: schedulers leave refused pods alone for up to ten
	// seconds.
	shipped = policy.DefaultGangDeadline
	// short is one for binders that never wait that long, on a busy machine neither, and relaxed for those that try a gang
	// of 200 before they come back to a member, or whose server is replaced.
	short   = 10 * time.Second
	relaxed = 20 * time.Second
)

// long is a deadline that no test waits for.
var long = 2 * testbed.Soon

const policyOf = `apiVersion: config.globalreserve.io/v1alpha1
kind: GlobalReservePolicy
gangs: {deadline: %s}
`

// shared is the control plane of most tests, with our definitions and those of Coscheduling's PodGroups.
var shared = controlplane.Shared{Prepare: prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

func prepare(ctx context.Context, cp *controlplane.ControlPlane) error {
	if err := crd.Prepare(ctx, cp); err != nil {
		return err
	}
	return clusterload.DefinePodGroups(ctx, cp)
}

// cluster is a control plane with nodes of 4 CPUs, whose API server asks a GlobalReserve server about bindings.
type cluster struct {
	testbed.Cluster
	halves     *halves
	others     others
	deadline   time.Duration // as the servers' policy has it
	nodes      []string
	servers    []*testbed.Server
	schedulers []*controlplane.Process
}

// newCluster has one server, which keeps capacity for a gang until a deadline.
func newCluster(t *testing.T, nodes int, deadline time.Duration) *cluster {
	t.Helper()
	c := newBareCluster(t, nodes, deadline)
	c.startOneServer()
	return c
}

// newReplicatedCluster has two servers, of which one decides, behind one address.
func newReplicatedCluster(t *testing.T, nodes int, deadline time.Duration) *cluster {
	t.Helper()
	c := newBareCluster(t, nodes, deadline)
	var plain, hooks []testbed.Backend
	var webhook *clusterload.Webhook
	for i := range 2 {
		webhook = c.startServer(clusterload.ServerOptions{
			Name: fmt.Sprint("server-", i), StandBy: true, Args: clusterload.QuickLease,
		})
		url := c.servers[i].URL
		plain = append(plain, testbed.Backend{Address: testbed.Host(url), URL: url})
		hooks = append(hooks, testbed.Backend{Address: testbed.Host(webhook.URL), URL: url})
	}
	c.Eventually(func(t *assert.CollectT) {
		for _, s := range c.servers {
			assert.NoError(t, controlplane.HTTPReady(s.URL+"/readyz", nil)(c.T.Context()), s.Name())
		}
	})
	c.Ledger.URL = "http://" + testbed.NewService(t, plain).Address()
	webhook.URL = "https://" + testbed.NewService(t, hooks).Address() + "/admission"
	require.NoError(t, webhook.Install(t.Context(), c.ControlPlane, nil))
	return c
}

func newBareCluster(t *testing.T, nodes int, deadline time.Duration) *cluster {
	t.Helper()
	return newClusterOn(t, shared.StartT(t), coscheduling, nodes, deadline)
}

func newClusterOn(t *testing.T, cp *controlplane.ControlPlane, o others, nodes int, deadline time.Duration) *cluster {
	t.Helper()
	c := &cluster{halves: &halves{}, others: o, deadline: deadline}
	c.Cluster = testbed.NewCluster(t, cp, c.halves.look)
	c.nodes = c.AddNodes(nodes, controlplane.NodeTemplate{})
	return c
}

// startOneServer starts the only server, and has the API server ask it.
func (c *cluster) startOneServer() {
	c.T.Helper()
	webhook := c.startServer(clusterload.ServerOptions{})
	c.Ledger = c.servers[0].Caller
	require.NoError(c.T, webhook.Install(c.T.Context(), c.ControlPlane, nil))
}

// startServer starts one more server, with a webhook that is not installed yet.
func (c *cluster) startServer(o clusterload.ServerOptions) *clusterload.Webhook {
	c.T.Helper()
	webhook, err := clusterload.NewWebhook(c.ControlPlane)
	require.NoError(c.T, err)
	file := filepath.Join(c.T.TempDir(), "policy.yaml")
	require.NoError(c.T, os.WriteFile(file, fmt.Appendf(nil, policyOf, c.deadline), 0o600))
	o.Args = slices.Concat(o.Args, webhook.Args, []string{"--log-level=info", "--policy-file=" + file})
	c.servers = append(c.servers, testbed.StartServer(c.T, c.ControlPlane, o))
	return webhook
}

// leader is the server that decides.
func (c *cluster) leader() (leader *testbed.Server) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		for _, s := range c.servers {
			if leads, err := s.Metric(c.T.Context(), "globalreserve_leader"); err == nil && leads == 1 {
				leader = s
			}
		}
		assert.NotNil(t, leader, "a server decides")
	})
	return leader
}

// startGangScheduler starts the gang scheduler.
func (c *cluster) startGangScheduler() {
	c.T.Helper()
	scheduler, err := c.others.start(c.T.Context(), c.ControlPlane, c.others.scheduler)
	require.NoError(c.T, err)
	c.schedulers = append(c.schedulers, scheduler)
}

// startKubeScheduler starts the scheduler of single pods behind the extender, as it is shipped.
func (c *cluster) startKubeScheduler() {
	c.T.Helper()
	c.StartKubeScheduler(singles, "default-scheduler.yaml")
	scheduler, err := c.Process(singles)
	require.NoError(c.T, err)
	c.schedulers = append(c.schedulers, scheduler)
}

// createPodGroup creates the object of a gang.
func (c *cluster) createPodGroup(name string, minMember int) {
	c.T.Helper()
	group := c.others.group(c.Namespace, name, minMember)
	require.NoError(c.T, c.CreateObject(c.T.Context(), group, c.Namespace))
}

// gangPods are the pods of a gang, for the gang scheduler and for the verdict.
func (c *cluster) gangPods(name string) []*corev1.Pod {
	return testbed.NewPods(gangSize, name, c.others.scheduler, "1", func(pod *corev1.Pod) {
		c.others.mark(pod, name, gangSize)
	})
}

// clear deletes all pods and waits until the server has noticed.
func (c *cluster) clear() {
	c.T.Helper()
	require.NoError(c.T, clusterload.DeletePods(c.T.Context(), c.Client(), c.Namespace))
	c.Eventually(func(t *assert.CollectT) { assert.Empty(t, c.Allocations().Allocations) })
}

// admitted is how many bindings of the gang scheduler admission has allowed, and decided how many ended in another way.
func (c *cluster) admitted() int { return c.decided("granted") }

func (c *cluster) decided(result string) int {
	return c.Metric("globalreserve_decisions_total",
		"result", result, "scheduler", c.others.scheduler, "verb", "admission")
}
