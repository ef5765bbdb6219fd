//go:build e2e

package dra

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// A write that the leader has granted is held up by another webhook while the leader is killed. The next one does not
// know of it, and gives the device to another claim only when the first write can no longer be carried out.
func TestGrantOfTheLeaderBefore(t *testing.T) {
	c := newCluster(t, 1, 1)
	servers := c.startServers()
	hook := c.startOtherHook("late")
	c.createClaims("late", "next")
	c.verdict.forget()
	leader := c.leader(servers)
	var late error
	var running sync.WaitGroup
	running.Go(func() { late = c.allocate("late", false, result("node-0", "gpu-0")) })
	select {
	case <-hook.asked:
	case <-time.After(testbed.Soon):
		require.FailNow(t, "the other webhook is not asked")
	}
	c.Eventually(func(t *assert.CollectT) {
		granted, err := leader.Metric(c.T.Context(), "globalreserve_decisions_total", "verb", "resourceclaims", "result",
			"granted")
		require.NoError(t, err)
		assert.Positive(t, granted, "the leader has granted it")
	})
	require.NoError(t, leader.Kill())
	c.Eventually(func(t *assert.CollectT) { assert.NoError(t, c.allocate("next", false, result("node-0", "gpu-0"))) })
	close(hook.goOn)
	running.Wait()
	require.Error(t, late)
	t.Logf("the write that was held up: %v", late)
	c.verdict.catchUp(t, c.Client())
	require.Empty(t, c.verdict.joins())
	require.NotEmpty(t, c.allocated())
}

// fill adds labels to a claim until the API server takes no more: nobody can write an annotation to it.
func (c *cluster) fill(name string) {
	c.T.Helper()
	claim, err := c.claimClient().Get(c.T.Context(), name, metav1.GetOptions{})
	require.NoError(c.T, err)
	claim.Labels = map[string]string{}
	for _, step := range []struct{ labels, size int }{{500, 50}, {50, 50}, {10, 50}, {1, 50}, {1, 1}} {
		for {
			more := claim.DeepCopy()
			for range step.labels {
				more.Labels[fmt.Sprintf("l%d-%s", len(more.Labels), strings.Repeat("x", step.size))] = ""
			}
			if more, err = c.claimClient().Update(c.T.Context(), more, metav1.UpdateOptions{}); err != nil {
				if !strings.Contains(err.Error(), "request is too large") { // its text has the labels
					require.FailNow(c.T, "the claim cannot be filled", "%.300v", err)
				}
				break
			}
			claim = more
		}
	}
}

// A claim that is too large for another annotation keeps nobody waiting when another server takes over. Without its own
// bound all wait for 45 seconds.
func TestFailoverBesideALargeClaim(t *testing.T) {
	c := newCluster(t, 1, 2)
	servers := c.startServers()
	c.createClaims("large", "next")
	c.fill("large")
	leader := c.leader(servers)
	require.NoError(t, leader.Kill())
	c.leader(slices.DeleteFunc(servers, func(s *testbed.Server) bool { return s == leader }))
	begun := time.Now()
	c.Eventually(func(t *assert.CollectT) { assert.NoError(t, c.allocate("next", false, result("node-0", "gpu-0"))) })
	took := time.Since(begun)
	t.Logf("devices were given %v after the next server has begun to decide", took)
	assert.Less(t, took, 25*time.Second)
	require.ErrorContains(t, c.allocate("large", false, result("node-0", "gpu-1")), "/large has more than")
}
