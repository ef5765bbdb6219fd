package convert

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

var created = time.Date(2030, time.January, 2, 3, 4, 5, 0, time.UTC)

func reservation(change func(*v1alpha1.Reservation)) *v1alpha1.Reservation {
	rsv := &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", CreationTimestamp: metav1.Time{Time: created}},
		Spec: v1alpha1.ReservationSpec{Slots: []v1alpha1.Slot{
			{Name: "a", NodeName: "node-1", Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
			{Name: "b", Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}},
		}},
	}
	change(rsv)
	return rsv
}

func TestSlots(t *testing.T) {
	priority := int32(7)
	table := resources.NewTable()
	got, err := Slots(table, reservation(func(rsv *v1alpha1.Reservation) {
		rsv.Spec.Priority, rsv.Spec.Preemptible, rsv.Spec.SchedulerName = &priority, true, "s"
		rsv.Spec.AllocatePolicy = v1alpha1.AllocateAligned
		rsv.Spec.Slots[0].Pod = &v1alpha1.PodReference{Name: "p", UID: "u"}
		rsv.Spec.Slots[0].HostPorts = []v1alpha1.HostPort{{Protocol: "TCP", Port: 80}}
	}))
	require.NoError(t, err)
	require.Len(t, got, 2)
	request := got[0].Request
	assert.EqualValues(t, 1000, request.Value(resources.CPU))
	assert.EqualValues(t, 1, request.Value(resources.Pods))
	assert.Equal(t, []resources.HostPort{{PortKey: resources.PortKey{Protocol: "TCP", Port: 80}, IP: "0.0.0.0"}},
		request.Ports)
	got[0].Request = nil
	assert.Equal(t, ledger.Slot{
		Ref: ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "a"}, Node: "node-1", Policy: ledger.Aligned,
		Scheduler: "s", Priority: 7, Preemptible: true, Pod: ledger.PodRef{Namespace: "ns", Name: "p", UID: "u"},
	}, got[0])
	assert.Empty(t, got[1].Node, "the server chooses")

	plain, err := Slots(table, reservation(func(*v1alpha1.Reservation) {}))
	require.NoError(t, err)
	assert.Equal(t, ledger.Once, plain[0].Policy)

	_, err = Slots(table, reservation(func(rsv *v1alpha1.Reservation) {
		rsv.Spec.Slots[1].Requests = corev1.ResourceList{"cpu": resource.MustParse("10E")}
	}))
	require.ErrorContains(t, err, "slot b: the request of 10E for cpu is too large")
}

func TestGrantedAndDeadline(t *testing.T) {
	expires := created.Add(time.Hour)
	phase := func(p v1alpha1.ReservationPhase) v1alpha1.ReservationStatus {
		return v1alpha1.ReservationStatus{Phase: p}
	}
	available, forEver := phase(v1alpha1.ReservationAvailable), phase(v1alpha1.ReservationAvailable)
	available.ExpiresAt, forEver.AvailableAt = &metav1.Time{Time: expires}, &metav1.Time{Time: created}
	cases := map[string]struct {
		madeBy   string
		ttl      time.Duration // negative where the object says none
		status   v1alpha1.ReservationStatus
		granted  bool
		deadline time.Time
	}{
		"new, of a person":       {ttl: time.Minute},
		"made by something else": {madeBy: "me", ttl: time.Minute},
		"new, of the server": {
			madeBy: MadeByReserve, ttl: time.Minute, granted: true, deadline: created.Add(time.Minute),
		},
		"new, of the server, with a broken second": {
			madeBy: MadeByReserve, ttl: 1500 * time.Millisecond, granted: true, deadline: created.Add(2 * time.Second),
		},
		"new, of the server, for ever": {madeBy: MadeByReserve, granted: true},
		"available":                    {ttl: time.Minute, status: available, granted: true, deadline: expires},
		"available for ever":           {madeBy: MadeByReserve, ttl: time.Minute, status: forEver, granted: true},
		"of the server, but not granted again": {
			madeBy: MadeByReserve, ttl: time.Minute, status: phase(v1alpha1.ReservationPending),
			deadline: created.Add(time.Minute),
		},
		"ended": {madeBy: MadeByReserve, ttl: -1, status: phase(v1alpha1.ReservationExpired)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rsv := reservation(func(rsv *v1alpha1.Reservation) {
				rsv.Labels, rsv.Status = map[string]string{MadeByLabel: tc.madeBy}, tc.status
				if tc.ttl >= 0 {
					rsv.Spec.TTL = &metav1.Duration{Duration: tc.ttl}
				}
			})
			assert.Equal(t, tc.granted, Granted(rsv))
			assert.Equal(t, tc.deadline, Deadline(rsv))
		})
	}
}

