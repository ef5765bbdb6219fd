//go:build e2e || chaos

package gangs

import (
	"context"
	"fmt"
	"os"
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
	// singles is the schedulerName of the pods of the kube-scheduler beside them, and byHand that of pods that only a
	// test binds.
	singles = "default-scheduler"
	byHand  = "by-hand"
)

// shipped is the deadline of a policy that does not say any: schedulers leave refused pods alone for up to ten seconds.
const shipped = policy.DefaultGangDeadline

// long is a deadline that no test waits for.
var long = 2 * testbed.Soon

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
	others     others
	deadline   time.Duration // as the servers' policy has it
	nodes      []string
	schedulers []*controlplane.Process
}

// newCluster has one server, which keeps capacity for a gang until a deadline.
func newCluster(t *testing.T, nodes int, deadline time.Duration) *cluster {
	t.Helper()
	return newClusterOn(t, shared.StartT(t), coscheduling, nodes, deadline)
}

// newClusterOn is newCluster on a control plane, beside another scheduler.
func newClusterOn(t *testing.T, cp *controlplane.ControlPlane, o others, nodes int, deadline time.Duration) *cluster {
	t.Helper()
	c := &cluster{Cluster: testbed.NewCluster(t, cp), others: o, deadline: deadline}
	c.nodes = c.AddNodes(nodes, controlplane.NodeTemplate{})
	c.startServer()
	return c
}

// startServer starts the server, and has the API server ask it.
func (c *cluster) startServer() {
	c.T.Helper()
	policy := testbed.Policy(c.T, fmt.Sprintf("gangs: {deadline: %s}\n", c.deadline))
	c.StartAsked(clusterload.ServerOptions{Args: []string{"--policy-file=" + policy}})
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

// admitted is how many bindings of the gang scheduler admission has allowed, and decided how many ended in another way.
func (c *cluster) admitted() int { return c.decided("granted") }

func (c *cluster) decided(result string) int {
	return c.Metric("globalreserve_decisions_total",
		"result", result, "scheduler", c.others.scheduler, "verb", "admission")
}

// awaitProgress returns at the event after which a count has come up to what is wanted. It gives up when the count has
// been the same for too long: how long all of it takes says much about the machine, and little about the product.
func (c *cluster) awaitProgress(wanted int, count func() int, what string) {
	c.T.Helper()
	most, stuck := -1, (<-chan time.Time)(nil)
	for {
		changed := c.Watcher.Changed()
		now := count()
		if now >= wanted {
			return
		}
		if now > most {
			most, stuck = now, time.After(c.deadline+testbed.Soon)
		}
		select {
		case <-changed:
		case <-stuck:
			require.GreaterOrEqual(c.T, now, wanted, what)
		}
	}
}

// requireNothingKept waits until all that the server has taken is taken by pods that are bound.
func (c *cluster) requireNothingKept() {
	c.T.Helper()
	require.EventuallyWithT(c.T, func(t *assert.CollectT) {
		assert.Empty(t, c.reserved())
	}, c.deadline+testbed.Soon, testbed.Poll)
}

// reserved is what the server keeps for pods to come, by slots and by nodes.
func (c *cluster) reserved() []string {
	c.T.Helper()
	reserved := c.Held()
	nodes, err := c.Ledger.Nodes(c.T.Context())
	require.NoError(c.T, err)
	for _, node := range nodes.Nodes {
		for resource, amount := range node.Resources {
			if amount.Reserved != 0 {
				reserved = append(reserved, fmt.Sprintf("%d %s of %s", amount.Reserved, resource, node.Name))
			}
		}
	}
	return reserved
}

// awaitFull waits until no node has capacity for one more single pod.
func (c *cluster) awaitFull() {
	c.T.Helper()
	c.awaitProgress(len(c.nodes)*nodeCPUs, func() int { return c.Watcher.Snapshot().Bound }, "pods that are bound")
}
