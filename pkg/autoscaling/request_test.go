package autoscaling

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/policy"
)

func reservation(name string, slots ...v1alpha1.Slot) *v1alpha1.Reservation {
	return &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("0b5f2c3e-0000-0000-0000-000000000001")},
		Spec:       v1alpha1.ReservationSpec{Slots: slots},
	}
}

func slot(name, cpu string, change ...func(*v1alpha1.Slot)) v1alpha1.Slot {
	s := v1alpha1.Slot{Name: name, Requests: v1.ResourceList{"cpu": resource.MustParse(cpu)}}
	for _, f := range change {
		f(&s)
	}
	return s
}

func TestPodSets(t *testing.T) {
	many := make([]v1alpha1.Slot, maxPodSets+1)
	for i := range many {
		many[i] = slot(fmt.Sprint(i), fmt.Sprint(i+1))
	}
	onNode := func(s *v1alpha1.Slot) { s.NodeName = "n" }
	withDevices := func(s *v1alpha1.Slot) { s.Devices = []v1alpha1.SlotDevices{{ResourceName: "a.b/c"}} }
	withPort := func(s *v1alpha1.Slot) { s.HostPorts = []v1alpha1.HostPort{{Port: 80, Protocol: "TCP"}} }
	tests := map[string]struct {
		slots  []v1alpha1.Slot
		counts []int64
		why    string
	}{
		"one": {[]v1alpha1.Slot{slot("a", "1")}, []int64{1}, ""},
		"as large, written otherwise": {
			[]v1alpha1.Slot{slot("a", "1"), slot("b", "2"), slot("c", "1000m")},
			[]int64{2, 1},
			"",
		},
		"with a port":             {[]v1alpha1.Slot{slot("a", "1"), slot("b", "1", withPort)}, []int64{1, 1}, ""},
		"on a node":               {[]v1alpha1.Slot{slot("a", "1"), slot("b", "1", onNode)}, nil, "slot b is for node n"},
		"devices":                 {[]v1alpha1.Slot{slot("a", "1", withDevices)}, nil, "slot a keeps devices"},
		"as many as there may be": {many[1:], make([]int64, maxPodSets), ""},
		"too many":                {many, nil, "more than 32"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			sets, why := podSets(reservation("r", tt.slots...))
			require.Contains(t, why, tt.why)
			assert.Equal(t, tt.why == "", why == "")
			require.Len(t, sets, len(tt.counts))
			for i, count := range tt.counts {
				assert.Equal(t, max(count, 1), sets[i].count)
			}
		})
	}
}

// The name of a request says whose it is, and another of the reservation's name has another one.
func TestRequestIsOfItsReservation(t *testing.T) {
	for _, name := range []string{"r", strings.Repeat("a", 149) + "." + strings.Repeat("b", 100)} {
		rsv := reservation(name, slot("a", "1"))
		sets, _ := podSets(rsv)
		request, err := newRequest(rsv, sets, &policy.ProvisioningRequests{ClassName: "c"})
		require.NoError(t, err)
		assert.Equal(t, requestName(rsv), request.GetName())
		assert.Empty(t, validation.IsDNS1123Subdomain(podTemplates(rsv, sets)[0].Name))
		assert.Equal(t, rsv.UID, ownerOf(request).UID)
		again := reservation(name)
		again.UID = "0b5f2c3e-0000-0000-0000-000000000002"
		assert.NotEqual(t, requestName(rsv), requestName(again))

		request.SetName("made-by-somebody")
		assert.Empty(t, ownerOf(request).UID, "whatever its owner is said to be")
	}
}

func TestAnswerOf(t *testing.T) {
	condition := func(kind, status string) any {
		return map[string]any{"type": kind, "status": status, "reason": "Why", "message": "because"}
	}
	tests := map[string]struct {
		status any
		want   string
	}{
		"none":     {nil, "Requested"},
		"nonsense": {map[string]any{"conditions": "x"}, "Requested"},
		"accepted": {
			map[string]any{"conditions": []any{condition("Accepted", "True"), condition("Provisioned", "False")}},
			"Accepted",
		},
		"all": {
			map[string]any{"conditions": []any{condition("Accepted", "True"), condition("Provisioned", "True")}},
			"Provisioned",
		},
		"failed": {map[string]any{"conditions": []any{condition("Accepted", "True"), condition("Failed", "True")}}, "Failed"},
		"taken off": {map[string]any{"conditions": []any{
			condition("Provisioned", "True"),
			condition("CapacityRevoked", "True"),
		}}, "CapacityRevoked"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			reason, message := answerOf(
				&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "q"}, "status": tt.status}},
			)
			assert.Equal(t, tt.want, reason)
			assert.Contains(t, message, "ProvisioningRequest q")
			assert.Equal(t, reason != "Requested", strings.Contains(message, "Why: because"))
		})
	}
}
