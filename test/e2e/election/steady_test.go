package election

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/app"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/steady"
	"github.com/globalreserve/globalreserve/test/background"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// The wall clock of the server is stepped by an hour, forth and back, while pods are bound. What it keeps ends neither
// early nor an hour late, whichever way it was asked for, and decisions go on.
func TestStepOfTheWallClock(t *testing.T) {
	c := newCluster(t, shared.StartT(t), 8)
	var stepped atomic.Int64
	c.serveHere(steady.New(func() time.Time { return time.Now().Add(time.Duration(stepped.Load())) }))
	var binds atomic.Int64
	stop := background.Run(t, func(ctx context.Context) error { return c.bindOn(ctx, c.nodes[0], &binds) })
	for i, step := range []time.Duration{time.Hour, -time.Hour} {
		name := func(when string) string { return fmt.Sprintf("%s-%d", when, i) }
		before := c.keep(name("before"))
		long := &reserver.Request{
			SchedulerName: nobody, Pods: []*corev1.Pod{testbed.NewPod(name("long"), nobody, "100m")}, Nodes: c.nodes[7:],
			TTLSeconds: 600, RequestID: name("long"), Durable: ptr.To(false),
		}
		granted := c.Reserve(long)
		require.True(t, granted.Granted(), "%+v", granted)
		stepped.Add(int64(step))
		assert.Equal(t, granted, c.Reserve(long), "a repeat is known")
		after := c.keep(name("after"))
		bound := binds.Load()
		before.requireEnds(&c.Cluster)
		after.requireEnds(&c.Cluster)
		require.Eventually(t, func() bool { return binds.Load() > bound+10 }, testbed.Soon, testbed.Poll, "decisions go on")
		require.Contains(t, c.keptNames(), name("long"))
		for _, r := range c.reservations() {
			for k := range r.Slots {
				if r.Slots[k].Pod == name("long") {
					assert.WithinDuration(t, granted.ExpiresAt.Add(step), r.Slots[k].ExpiresAt, 2*time.Second, "by the clock as it is now")
				}
			}
		}
	}
	stop()
	c.RequireNeverOvercommitted()
}

// serveHere runs a server in this process until the test ends.
func (c *cluster) serveHere(clock *steady.Clock) {
	c.T.Helper()
	clients, err := app.NewClients(c.ServerConfig())
	require.NoError(c.T, err)
	o := app.DefaultOptions()
	o.Port, o.Peers.Address, o.Clock = 0, "127.0.0.1:0", clock
	server, err := app.New(o, clients, c.T.Output())
	require.NoError(c.T, err)
	require.NoError(c.T, server.Start(c.T.Context()))
	c.T.Cleanup(func() { assert.NoError(c.T, server.Stop(context.Background())) })
	require.NoError(c.T, server.WaitReady(c.T.Context()))
	c.Ledger.URL = "http://" + server.Addr()
}

// bindOn binds pods to a node, and deletes them, one after another.
func (c *cluster) bindOn(ctx context.Context, node string, binds *atomic.Int64) error {
	for i := 0; ctx.Err() == nil; i++ {
		pod := c.Create(testbed.NewPod(fmt.Sprintf("load-%d", i), nobody, "10m"))[0]
		refusal, err := c.Ledger.TryBind(ctx, pod, node)
		if stopped := ctx.Err() != nil; !stopped && (refusal != "" || err != nil) {
			return fmt.Errorf("%s: %q: %w", pod.Name, refusal, err)
		}
		binds.Add(1)
		if err := c.Client().CoreV1().Pods(pod.Namespace).Delete(c.T.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// shortTTL is how long what is kept lasts that is to end in the test.
const shortTTL = 8 * time.Second

// kept is what was asked for, by its pods or slots, and when.
type kept struct {
	names        []string
	asked, given time.Time
}

// keep keeps capacity in each of the ways there are.
func (c *cluster) keep(name string) *kept {
	c.T.Helper()
	k := &kept{asked: time.Now()}
	for i, way := range []string{"memory", "durable"} {
		pod := testbed.NewPod(name+"-"+way, nobody, "100m")
		answer := c.Reserve(&reserver.Request{
			SchedulerName: nobody, Pods: []*corev1.Pod{pod}, Nodes: c.nodes[1+i : 2+i],
			TTLSeconds: int64(shortTTL / time.Second), Durable: ptr.To(way == "durable"),
		})
		require.True(c.T, answer.Granted(), "%+v", answer)
		k.names = append(k.names, pod.Name)
	}
	object := name + "-object"
	c.CreateReservation(object, fmt.Sprintf("{ttl: %s, slots: [{name: %s, nodeName: %s, requests: {cpu: 100m}}]}", shortTTL, object, c.nodes[3]))
	c.AwaitReservation(object, "Available")
	k.names, k.given = append(k.names, object), time.Now()
	return k
}

// requireEnds watches that what is kept is there until its time is over, and not for much longer. The time counts
// from the last whole second.
func (k *kept) requireEnds(c *testbed.Cluster) {
	c.T.Helper()
	for ends := k.asked.Add(shortTTL - time.Second); ; <-time.After(testbed.Poll) {
		names := keptNames(c)
		if !time.Now().Before(ends) {
			break
		}
		require.Subset(c.T, names, k.names, "%s before the end", time.Until(ends))
	}
	c.Eventually(func(t *assert.CollectT) {
		for _, name := range keptNames(c) {
			assert.NotContains(t, k.names, name)
		}
	})
	c.T.Logf("the last of it ended at most %s after the time that it was kept for", (time.Since(k.given) - shortTTL).Round(time.Millisecond))
}

func (c *cluster) reservations() []reserver.Reservation {
	c.T.Helper()
	answer, err := c.Ledger.Reservations(c.T.Context())
	require.NoError(c.T, err)
	return answer.Reservations
}

func (c *cluster) keptNames() []string { return keptNames(&c.Cluster) }

// keptNames are the pods that slots are kept for, or the names of slots that are for no pod.
func keptNames(c *testbed.Cluster) []string {
	c.T.Helper()
	answer, err := c.Ledger.Reservations(c.T.Context())
	require.NoError(c.T, err)
	names := []string{}
	for _, r := range answer.Reservations {
		for k := range r.Slots {
			if names = append(names, r.Slots[k].Pod); r.Slots[k].Pod == "" {
				names[len(names)-1] = r.Slots[k].Name
			}
		}
	}
	return names
}
