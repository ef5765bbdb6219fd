package limits

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/background"
)

func quota(namespace, name string, hard v1.ResourceList, scopes ...v1.ResourceQuotaScope) *v1.ResourceQuota {
	return &v1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u"},
		Spec:       v1.ResourceQuotaSpec{Hard: hard, Scopes: scopes},
	}
}

func list(amounts map[v1.ResourceName]string) v1.ResourceList {
	l := v1.ResourceList{}
	for name, text := range amounts {
		l[name] = resource.MustParse(text)
	}
	return l
}

func TestLimitsInAQuota(t *testing.T) {
	tests := map[string]struct {
		quota *v1.ResourceQuota
		want  map[v1.ResourceName]string
		part  bool
	}{
		"all names": {
			quota: quota("a", "q", list(map[v1.ResourceName]string{
				"requests.cpu": "10", "cpu": "12", "requests.memory": "1Gi", "requests.ephemeral-storage": "2Gi", "count/pods": "5",
				"pods":                     "7",
				"requests.example.com/gpu": "2", "hugepages-2Mi": "4Mi", "limits.cpu": "1", "requests.storage": "1",
				"services": "1",
			})),
			want: map[v1.ResourceName]string{
				"cpu": "10", "memory": "1Gi", "ephemeral-storage": "2Gi", "pods": "5", "example.com/gpu": "2",
				"hugepages-2Mi": "4Mi",
			},
		},
		"not best effort": {
			quota: quota("a", "q", list(map[v1.ResourceName]string{"cpu": "10", "pods": "3"}),
				v1.ResourceQuotaScopeNotBestEffort),
			want: map[v1.ResourceName]string{"cpu": "10"}, part: true,
		},
		"other scopes": {
			quota: quota("a", "q", list(map[v1.ResourceName]string{"cpu": "10"}), v1.ResourceQuotaScopeTerminating),
			want:  map[v1.ResourceName]string{}, part: true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, whole := limitsIn(tt.quota)
			assert.Equal(t, list(tt.want), got)
			assert.Equal(t, tt.part, !whole)
		})
	}
}

// TestLimitsFollowQuotasPolicyAndNodes: what the ledger may grant follows all three.
func TestLimitsFollowQuotasPolicyAndNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger.New(ledger.Options{})
		node := func(name string, milli int64) {
			l.ObserveNode(ledger.NodeObservation{Name: name, Allocatable: []resources.Amount{{
				Column: resources.CPU,
				Value:  milli,
			}}})
		}
		node("n1", 10_000)
		client := fake.NewClientset(quota("a", "q", list(map[v1.ResourceName]string{"requests.cpu": "4"})))
		store := policy.NewStore(policy.Default(), time.Minute)
		log := logrus.New()
		log.SetOutput(io.Discard)
		changed := 0
		recorder := events.NewFakeRecorder(10)
		c := New(Options{
			Ledger: l.Observer(), Client: client, Policy: store, OnChanged: func() { changed++ }, Recorder: recorder, Log: log,
		})
		assert.False(t, c.Ready.IsOpen(), "nothing is decided before the first list")
		background.Run(t, c.Run)
		require.NoError(t, c.Ready.Wait(t.Context()))
		cpu := func(value int64) []resources.Amount { return []resources.Amount{{Column: resources.CPU, Value: value}} }
		of := func(kind ledger.BudgetKind) map[string]ledger.Limits {
			synctest.Wait()
			all := map[string]ledger.Limits{}
			for _, b := range l.Budgets(kind) {
				all[b.Name] = *b.Limits
			}
			return all
		}
		limits := func() map[string]ledger.Limits { return of(ledger.OfNamespace) }
		assert.Equal(t, map[string]ledger.Limits{"a": {Use: cpu(4000)}}, limits())
		assert.Equal(t, 1, changed)

		quotas := client.CoreV1().ResourceQuotas("a")
		_, err := quotas.Create(t.Context(), quota("a", "smaller", list(map[v1.ResourceName]string{"cpu": "3"})),
			metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = quotas.Create(t.Context(), quota("a", "scoped", list(map[v1.ResourceName]string{"cpu": "1"}),
			v1.ResourceQuotaScopeBestEffort), metav1.CreateOptions{})
		require.NoError(t, err)
		assert.Equal(t, map[string]ledger.Limits{"a": {Use: cpu(3000)}}, limits())
		assert.Contains(t, <-recorder.Events, "ScopesNotCounted")

		p := policy.Default()
		p.Schedulers = []policy.Scheduler{
			{Name: "s", Callers: []string{"u", "both"}, Limits: map[v1.ResourceName]policy.Amount{"cpu": "60%"}},
			{Name: "t", Callers: []string{"both"}, Limits: map[v1.ResourceName]policy.Amount{"cpu": "2", "memory": "1Ki"}},
			{Name: "unlimited", Callers: []string{"w"}},
		}
		p.Namespaces = map[string]policy.Namespace{
			policy.DefaultNamespace: {MaxReserved: map[v1.ResourceName]policy.Amount{"cpu": "20%"}, MaxSlots: new(int64(2))},
			"b":                     {MaxReserved: map[v1.ResourceName]policy.Amount{"cpu": "7"}},
		}
		store.Set(p)
		c.PolicyChanged()
		want := map[string]ledger.Limits{
			"a": {Use: cpu(3000), Keep: cpu(2000), Slots: new(int64(2))}, "b": {Keep: cpu(7000)},
		}
		assert.Equal(t, want, limits())

		smaller := append(cpu(2000), resources.Amount{Column: resources.Memory, Value: 1024})
		assert.Equal(t, map[string]ledger.Limits{"u": {Use: cpu(6000)}, "both": {Use: smaller}}, of(ledger.OfCaller))

		node("n2", 5_000)
		<-time.After(2 * lookAgain) // of the bubble
		want["a"] = ledger.Limits{Use: cpu(3000), Keep: cpu(3000), Slots: new(int64(2))}
		assert.Equal(t, want, limits())
		assert.Equal(t, map[string]ledger.Limits{"u": {Use: cpu(9000)}, "both": {Use: smaller}}, of(ledger.OfCaller))

		require.NoError(t, quotas.DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		for _, name := range []string{"q", "smaller", "scoped"} {
			_ = quotas.Delete(t.Context(), name, metav1.DeleteOptions{})
		}
		delete(want, "a")
		assert.Equal(t, want, limits(), "namespaces without limits of their own have those of the rest")
		store.Set(policy.Default())
		c.PolicyChanged()
		assert.Empty(t, limits())
		assert.False(t, l.Limited())
		changed = 0
		c.PolicyChanged()
		assert.Equal(t, 1, changed, "no limit is another one, but a gate may be open")
	})
}
