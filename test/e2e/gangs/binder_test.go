//go:build e2e || chaos

package gangs

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/background"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// The annotations by which a pod says of itself which gang it is a member of, and how many members that needs.
const (
	gangAnnotation    = "globalreserve.io/gang"
	gangMinAnnotation = "globalreserve.io/gang-min"
)

const (
	// byHand is the schedulerName of pods that only a binder of a test binds, and blind that of a scheduler that takes
	// whatever capacity there is.
	byHand = "by-hand"
	blind  = "blind"
	// memberCPU is what each member, and each single pod, asks for.
	memberCPU = "1"
	// tries is how many nodes a binder tries for a member before it goes on with the next one.
	tries = 8
	// sideBySide is how many bindings a binder sends that sends them all at once.
	sideBySide = 64
	// betweenRounds is how long a binder waits before it tries again what was refused.
	betweenRounds = 200 * time.Millisecond
	// slack is how much later than at its deadline a gang may be seen whole, on a busy machine.
	slack = 10 * time.Second
)

var gangPause = flag.Duration("gang-pause", 100*time.Millisecond,
	"time between two bindings of a binder that binds one after another")

func betweenTwo() time.Duration { return *gangPause }

// gang is a gang whose pods say all there is to know.
type gang struct {
	name    string
	minimum int
	members []string
}

// createGang creates a gang of so many pods, all of which it needs.
func (c *cluster) createGang(name string, size int) *gang {
	c.T.Helper()
	g := &gang{name: name, minimum: size}
	for i := range size {
		g.members = append(g.members, name+"-"+strconv.Itoa(i))
	}
	c.createMembers(g, g.members...)
	return g
}

// createMembers creates pods of a gang, such as those that were deleted.
func (c *cluster) createMembers(g *gang, names ...string) {
	c.T.Helper()
	pods := make([]*corev1.Pod, len(names))
	for i, name := range names {
		pods[i] = testbed.NewPod(name, byHand, memberCPU, inGang(g.name, strconv.Itoa(g.minimum)))
	}
	c.Create(pods...)
}

// inGang makes a pod a member of a gang that needs so many.
func inGang(name, minimum string) func(*corev1.Pod) {
	return testbed.Annotated(gangAnnotation, name, gangMinAnnotation, minimum)
}

// bindFunc binds members of gangs, and returns when it has tried each of them once.
type bindFunc func(ctx context.Context, c *cluster, members []string)

// inTurn binds one member after another, with a pause between two bindings.
func inTurn(pause time.Duration) bindFunc {
	return func(ctx context.Context, c *cluster, members []string) {
		for _, name := range members {
			if c.bindMember(ctx, name) {
				await(ctx, pause)
			}
		}
	}
}

// atOnce binds many members side by side.
func atOnce(ctx context.Context, c *cluster, members []string) {
	var group errgroup.Group
	group.SetLimit(sideBySide)
	for _, name := range members {
		group.Go(func() error {
			c.bindMember(ctx, name)
			return nil
		})
	}
	_ = group.Wait()
}

// startBinder has the members of gangs bound, the first one of each gang and then the second ones, again and again
// until stop is called: by a scheduler that has never heard of GlobalReserve, and of gangs only that they exist.
func (c *cluster) startBinder(bind bindFunc, gangs ...*gang) (stop func()) {
	c.T.Helper()
	var members []string
	for i := 0; ; i++ {
		before := len(members)
		for _, g := range gangs {
			if i < len(g.members) {
				members = append(members, g.members[i])
			}
		}
		if len(members) == before {
			break
		}
	}
	return background.Run(c.T, func(ctx context.Context) error {
		for ctx.Err() == nil {
			bind(ctx, c, members)
			await(ctx, betweenRounds)
		}
		return nil
	})
}

// bindMember tries to bind a pod that waits: to the node it is nominated for, and to some others. It reports
// whether it sent a binding that was carried out.
func (c *cluster) bindMember(ctx context.Context, name string) bool {
	pods := c.Client().CoreV1().Pods(c.Namespace)
	pod, err := pods.Get(ctx, name, metav1.GetOptions{})
	if err != nil || pod.Spec.NodeName != "" {
		return false
	}
	nodes := []string{}
	if nominated := pod.Status.NominatedNodeName; nominated != "" {
		nodes = append(nodes, nominated)
	}
	for _, i := range rand.Perm(len(c.nodes))[:min(tries, len(c.nodes))] {
		nodes = append(nodes, c.nodes[i])
	}
	for _, node := range nodes {
		if ctx.Err() == nil && c.bindNow(ctx, name, node) == nil {
			return true
		}
	}
	return false
}

