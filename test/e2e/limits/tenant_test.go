//go:build soak

package limits

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

func tenantTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("GLOBALRESERVE_TENANT_TIME")
	if text == "" {
		return 6 * time.Second
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

// TestTenantStaysWithinItsQuota: a user of a namespace with a quota of 10 CPUs tries pods created with a node, the capacity of
// deleted pods, one after another, and /reserve, all at once. On no look do its pods and slots use more, and the pods
// of others are bound.
func TestTenantStaysWithinItsQuota(t *testing.T) {
	outer, url := newCluster(t, 6)
	startQuotaController(outer)
	inner := outer.In(t, "tenant")
	c := &inner
	limit(c, "10")
	author := newTenant(c, url)
	ctx, stop := context.WithTimeout(t.Context(), tenantTime(t))
	defer stop()
	pods := author.pods
	var tries, refused, reserved, most, looks atomic.Int64
	// What is tried fails most of the time, and may: looks, not answers, are what counts.
	attempt := func(try func(n int64) (granted bool)) func() {
		return func() {
			for ctx.Err() == nil {
				if n := tries.Add(1); !try(n) {
					refused.Add(1)
				}
			}
		}
	}
	node := func(n int64) string { return fmt.Sprintf("node-%d", n%6) }
	keep := testbed.Annotated("globalreserve.io/reservation", "true", "globalreserve.io/reservation-ttl", "24h")
	done := make(chan struct{})
	deeds := []func(){
		attempt(func(n int64) bool { // created with a node, and deleted: its capacity is to be kept
			name := fmt.Sprintf("placed-%d", n)
			pod := testbed.NewPod(name, testbed.Nobody, "3500m", keep, func(p *corev1.Pod) { p.Spec.NodeName = node(n) })
			pod.Namespace = c.Namespace
			_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
			if err == nil {
				_ = pods.Delete(ctx, name, metav1.DeleteOptions{})
			}
			return err == nil
		}),
		attempt(func(n int64) bool { // bound through the server, and deleted
			name := fmt.Sprintf("bound-%d", n)
			pod := testbed.NewPod(name, testbed.Nobody, "2", keep)
			pod.Namespace = c.Namespace
			pod, err := pods.Create(ctx, pod, metav1.CreateOptions{})
			if err != nil {
				return false
			}
			refusal, err := c.Ledger.TryBind(ctx, pod, node(n))
			_ = pods.Delete(ctx, name, metav1.DeleteOptions{})
			return err == nil && refusal == ""
		}),
		attempt(func(n int64) bool { // kept in memory, for pods that do not exist
			request := &reserver.Request{
				SchedulerName: testbed.Nobody, Pods: []*corev1.Pod{testbed.NewPod(fmt.Sprintf("kept-%d", n), testbed.Nobody, "1500m")},
				Nodes: []string{node(n)}, Durable: new(n%2 == 0), TTLSeconds: 1,
			}
			request.Pods[0].Namespace = c.Namespace
			granted, err := author.reserve(ctx, request)
			if err != nil && ctx.Err() == nil {
				assert.NoError(t, err)
			}
			if granted {
				reserved.Add(1)
			}
			return granted
		}),
		func() { // the looks
			for ctx.Err() == nil {
				milli, ok, err := used(ctx, c, c.Namespace)
				if err != nil || !ok {
					continue
				}
				looks.Add(1)
				most.Store(max(most.Load(), milli))
			}
		},
	}
	for _, deed := range deeds {
		go func() { deed(); done <- struct{}{} }()
	}
	others, critical := outer.In(t, "others"), outer.In(t, "kube-system-like")
	ordinary := others.CreatePod("ordinary", testbed.Nobody, "3")
	assert.Eventually(t, func() bool { return others.Bind(ordinary, "node-0") == "" || others.Bind(ordinary, "node-5") == "" }, testbed.Soon, testbed.Poll)
	urgent := critical.CreatePod("urgent", testbed.Nobody, "2", func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-cluster-critical" })
	assert.Eventually(t, func() bool { return critical.Bind(urgent, "node-1") == "" || critical.Bind(urgent, "node-4") == "" }, testbed.Soon, testbed.Poll)
	for range deeds {
		<-done
	}
	t.Logf("%d tries, %d refused, %d looks, at most %dm", tries.Load(), refused.Load(), looks.Load(), most.Load())
	assert.LessOrEqual(t, most.Load(), int64(10_000))
	assert.Greater(t, most.Load(), int64(5_000), "the tenant got what it may have")
	assert.Greater(t, looks.Load(), int64(20))
	assert.NotZero(t, reserved.Load(), "it may ask")
	assert.NotZero(t, c.Metric("globalreserve_limit_refusals_total", "reason", ledger.QuotaExceeded.String()))
	outer.RequireNeverOvercommitted()
}
