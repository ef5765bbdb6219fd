//go:build e2e

package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// kube-scheduler tries a pod group out, through Reserve, before any of it is real. As long as the group has
// no place, the ledger hears nothing of its pods; when it has one, all of them are reserved, and then they are bound.
func TestAPodGroupIsTriedOutWithoutSideEffects(t *testing.T) {
	t.Parallel() // beside the one that waits for the end of a lease
	c := newCluster(t, setup{nodes: 2, cpu: "2", plane: &withGangs})
	other := c.reserve("other", "1", c.nodes[0], time.Hour) // three of the four have capacity beside it
	heard := c.hear()
	c.Create(c.gangOf("member", scheduler)...)
	for i := range gangSize {
		c.AwaitRefused(fmt.Sprint("member-", i))
	}
	c.reserve("last", "1m", c.nodes[1], time.Hour) // whatever came before has been heard of with this
	assert.Empty(t, heard("last"))
	c.unreserve(&reserver.Request{
		SchedulerName: "somebody-else",
		Pods:          []*corev1.Pod{testbed.NewPod("last", scheduler, "1m")},
	})
	heard = c.hear()
	c.unreserve(other)
	for i := range gangSize {
		c.bound(fmt.Sprint("member-", i))
	}
	c.reserve("end", "0", c.nodes[0], time.Hour)
	news := heard("end")
	kept := slices.IndexFunc(news, func(what string) bool { return strings.Contains(what, "slot member") })
	require.GreaterOrEqual(t, kept, 0, news)
	assert.ElementsMatch(t, []string{
		"SlotPlaced slot member-0", "SlotPlaced slot member-1", "SlotPlaced slot member-2",
		"SlotPlaced slot member-3",
	},
		news[kept:min(kept+gangSize, len(news))], "all of them, before any is bound: %v", news)
	c.unreserve(&reserver.Request{
		SchedulerName: "somebody-else",
		Pods:          []*corev1.Pod{testbed.NewPod("end", scheduler, "0")},
	})
	c.RequireNeverOvercommitted()
	c.awaitClaims(0)
}

// hear follows the ledger from now on. What it returns waits for the slot of a pod, and tells of which other
// pods there were slots or allocations before.
func (c *cluster) hear() func(last string) []string {
	c.T.Helper()
	ctx, stop := context.WithTimeout(c.T.Context(), testbed.Soon)
	c.T.Cleanup(stop)
	changes := testbed.Changes(ctx, c.T, c.Ledger.URL)
	return func(last string) []string {
		var pods []string
		for e := range changes {
			switch {
			case e.Slot != nil && e.Slot.Slot.Slot.Pod == last:
				return pods
			case e.Slot != nil:
				pods = append(pods, e.Slot.Type+" slot "+e.Slot.Slot.Slot.Pod)
			case e.Allocation != nil:
				pods = append(pods, e.Allocation.Type+" allocation "+e.Allocation.Allocation.Pod)
			}
		}
		return append(pods, "the watch has ended")
	}
}