// bindNow sends one binding.
func (c *cluster) bindNow(ctx context.Context, name, node string) error {
	return c.Client().CoreV1().Pods(c.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
}

// createSingles creates pods of no gang that ask for all that the nodes have.
func (c *cluster) createSingles() *gang {
	c.T.Helper()
	all := &gang{name: "single"}
	for _, pod := range c.Create(testbed.NewPods(len(c.nodes)*nodeCPUs, all.name, blind, memberCPU)...) {
		all.members = append(all.members, pod.Name)
	}
	return all
}

// fillWithSingles has pods of no gang bound to whatever nodes take them, until stop is called.
func (c *cluster) fillWithSingles() (stop func()) {
	c.T.Helper()
	return c.startBinder(atOnce, c.createSingles())
}

// awaitMembers returns at the event after which so many members of a gang are bound.
func (c *cluster) awaitMembers(g *gang, bound int) {
	c.T.Helper()
	c.awaitProgress(bound, func() int {
		now, _, _ := c.halves.of(c.key(g))
		return now
	}, "members of "+g.name+" that are bound")
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

// requireWhole waits until a gang is whole. It was never half beyond the deadline.
func (c *cluster) requireWhole(g *gang) {
	c.T.Helper()
	c.awaitMembers(g, g.minimum)
	_, _, longest := c.halves.of(c.key(g))
	c.T.Logf("%s: half for %s", g.name, longest.Round(time.Millisecond))
	assert.Less(c.T, longest, c.deadline+slack, "%s was half for too long", g.name)
}

// requireWholeOrNone waits until all capacity is used: a gang is whole then, or none of it is bound.
func (c *cluster) requireWholeOrNone(g *gang) {
	c.T.Helper()
	c.awaitFull()
	bound, _, longest := c.halves.of(c.key(g))
	c.T.Logf("%s: %d of %d bound, half for %s", g.name, bound, g.minimum, longest.Round(time.Millisecond))
	assert.Contains(c.T, []int{0, g.minimum}, bound, "members of %s that are bound", g.name)
	assert.Less(c.T, longest, c.deadline+slack, "%s was half for too long", g.name)
}

// requireNothingKept waits until all that the server has taken is taken by pods that are bound.
func (c *cluster) requireNothingKept() {
	c.T.Helper()
	require.EventuallyWithT(c.T, func(t *assert.CollectT) {
		assert.Empty(t, c.reserved())
	}, c.deadline+testbed.Soon, testbed.Poll)
}

// awaitKept waits until single pods have all but so many CPUs, and sees that they get no more of them.
func (c *cluster) awaitKept(cpus int) {
	c.T.Helper()
	wanted := len(c.nodes)*nodeCPUs - cpus
	c.Eventually(func(t *assert.CollectT) { assert.GreaterOrEqual(t, len(c.singles()), wanted) })
	controlplane.Never(c.T, func() bool { return len(c.singles()) > wanted }, testbed.Never, testbed.Poll,
		"the gang's capacity is not for others")
}

// singles are the single pods that are bound.
func (c *cluster) singles() (names []string) {
	for _, pod := range testbed.Bound(c.Pods()) {
		if pod.Spec.SchedulerName == blind {
			names = append(names, pod.Name)
		}
	}
	return names
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

func (c *cluster) key(g *gang) string { return c.Namespace + "/" + g.name }

func (c *cluster) kill(names ...string) {
	c.T.Helper()
	for _, name := range names {
		require.NoError(c.T, c.Client().CoreV1().Pods(c.Namespace).Delete(c.T.Context(), name, metav1.DeleteOptions{}))
	}
	c.Eventually(func(t *assert.CollectT) {
		for _, name := range names {
			assert.Nil(t, c.FindPod(name))
		}
	})
}

func await(ctx context.Context, length time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
}

// binders are the ways to bind a gang.
func binders() map[string]bindFunc {
	return map[string]bindFunc{"one after another": inTurn(betweenTwo()), "at once": atOnce}
}

// forBinders runs a test with every way to bind a gang of every size, on nodes with a quarter more capacity.
func forBinders(t *testing.T, sizes []int, test func(c *cluster, bind bindFunc, g *gang)) {
	t.Helper()
	for name, bind := range binders() {
		for _, size := range sizes {
			t.Run(fmt.Sprint(size, " ", name), func(t *testing.T) {
				c := newCluster(t, (size*5/4+nodeCPUs)/nodeCPUs, relaxed)
				test(c, bind, c.createGang("gang", size))
				c.RequireNeverOvercommitted()
			})
		}
	}
}
