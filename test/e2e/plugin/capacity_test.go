//go:build e2e

package plugin

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// A pod goes to the node that keeps capacity for it, uses that capacity, and says so; another one cannot.
func TestReservedCapacityIsUsed(t *testing.T) {
	c := newCluster(t, setup{nodes: 3, cpu: "4"})
	const home = 2
	c.CreateReservation("kept", `{ttl: 10m, consumers: {index: team}, slots: [{name: s, nodeName: `+c.nodes[home]+
		`, requests: {cpu: 4}}]}`)
	c.AwaitReservation("kept", v1alpha1.ReservationAvailable)
	for _, name := range []string{"stranger-0", "stranger-1", "stranger-2"} {
		c.create(name, "4")
	}
	c.bound("stranger-0")
	c.bound("stranger-1")
	assert.Contains(t, c.AwaitRefused("stranger-2"), "GlobalReserve: not enough capacity left on the node")
	c.create("member", "4", testbed.Annotated(v1alpha1.ReservationIndexAnnotation, "team"))
	assert.Equal(t, c.nodes[home], c.bound("member"))
	assert.Equal(t, testbed.Namespace+"/kept/s", c.Pod("member").Annotations[v1alpha1.MatchedReservationAnnotation])
	c.RequireNeverOvercommitted()
}

// kube-scheduler's preemption works on a node that is full, and evicts nobody for capacity that others have reserved.
func TestPreemption(t *testing.T) {
	c := newCluster(t, setup{nodes: 2, cpu: "4"})
	c.CreatePriorityClass("low", 10, corev1.PreemptNever)
	c.CreatePriorityClass("preempting", 1000)
	of := func(class string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.PriorityClassName = class }
	}
	c.reserve("other", "3", c.nodes[0], time.Hour) // with 1 CPU left
	// Often, because the ledger and the scheduler hear of a victim's end in either order.
	for round := range 20 {
		name := func(pod string) string { return fmt.Sprintf("%s-%d", pod, round) }
		c.create(name("victim"), "3", of("low"))
		require.Equal(t, c.nodes[1], c.bound(name("victim")))
		c.create(name("small"), "1", of("low"))
		c.bound(name("small"))
		c.create(name("urgent"), "3", of("preempting"))
		assert.Equal(t, c.nodes[1], c.bound(name("urgent")), "evicting from the other node would not help")
		c.Delete(name("small"))
		c.Delete(name("urgent"))
	}
	c.RequireNeverOvercommitted()
}

// The capacity of a pod that is deleted is kept for a pod that waits, and wakes it: the ledger has the capacity
// before anybody can read whose it is.
func TestKeptCapacityWakesThePodItIsFor(t *testing.T) {
	c := newCluster(t, setup{nodes: 1, cpu: "4"})
	member := testbed.Annotated(v1alpha1.ReservationAnnotation, "true", v1alpha1.ReservationIndexAnnotation, "team")
	c.create("first", "4", member)
	c.bound("first")
	c.create("stranger", "4")
	c.AwaitRefused("stranger")
	c.create("second", "4", member)
	c.AwaitRefused("second")
	c.Delete("first")
	c.bound("second")
	assert.Contains(t, c.Pod("second").Annotations[v1alpha1.MatchedReservationAnnotation], testbed.Namespace+"/first")
	c.RequireNeverOvercommitted()
}
