//go:build chaos

package dra

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// Claims come and go, while the server that decides is killed and a scheduler restarted: no device has two owners at
// any event, and none is lost.
func TestChurn(t *testing.T) {
	const busy = 56
	c := newCluster(t, raceNodes, raceDevices)
	schedulers := []string{"first", "second"}
	for _, s := range schedulers {
		require.NoError(t, c.StartScheduler(t.Context(), s, nil))
	}
	servers := c.startServers(clusterload.QuickLease...)
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
	leader := c.leader(servers)
	require.NoError(t, leader.Kill())
	require.NoError(t, leader.Start(t.Context()))
	require.NoError(t, c.RestartPart(t.Context(), schedulers[0]))
	running.Wait()
	c.verdict.catchUp(t, c.Client())
	require.Empty(t, c.verdict.joins())
	require.Empty(t, c.claims())

	c.leader(servers)
	c.race("after", raceTotal, schedulers, func(t *assert.CollectT) {
		assert.Equal(t, raceTotal, c.verdict.taken(),
			"no device is lost")
	})
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
