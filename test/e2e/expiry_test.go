package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const (
	// wakeWithin is how soon a pod has to run after room was given back that it waited for.
	wakeWithin = 2 * time.Second
	// wakeRounds is how often each way to give room back is tried: once proves little.
	wakeRounds = 4
)

// TestWaitingPodsWakeUp reserves the only node for pods that never come, has a kube-scheduler refuse
// pods for it, and measures how long after the reservation's end they run. No event that
// kube-scheduler watches announces that end.
func TestWaitingPodsWakeUp(t *testing.T) {
	c := newServedCluster(t, 1)
	c.startScheduler("default-scheduler", "default-scheduler.yaml")
	const ttl = 2 * time.Second
	reservation := func(seconds time.Duration) *reserver.Request {
		request := groupOf([]*corev1.Pod{newPod("never-comes", nobody, "4")}, "node-0")
		request.TTLSeconds = int64(seconds / time.Second)
		return request
	}
	// Each returns the earliest moment at which the room may have become free.
	ends := map[string]func(*cluster, func()) time.Time{
		"when a reservation expires": func(c *cluster, refusePods func()) time.Time {
			asked := time.Now()
			require.True(c.t, granted(c.reserve(c.t, reservation(ttl))))
			refusePods()
			return asked.Add(ttl)
		},
		"when a reservation is given back": func(c *cluster, refusePods func()) time.Time {
			require.True(c.t, granted(c.reserve(c.t, reservation(time.Hour))))
			refusePods()
			c.awaitBackOffOver()
			asked := time.Now()
			request := reservation(0)
			require.True(c.t, granted(c.unreserve(c.t, request)))
			return asked
		},
	}
	for name, end := range ends {
		for round := range wakeRounds {
			t.Run(fmt.Sprintf("%s, round %d", name, round+1), func(t *testing.T) {
				c := c.in(t)
				c.clear()
				var waiting []*corev1.Pod
				ended := end(c, func() {
					waiting = c.create(newPods(3, fmt.Sprintf("waiting-%d", round), "default-scheduler", "1")...)
					c.awaitRefused(waiting)
				})
				for _, pod := range waiting {
					node, at := c.awaitBound(pod, soon)
					t.Logf("%s bound %s after the reservation's end", pod.Name, at.Sub(ended).Round(time.Millisecond))
					require.Equal(t, "node-0", node)
					require.Less(t, at.Sub(ended), wakeWithin)
					require.Greater(t, at.Sub(ended), time.Duration(0), "it did not wait for the reservation")
				}
				c.requireAgreement()
			})
		}
	}
	require.NotZero(t, c.metric(t, "globalreserve_wakeups_total"))
	c.requireNeverOvercommitted()
}

func (c *cluster) awaitRefused(pods []*corev1.Pod) {
	c.t.Helper()
	eventually(c.t, soon, func(t *assert.CollectT) {
		for _, pod := range pods {
			assert.True(t, isRefused(c.get(t, pod)), "no scheduler has refused %s yet", pod.Name)
		}
	})
}

// backOff is how long kube-scheduler leaves a pod alone after it was refused once, and a second more
// for the coarse time stamps it is measured by here.
const backOff = 2 * time.Second

// awaitBackOffOver waits until no pod is left alone by its scheduler any more, as none is that has
// waited for a while.
func (c *cluster) awaitBackOffOver() {
	c.t.Helper()
	eventually(c.t, soon, func(t *assert.CollectT) {
		for _, pod := range c.list(t) {
			for _, condition := range pod.Status.Conditions {
				assert.Greater(t, time.Since(condition.LastTransitionTime.Time), backOff, "%s backs off", pod.Name)
			}
		}
	})
}
