package plugin

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// promptly is how long a pod may wait after there is room for it.
const promptly = time.Second

// Nobody overcommits a node, and all that fits is bound.
func TestPodsAreBoundAndNoMoreThanFit(t *testing.T) {
	eachMode(t, setup{nodes: 5, cpu: "4"}, func(t *testing.T, c *cluster) {
		const pods = 60 // of 1 CPU, on 20 CPUs
		for i := range pods {
			c.create(newPod(fmt.Sprint("p", i), "1"))
		}
		state, err := c.watcher.AwaitSettled(t.Context(), 2*time.Second)
		require.NoError(t, err)
		assert.Equal(t, 20, state.Bound)
		assert.Empty(t, c.watcher.Violations())
		assert.Empty(t, c.claims(), "no claim outlives its bind")
	})
}

// A pod the ledger refused is bound within a second of room being freed, whatever frees it: that
// no event of the cluster tells of a reservation's end is what the plugin has to make up for.
func TestRefusedPodsWake(t *testing.T) {
	eachMode(t, setup{nodes: 1, cpu: "4"}, func(t *testing.T, c *cluster) {
		node := c.nodes[0]
		// Each returns when the room is to be free.
		cases := map[string]func(t *testing.T, c *cluster) (free time.Time){
			"a reservation is given back": func(_ *testing.T, c *cluster) time.Time {
				r := c.reserve("other", "4", node, time.Hour)
				c.refusedPod()
				c.unreserve(r)
				return time.Now()
			},
			"a reservation expires": func(_ *testing.T, c *cluster) time.Time {
				c.reserve("other", "4", node, 4*time.Second)
				end := time.Now().Add(4 * time.Second)
				c.refusedPod()
				return end
			},
			"a pod is deleted": func(_ *testing.T, c *cluster) time.Time {
				c.create(newPod("other", "4"))
				c.bound("other")
				c.refusedPod()
				c.delete("other")
				return time.Now()
			},
			"a pod is deleted after many refusals": func(_ *testing.T, c *cluster) time.Time {
				c.create(newPod("other", "4"))
				c.bound("other")
				c.refusedPod()
				// Every smaller reservation given back wakes nobody, but each is a reason to look; the
				// pauses between a pod's own attempts grow all the while.
				for range 5 {
					c.create(newPod("small", "5")) // fits nowhere
					c.refused("small")
					c.delete("small")
				}
				c.delete("other")
				return time.Now()
			},
		}
		for name, free := range cases {
			t.Run(name, func(t *testing.T) {
				c := c.in(t)
				at := free(t, c)
				require.Eventually(t, func() bool { return c.pod("waiting").Spec.NodeName != "" }, soon, poll)
				assert.Less(t, time.Since(at), promptly)
				assert.Equal(t, node, c.pod("waiting").Spec.NodeName)
				c.delete("waiting")
				c.awaitEmpty(node)
			})
		}
	})
}

// refusedPod makes the pod "waiting" that needs a whole node and is refused.
func (c *cluster) refusedPod() {
	c.t.Helper()
	c.create(newPod("waiting", "4"))
	c.refused("waiting")
}

// Of many refused pods the first to wake is the one of the highest priority.
func TestTheHighestPriorityWakesFirst(t *testing.T) {
	eachMode(t, setup{nodes: 1, cpu: "4"}, func(t *testing.T, c *cluster) {
		c.createPriorities(map[string]int32{"low": 10, "high": 1000})
		r := c.reserve("other", "4", c.nodes[0], time.Hour)
		priority := func(class string) func(*corev1.Pod) {
			return func(p *corev1.Pod) { p.Spec.PriorityClassName = class }
		}
		for i := range 10 {
			c.create(newPod(fmt.Sprint("low", i), "4", priority("low")))
		}
		c.create(newPod("high", "4", priority("high")))
		c.refused("high")
		for i := range 10 {
			c.refused(fmt.Sprint("low", i))
		}
		assert.Contains(t, c.refused("high"), "GlobalReserve: not enough room left on the node")
		c.unreserve(r)
		c.bound("high")
		assert.Empty(t, c.watcher.Violations())
	})
}
