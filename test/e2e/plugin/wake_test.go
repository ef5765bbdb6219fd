//go:build e2e

package plugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A pod the ledger refused is bound when capacity is freed, whatever frees it: that no event of the cluster tells of a
// reservation's end is what the plugin has to make up for. kube-scheduler itself would try the pod again after five
// minutes, for which nobody waits here.
func TestRefusedPodsWake(t *testing.T) {
	c := newCluster(t, setup{nodes: 1, cpu: "4"})
	node := c.nodes[0]
	// Each takes the node, has the pod refused, and frees the node.
	for name, free := range map[string]func(c *cluster){
		"a reservation is given back": func(c *cluster) {
			r := c.reserve("other", "4", node, time.Hour)
			c.refusedPod()
			refusal := c.AwaitRefusal("path=plugin&pod=waiting")
			assert.Equal(c.T, map[string]int{"InsufficientResource": 1}, refusal.Reasons)
			c.unreserve(r)
		},
		"a reservation expires": func(c *cluster) {
			c.reserve("other", "4", node, 12*time.Second) // the pod is refused within it
			c.refusedPod()
		},
		"a pod is deleted": func(c *cluster) {
			c.create("other", "4")
			c.bound("other")
			c.refusedPod()
			c.Delete("other")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := c.in(t)
			free(c)
			assert.Equal(t, node, c.bound("waiting"))
			c.Delete("waiting")
			c.Eventually(func(t *assert.CollectT) { assert.Empty(t, c.Allocations().Allocations) })
		})
	}
}

// refusedPod makes the pod "waiting" that needs a whole node and is refused.
func (c *cluster) refusedPod() {
	c.T.Helper()
	c.create("waiting", "4")
	c.AwaitRefused("waiting")
}
