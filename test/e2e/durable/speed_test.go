package durable

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// BenchmarkDurableReserve measures a durable /reserve beside a bare create of the same
// object through the API server, one after the other. The goal for the medians is at most 2 to 1.
func BenchmarkDurableReserve(b *testing.B) {
	for size, rounds := range map[int]int{100: 150, 1000: 30} {
		b.Run(fmt.Sprintf("pods=%d", size), func(b *testing.B) { measureDurable(b, size, rounds) })
	}
}

func measureDurable(b *testing.B, size, rounds int) {
	const warmUp = 20
	c := newCluster(b, size)
	api := c.Reservations()
	gang := c.bigGang("worker", size, "1")
	var reserve, create []time.Duration
	for round := range warmUp + rounds {
		gang.Name = fmt.Sprintf("reserved-%d", round)
		start := time.Now()
		answer := c.Reserve(gang)
		took := time.Since(start)
		require.Empty(b, answer.Error)
		object, err := api.Get(b.Context(), gang.Name, metav1.GetOptions{})
		require.NoError(b, err)
		c.giveBack(answer.Reservation)
		c.awaitIdle()

		same := object.DeepCopy()
		same.ObjectMeta = metav1.ObjectMeta{
			Name: fmt.Sprintf("created-%d", round), Namespace: c.Namespace, Labels: object.Labels,
			Annotations: object.Annotations,
		}
		for i := range same.Spec.Slots { // of as many bytes, but the pods of the next round are free
			same.Spec.Slots[i].Pod.Name = strings.Replace(same.Spec.Slots[i].Pod.Name, "worker", "others", 1)
		}
		same.Status = v1alpha1.ReservationStatus{}
		start = time.Now()
		_, err = api.Create(b.Context(), same, metav1.CreateOptions{})
		bare := time.Since(start)
		require.NoError(b, err)
		require.NoError(b, api.Delete(b.Context(), same.Name, metav1.DeleteOptions{}))
		c.awaitIdle()
		if round >= warmUp {
			reserve, create = append(reserve, took), append(create, bare)
		}
	}
	ratio := float64(testbed.Quantile(reserve, 50)) / float64(testbed.Quantile(create, 50))
	b.ReportMetric(float64(testbed.Quantile(reserve, 50).Microseconds())/1000, "reserve-p50-ms")
	b.ReportMetric(float64(testbed.Quantile(create, 50).Microseconds())/1000, "create-p50-ms")
	b.ReportMetric(ratio, "x-create")
	fmt.Printf("SUMMARY durable /reserve of %d pods: p50 %s, p99 %s; bare create of the same object: p50 %s, p99 %s; "+
		"ratio of the medians %.2f (goal: at most 2)\n",
		size, testbed.Quantile(reserve, 50), testbed.Quantile(reserve, 99), testbed.Quantile(create, 50),
		testbed.Quantile(create, 99), ratio)
}

// awaitIdle waits until no object and no slot is left of what was measured before.
func (c *cluster) awaitIdle() {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		assert.Empty(t, c.ListReservations())
		assert.Empty(t, c.Held())
	})
}

// BenchmarkExpiry measures filter calls while 10,000 slots expire at the same moment. The goal for
// the 99th percentile is 10 ms throughout.
func BenchmarkExpiry(b *testing.B) {
	const gangs, size, nodes = 10, 1000, 100
	c := newCluster(b, nodes)
	for i := range gangs {
		gang := c.bigGang(fmt.Sprintf("g%d", i), size, "1m")
		gang.TTLSeconds = 120
		require.Empty(b, c.Reserve(gang).Error)
	}
	deadline := c.alignDeadlines()
	require.Len(b, c.Held(), gangs*size)
	time.Sleep(time.Until(deadline.Add(-5 * time.Second))) //nolint:forbidigo // a measurement in real time
	var before, after, firstSecond []time.Duration
	pod := testbed.NewPod("waiting", scheduler, "1")
	pod.UID = types.UID("waiting")
	var gone time.Duration
	var watching sync.WaitGroup
	watching.Go(func() {
		for time.Until(deadline) > 0 {
			time.Sleep(time.Millisecond) //nolint:forbidigo // a measurement in real time
		}
		c.Eventually(func(t *assert.CollectT) { assert.Empty(t, c.Held()) })
		gone = time.Since(deadline)
	})
	ctx, cancel := context.WithDeadline(b.Context(), deadline.Add(10*time.Second))
	defer cancel()
	for ctx.Err() == nil {
		start := time.Now()
		if _, err := c.Ledger.Filter(ctx, pod, c.nodes...); err != nil {
			break // the time is over
		}
		took := time.Since(start)
		if start.Before(deadline) {
			before = append(before, took)
		} else {
			after = append(after, took)
		}
		if since := start.Sub(deadline); since >= 0 && since < time.Second {
			firstSecond = append(firstSecond, took)
		}
	}
	watching.Wait()
	objects := len(c.ListReservations())
	b.ReportMetric(float64(testbed.Quantile(after, 99).Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(testbed.Quantile(firstSecond, 99).Microseconds())/1000, "first-second-p99-ms")
	b.ReportMetric(float64(slices.Max(after).Microseconds())/1000, "max-ms")
	fmt.Printf("SUMMARY filter while %d holds expire at once: %d calls, p50 %s, p99 %s, slowest %s; in the first "+
		"second %d calls, p99 %s (before: p50 %s, p99 %s, slowest %s); holds gone %s after the deadline, %d objects left "+
		"after 10 s (goal: p99 at most 10ms)\n",
		gangs*size, len(after), testbed.Quantile(after, 50), testbed.Quantile(after, 99), slices.Max(after),
		len(firstSecond), testbed.Quantile(firstSecond, 99), testbed.Quantile(before, 50),
		testbed.Quantile(before, 99), slices.Max(before), gone.Round(time.Millisecond), objects)
}

// alignDeadlines extends the ttl of all reservations so that they expire at the same moment, which it returns.
func (c *cluster) alignDeadlines() time.Time {
	c.T.Helper()
	objects := c.ListReservations()
	deadline := time.Now()
	for i := range objects {
		if at := convert.Deadline(&objects[i]); at.After(deadline) {
			deadline = at
		}
	}
	deadline = deadline.Add(10 * time.Second)
	for i := range objects {
		patch := fmt.Sprintf(`{"spec":{"ttl":%q}}`, deadline.Sub(objects[i].CreationTimestamp.Time))
		_, err := c.Reservations().Patch(c.T.Context(), objects[i].Name,
			types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		require.NoError(c.T, err)
	}
	c.Eventually(func(t *assert.CollectT) {
		answer, err := c.Ledger.Reservations(c.T.Context())
		require.NoError(t, err)
		assert.Len(t, answer.Reservations, len(objects))
		for _, r := range answer.Reservations {
			assert.True(t, r.ExpiresAt.Equal(deadline), r.Name)
		}
	})
	return deadline
}
