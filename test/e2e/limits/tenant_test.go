package limits

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// shared is the control plane of all tests, with our definitions.
var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// newCluster starts a cluster of so many nodes of 4 CPUs, whose API server asks the server about bindings. url is where the
// server asks callers who they are.
func newCluster(t *testing.T, nodes int, args ...string) (c *testbed.Cluster, url string) {
	t.Helper()
	cluster := testbed.NewCluster(t, shared.StartT(t))
	c = &cluster
	c.AddNodes(nodes, controlplane.NodeTemplate{})
	webhook, err := clusterload.NewWebhook(c.ControlPlane)
	require.NoError(t, err)
	c.StartServer(clusterload.ServerOptions{Args: slices.Concat(webhook.Args, args)})
	require.NoError(t, webhook.Install(t.Context(), c.ControlPlane, nil))
	return c, strings.TrimSuffix(webhook.URL, "/admission")
}

// startQuotaController starts the controller that counts what quotas are used for: the API server's own admission goes by that.
func startQuotaController(c *testbed.Cluster) {
	c.T.Helper()
	kubeconfig, err := c.AdminKubeconfig()
	require.NoError(c.T, err)
	_, err = c.StartProcess(c.T.Context(), controlplane.ProcessOptions{
		Name: "quota-controller", Path: filepath.Join(c.BinDir(), controlplane.ControllerManager), Args: []string{
			"--kubeconfig=" + kubeconfig, "--controllers=resourcequota-controller", "--leader-elect=false", "--secure-port=0", "--kube-api-qps=200", "--kube-api-burst=400",
		},
	})
	require.NoError(c.T, err)
}

// limit gives a namespace a ResourceQuota, and returns when the API server and the ledger keep to it.
func limit(c *testbed.Cluster, cpu string) {
	c.T.Helper()
	_, err := c.Client().CoreV1().ResourceQuotas(c.Namespace).Create(c.T.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "quota"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.cpu": testbed.Requests(cpu)[corev1.ResourceCPU]}},
	}, metav1.CreateOptions{})
	require.NoError(c.T, err)
	probe := testbed.NewPod("probe", testbed.Nobody, "1000") // more than any quota here: that is known once it is refused for it
	probe.Namespace, probe.UID = c.Namespace, "probe"
	c.Eventually(func(t *assert.CollectT) {
		quota, err := c.Client().CoreV1().ResourceQuotas(c.Namespace).Get(c.T.Context(), "quota", metav1.GetOptions{})
		if assert.NoError(t, err) {
			assert.NotEmpty(t, quota.Status.Used)
		}
		for _, why := range c.Filter(probe, "node-0") {
			assert.Contains(t, why, "ResourceQuota")
		}
		assert.NotEmpty(t, c.Filter(probe, "node-0"))
	})
}

// used is what the pods and slots of a namespace use together, in milli-CPU; ok is false where the account changed
// between the two looks.
func used(ctx context.Context, c *testbed.Cluster, namespace string) (milli int64, ok bool, err error) {
	pods, err := c.Ledger.Allocations(ctx)
	if err != nil {
		return 0, false, err
	}
	slots, err := c.Ledger.Reservations(ctx)
	if err != nil || slots.Revision != pods.Revision {
		return 0, false, err
	}
	for i := range pods.Allocations {
		if a := &pods.Allocations[i]; a.Namespace == namespace {
			milli += a.Requests["cpu"]
		}
	}
	for i := range slots.Reservations {
		r := &slots.Reservations[i]
		for k := range r.Slots {
			if r.Namespace == namespace {
				milli += r.Slots[k].Free["cpu"]
			}
		}
	}
	return milli, true, nil
}

// leastLooks is how often the account is looked at, at least, and leastUsed what the tenant has in one of them, in milli-CPU.
const leastLooks, leastUsed = 20, 5_000

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
	least := tenantTime(t)
	ctx, stop := context.WithTimeout(t.Context(), least+testbed.Soon)
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
		func() { // the end, not before enough was seen
			for wait := least; ; wait = testbed.Poll {
				select {
				case <-time.After(wait):
				case <-ctx.Done():
				}
				if ctx.Err() != nil || looks.Load() > leastLooks && most.Load() > leastUsed && reserved.Load() > 0 {
					stop()
					return
				}
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
	assert.Greater(t, most.Load(), int64(leastUsed), "the tenant got what it may have")
	assert.Greater(t, looks.Load(), int64(leastLooks))
	assert.NotZero(t, reserved.Load(), "it may ask")
	assert.NotZero(t, c.Metric("globalreserve_limit_refusals_total", "reason", ledger.QuotaExceeded.String()))
	outer.RequireNeverOvercommitted()
}

// TestQuotaRefusesAfterUs: ResourceQuota, which counts pods without a node as well, refuses pods that are created with a node
// after the server has allowed them. For as long as they might be created these have no more than the namespace may have, others'
// pods are bound, a system-cluster-critical one among them, and then nothing is left of them.
func TestQuotaRefusesAfterUs(t *testing.T) {
	outer, url := newCluster(t, 4)
	startQuotaController(outer)
	inner := outer.In(t, "tenant")
	c := &inner
	limit(c, "10")
	author := newTenant(c, url)
	try := func(name, node, cpu string) error {
		pod := testbed.NewPod(name, testbed.Nobody, cpu, func(p *corev1.Pod) { p.Spec.NodeName = node })
		pod.Namespace = c.Namespace
		_, err := author.pods.Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	}
	require.NoError(t, try("waits", "", "9500m"))
	byQuota, byLedger := 0, 0
	for i := range 24 {
		err := try(fmt.Sprintf("placed-%d", i), fmt.Sprintf("node-%d", i%4), "1")
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		if strings.Contains(err.Error(), "exceeded quota") {
			byQuota++
		} else {
			require.ErrorContains(t, err, "more cpu than its ResourceQuota")
			byLedger++
		}
	}
	assert.Equal(t, 10, byQuota, "as many as the namespace may have")
	assert.Equal(t, 14, byLedger)
	c.Eventually(func(e *assert.CollectT) {
		milli, ok, err := used(t.Context(), c, c.Namespace)
		require.NoError(e, err)
		require.True(e, ok)
		assert.EqualValues(e, 10_000, milli)
	})
	others, critical := outer.In(t, "others"), outer.In(t, "critical")
	require.Empty(t, others.Bind(others.CreatePod("ordinary", testbed.Nobody, "1"), "node-3"))
	require.Empty(t, critical.Bind(critical.CreatePod("urgent", testbed.Nobody, "2", func(p *corev1.Pod) {
		p.Spec.PriorityClassName = "system-cluster-critical"
	}), "node-2"), "what the tenant leaves is there for it")
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		milli, ok, err := used(c.T.Context(), c, c.Namespace)
		assert.NoError(t, err)
		assert.True(t, ok)
		assert.Zero(t, milli)
	}, 2*testbed.Soon, testbed.Poll)
	outer.RequireNeverOvercommitted()
}

