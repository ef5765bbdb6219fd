package plugin

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// Nobody overcommits a node, and all that fits is bound.
func TestPodsAreBoundAndNoMoreThanFit(t *testing.T) {
	eachMode(t, setup{nodes: 5, cpu: "4"}, func(t *testing.T, c *cluster) {
		const pods = 60 // of 1 CPU, on 20 CPUs
		for i := range pods {
			c.create(fmt.Sprint("p", i), "1")
		}
		state, err := c.Watcher.AwaitSettled(t.Context(), 2*time.Second)
		require.NoError(t, err)
		assert.Equal(t, 20, state.Bound)
		c.RequireNeverOvercommitted()
		c.awaitClaims(0) // no allocation outlives its bind; the API server shows a Binding before the scheduler has its answer
	})
}

// A pod the ledger refused is bound soon after capacity is freed, whatever frees it: that no event of the cluster tells
// of a reservation's end is what the plugin has to make up for.
func TestRefusedPodsWake(t *testing.T) {
	eachMode(t, setup{nodes: 1, cpu: "4"}, func(t *testing.T, c *cluster) {
		node := c.nodes[0]
		// Each returns when the capacity is to be free.
		cases := map[string]func(t *testing.T, c *cluster) (free time.Time){
			"a reservation is given back": func(_ *testing.T, c *cluster) time.Time {
				r := c.reserve("other", "4", node, time.Hour)
				c.refusedPod()
				refusal := c.AwaitRefusal("path=plugin&pod=waiting") // that of Filter, near the ledger or not
				assert.Equal(c.T, map[string]int{"InsufficientResource": 1}, refusal.Reasons)
				c.unreserve(r)
				return time.Now()
			},
			"a reservation expires": func(_ *testing.T, c *cluster) time.Time {
				const ttl = 12 * time.Second // the pod is refused within it
				c.reserve("other", "4", node, ttl)
				end := time.Now().Add(ttl)
				c.refusedPod()
				return end
			},
			"a pod is deleted": func(_ *testing.T, c *cluster) time.Time {
				c.create("other", "4")
				c.bound("other")
				c.refusedPod()
				c.Delete("other")
				return time.Now()
			},
			"a pod is deleted after many refusals": func(_ *testing.T, c *cluster) time.Time {
				c.create("other", "4")
				c.bound("other")
				c.refusedPod()
				// Every smaller reservation given back wakes nobody, but each is a reason to look; the
				// pauses between a pod's own attempts grow all the while.
				for range 5 {
					c.create("small", "5") // fits nowhere
					c.AwaitRefused("small")
					c.Delete("small")
				}
				c.Delete("other")
				return time.Now()
			},
		}
		for name, free := range cases {
			t.Run(name, func(t *testing.T) {
				c := c.in(t)
				testbed.Measure(t, 3, func(try assert.TestingT) {
					at := free(t, c)
					on, took := c.boundAfter("waiting", at)
					assert.Equal(t, node, on)
					assert.Less(try, took, promptly)
					c.Delete("waiting")
					c.Eventually(func(t *assert.CollectT) { assert.Empty(t, c.Allocations().Allocations) })
				})
			})
		}
	})
}

// refusedPod makes the pod "waiting" that needs a whole node and is refused.
func (c *cluster) refusedPod() {
	c.T.Helper()
	c.create("waiting", "4")
	c.AwaitRefused("waiting")
}

// Of many refused pods the first to wake is the one of the highest priority.
func TestTheHighestPriorityWakesFirst(t *testing.T) {
	eachMode(t, setup{nodes: 1, cpu: "4"}, func(t *testing.T, c *cluster) {
		c.CreatePriorityClass("low", 10, corev1.PreemptNever)
		c.CreatePriorityClass("high", 1000, corev1.PreemptNever)
		r := c.reserve("other", "4", c.nodes[0], time.Hour)
		priority := func(class string) func(*corev1.Pod) {
			return func(p *corev1.Pod) { p.Spec.PriorityClassName = class }
		}
		for i := range 10 {
			c.create(fmt.Sprint("low", i), "4", priority("low"))
		}
		c.create("high", "4", priority("high"))
		c.AwaitRefused("high")
		for i := range 10 {
			c.AwaitRefused(fmt.Sprint("low", i))
		}
		assert.Contains(t, c.AwaitRefused("high"), "GlobalReserve: not enough capacity left on the node")
		c.unreserve(r)
		c.bound("high")
		c.RequireNeverOvercommitted()
	})
}
