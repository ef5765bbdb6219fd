package reserve_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

// A gang that does not say that it is durable has what Reservations keep for its pods, where it does not fit beside.
func TestUsesWhatIsKeptForItsPods(t *testing.T) {
	ofJob := func(name string) *v1.Pod {
		pod := newPod(name)
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "job", Controller: ptr.To(true)}}
		return pod
	}
	tests := map[string]struct {
		node    string // of the slot
		beside  string // CPUs that others use on node a, of 4
		says    bool   // that it is durable
		partial bool   // it takes what it gets
		refused bool
		durable bool
	}{
		"it fits beside it":          {node: "a", beside: "1", durable: true},
		"it does not":                {node: "a", beside: "3"},
		"it does not, and says so":   {node: "a", beside: "3", says: true, refused: true},
		"it takes what it gets":      {node: "a", beside: "3", partial: true, refused: true},
		"what is kept is not there":  {node: "b", beside: "4", refused: true},
		"another one has it already": {node: "a", beside: "used", refused: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := ofJob("p")
			w := newWorld(t, p)
			rsv := &v1alpha1.Reservation{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "kept"},
				Spec: v1alpha1.ReservationSpec{
					Consumers: &v1alpha1.ConsumerSpec{Controller: &v1alpha1.ControllerReference{Kind: "Job", Name: "job"}},
					Slots: []v1alpha1.Slot{{
						Name: "0", NodeName: tc.node, Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
					}},
				},
			}
			require.NoError(t, w.Matcher.Set(rsv))
			slots, err := convert.Slots(w.Ledger.Table(), rsv)
			require.NoError(t, err)
			require.Empty(t, w.Ledger.Reserve(ledger.Plan{Slots: slots, Mode: ledger.AllOrNothing}, time.Time{}).Rejections)
			other := newPod("other")
			other.Spec.NodeName = "a"
			if tc.beside == "used" {
				other, tc.beside = ofJob("other"), "1"
				other.Spec.NodeName = "a"
				other.Annotations = map[string]string{v1alpha1.MatchedReservationAnnotation: "ns/kept/0"}
				full := newPod("full")
				full.Spec.NodeName = "a"
				full.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("3")
				w.Ledger.ObservePod(w.info(full).Observation())
			}
			other.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(tc.beside)
			w.Ledger.ObservePod(w.info(other).Observation())

			g := onA("", p)
			g.Durable, g.OrInMemory = true, !tc.says
			if tc.partial {
				g.Mode = ledger.Partial
			}
			d, err := w.Reserve(t.Context(), g)
			require.NoError(t, err)
			assert.Equal(t, tc.refused, d.Error != "", d.Error)
			if tc.refused {
				return
			}
			assert.Equal(t, tc.durable, d.Durable)
			assert.Equal(t, tc.durable, d.InMemory == "", d.InMemory)
			kept, ok := w.Ledger.InMemory(ref(p))
			assert.Equal(t, !tc.durable, ok)
			if ok {
				assert.Equal(t, ledger.SlotRef{Namespace: "ns", Name: "kept", Slot: "0"}, kept.Within)
				assert.Contains(t, d.InMemory, "ns/kept")
			}
		})
	}
}