// What the server writes down of its slots, it reads back as the same slots.
func TestObjectIsTheReverseOfSlots(t *testing.T) {
	table := resources.NewTable()
	gpu, _ := table.Offer("example.com/gpu")
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(1, 3).Draw(t, "slots")
		want := make([]ledger.Slot, count)
		policy := rapid.SampledFrom([]ledger.AllocatePolicy{ledger.Once, ledger.Aligned, ledger.Restricted}).Draw(t, "policy")
		priority := rapid.Int32().Draw(t, "priority")
		ttl := time.Duration(rapid.IntRange(1, 1000).Draw(t, "ttl")) * time.Second
		for i := range want {
			req := &resources.Request{ToleratesUnschedulable: rapid.Bool().Draw(t, "tolerates")}
			req.Amounts = []resources.Amount{
				{Column: resources.CPU, Value: rapid.Int64Range(1, 1e6).Draw(t, "cpu")},
				{Column: resources.Pods, Value: 1},
				{Column: gpu, Value: rapid.Int64Range(1, 8).Draw(t, "gpu")},
			}
			want[i] = ledger.Slot{
				Ref: ledger.SlotRef{Namespace: "ns", Name: "r", Slot: string(rune('a' + i))}, Node: "node-1", Request: req,
				Policy: policy, Scheduler: "s", Priority: priority, Deadline: created.Add(ttl),
			}
			if rapid.Bool().Draw(t, "for a pod") {
				want[i].Pod = ledger.PodRef{Namespace: "ns", Name: "p", UID: "u"}
			}
		}
		rsv := Object(table, want, ttl, MadeByReserve)
		rsv.CreationTimestamp = metav1.Time{Time: created}
		got, err := Slots(table, rsv)
		require.NoError(t, err)
		require.Equal(t, want, got)
		granted, err := GrantedSlots(table, rsv)
		require.NoError(t, err)
		require.Equal(t, want, granted)
	})
}

// FuzzSlots: whatever an object says, its status included, it is slots of the ledger or an error.
func FuzzSlots(f *testing.F) {
	for _, seed := range []string{
		`{}`,
		`{"metadata":{"namespace":"ns","name":"r","uid":"u"},"spec":{"slots":[{"name":"a","nodeName":"n","requests":{"cpu":"1"}}]}}`,
		`{"spec":{"slots":[{"requests":{"cpu":"-1"}},{"requests":{"cpu":"99999999999999999999"}}]},"status":{"slots":[{},{"nodeName":"x"}]}}`,
		`{"spec":{"slots":[{"name":"a"},{"name":"a"}],"ttl":"-1h"},"status":{"phase":"Available","slots":[{"name":"b","phase":"Consumed"}]}}`,
		`{"spec":{"ttl":"99999999h"},"status":{"expiresAt":"9999-12-31T23:59:59Z"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var rsv v1alpha1.Reservation
		if len(data) > 64<<10 || json.Unmarshal(data, &rsv) != nil {
			return
		}
		table := resources.NewTable()
		if slots, err := Slots(table, &rsv); err == nil {
			assert.LessOrEqual(t, len(slots), len(rsv.Spec.Slots))
		}
		if slots, err := GrantedSlots(table, &rsv); err == nil {
			assert.LessOrEqual(t, len(slots), len(rsv.Spec.Slots))
		}
		_ = Deadline(&rsv)
		_ = Granted(&rsv)
	})
}