const policyHead = "apiVersion: config.globalreserve.io/v1alpha1\nkind: GlobalReservePolicy\n"

// TestPolicyLimits: what the policy limits is refused with a reason of its own on each path, while others go on; a
// changed policy counts, a bad file or none leaves the one before in force.
func TestPolicyLimits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(rules string) { require.NoError(t, os.WriteFile(file, []byte(policyHead+rules), 0o600)) }
	write("namespaces: {limited: {maxReserved: {cpu: 25%}, maxSlots: 2}}\n") // of 8
	outer, _ := newCluster(t, 2, "--policy-file="+file)
	inner := outer.In(t, "limited")
	c := &inner
	reserve := func(c *testbed.Cluster, name, cpu string, durable bool) *reserver.Answer {
		request := &reserver.Request{
			SchedulerName: testbed.Nobody, Pods: []*corev1.Pod{testbed.NewPod(name, testbed.Nobody, cpu)}, Nodes: []string{"node-0"}, Durable: &durable,
		}
		request.Pods[0].Namespace = c.Namespace
		return c.Reserve(request)
	}
	requireRefused := func(answer *reserver.Answer, reason ledger.Reason) {
		t.Helper()
		require.NotEmpty(t, answer.Error)
		require.Equal(t, reason.String(), answer.Rejections[0].Reason, answer.Rejections[0].Message)
	}
	c.Eventually(func(t *assert.CollectT) { assert.NotEmpty(t, reserve(c, "large", "2500m", false).Error) }, "25% of 8 CPUs are known")
	requireRefused(reserve(c, "large", "2500m", false), ledger.ReservedLimit)
	requireRefused(reserve(c, "large", "2500m", true), ledger.ReservedLimit)
	c.CreateReservation("by-hand", "{ttl: 10m, slots: [{name: a, requests: {cpu: 2500m}}]}")
	c.Eventually(func(t *assert.CollectT) {
		rsv, err := c.Reservations().Get(context.Background(), "by-hand", metav1.GetOptions{})
		if assert.NoError(t, err) && assert.NotEmpty(t, rsv.Status.Conditions) {
			assert.Contains(t, rsv.Status.Conditions[0].Message, "maxReserved")
		}
	})
	others := outer.In(t, "unlimited")
	require.Empty(t, reserve(&others, "large", "2500m", false).Error)

	require.Empty(t, reserve(c, "a", "100m", false).Error)
	require.Empty(t, reserve(c, "b", "100m", true).Error)
	requireRefused(reserve(c, "c", "100m", false), ledger.SlotLimit)
	kept := c.CreatePod("kept", testbed.Nobody, "100m", testbed.Annotated("globalreserve.io/reservation", "true"))
	require.Empty(t, c.Bind(kept, "node-1"), "pods are not reservations")
	c.Delete("kept")
	c.AwaitEvent("Pod", "kept", "CapacityNotKept", "maxSlots")

	write("namespaces: {limited: {maxReserved: {cpu: 25%}, maxSlots: 3}}\n")
	c.Eventually(func(t *assert.CollectT) { assert.Empty(t, reserve(c, "c", "100m", false).Error) })
	failed := c.Metric("globalreserve_policy_reload_failures_total")
	write("namespaces: {limited: {maxSlots: many}}\n")
	c.Eventually(func(t *assert.CollectT) {
		assert.Greater(t, c.Metric("globalreserve_policy_reload_failures_total"), failed)
	})
	requireRefused(reserve(c, "d", "100m", false), ledger.SlotLimit)
	failed = c.Metric("globalreserve_policy_reload_failures_total")
	require.NoError(t, os.Remove(file))
	c.Eventually(func(t *assert.CollectT) {
		assert.Greater(t, c.Metric("globalreserve_policy_reload_failures_total"), failed)
	})
	requireRefused(reserve(c, "d", "100m", false), ledger.SlotLimit)
}
