package dra

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

var churned = flag.Int("claims", 100, "how many claims come and go")

// startServers starts two servers at one address, which the API server asks.
func (c *cluster) startServers() (servers []*testbed.Server) {
	c.T.Helper()
	var hooks []testbed.Backend
	var webhook *clusterload.Webhook
	for i := range 2 {
		var err error
		webhook, err = clusterload.NewWebhook(c.ControlPlane)
		require.NoError(c.T, err)
		s := testbed.StartServer(c.T, c.ControlPlane, clusterload.ServerOptions{
			Name: fmt.Sprint("server-", i), StandBy: true, Args: slices.Concat(webhook.Args, clusterload.QuickLease, []string{"--log-level=info"}),
		})
		servers = append(servers, s)
		hooks = append(hooks, testbed.Backend{Address: testbed.Host(webhook.URL), URL: s.URL})
	}
	c.Eventually(func(t *assert.CollectT) {
		for _, s := range servers {
			assert.NoError(t, controlplane.HTTPReady(s.URL+"/readyz", nil)(c.T.Context()))
		}
	})
	webhook.URL = "https://" + testbed.NewService(c.T, hooks).Address() + "/admission"
	c.install(webhook)
	return servers
}

// leader is the server that decides.
func (c *cluster) leader(servers []*testbed.Server) (leader *testbed.Server) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		leader = nil
		for _, s := range servers {
			if leads, err := s.Metric(c.T.Context(), "globalreserve_leader"); err == nil && leads == 1 {
				leader = s
			}
		}
		assert.NotNil(t, leader)
	})
	return leader
}

// Claims come and go, while the server that decides is killed and a scheduler restarted: no device has two owners at any
// event, and none is lost.
func TestChurn(t *testing.T) {
	const busy = 56
	c := newCluster(t, raceNodes, raceDevices)
	schedulers := []string{"first", "second"}
	for _, s := range schedulers {
		require.NoError(t, c.StartScheduler(t.Context(), s, nil))
	}
	servers := c.startServers()
	c.verdict.forget()
	numbers := make(chan int, *churned)
	for i := range *churned {
		numbers <- i
	}
	close(numbers)
	ctx, cancel := context.WithTimeout(t.Context(), 10*testbed.Soon)
	defer cancel()
	var running sync.WaitGroup
	for range busy {
		running.Go(func() {
			for i := range numbers {
				if err := c.useOnce(ctx, fmt.Sprint("churn-", i), schedulers[i%2]); !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	c.Eventually(func(t *assert.CollectT) { assert.GreaterOrEqual(t, c.verdict.taken(), raceTotal/2) })
	c.leader(servers).Crash(t)
	require.NoError(t, c.RestartPart(t.Context(), schedulers[0]))
	running.Wait()
	c.verdict.catchUp(t, c.Client())
	require.Empty(t, c.verdict.joins())
	require.Empty(t, c.claims())

	c.leader(servers)
	c.race("after", raceTotal, schedulers, func(t *assert.CollectT) { assert.Equal(t, raceTotal, c.verdict.taken(), "no device is lost") })
	c.verdict.catchUp(t, c.Client())
	require.Empty(t, c.verdict.joins())
}

// useOnce has a pod use a device for a moment.
func (c *cluster) useOnce(ctx context.Context, name, scheduler string) error {
	claim, err := c.claimClient().Create(ctx, newClaim(name, 1), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pods := c.Client().CoreV1().Pods(namespace)
	if _, err := pods.Create(ctx, newPod(name, scheduler, name), metav1.CreateOptions{}); err != nil {
		return err
	}
	for !c.verdict.has(claim.UID) {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("%s was given no device: %w", name, err)
		}
	}
	if err := pause(ctx, time.Duration(rand.IntN(1000))*time.Millisecond); err != nil {
		return err
	}
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return c.release(ctx, name)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A write that the leader has granted is held up by another webhook while the leader is killed. The next one does not know
// of it, and gives the device to another claim only when the first write can no longer be carried out.
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
		granted, err := leader.Metric(c.T.Context(), "globalreserve_decisions_total", "verb", "resourceclaims", "result", "granted")
		require.NoError(t, err)
		assert.Positive(t, granted, "the leader has granted it")
	})
	require.NoError(t, leader.Signal(syscall.SIGKILL))
	c.Eventually(func(t *assert.CollectT) { assert.NoError(t, c.allocate("next", false, result("node-0", "gpu-0"))) })
	close(hook.goOn)
	running.Wait()
	require.Error(t, late)
	t.Logf("the write that was held up: %v", late)
	c.verdict.catchUp(t, c.Client())
	require.Empty(t, c.verdict.joins())
	require.NotEmpty(t, c.allocated())
}
