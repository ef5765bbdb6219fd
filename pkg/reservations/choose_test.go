package reservations

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/fake"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

// TestChoose has the server choose among nodes of 4 CPUs: full has 1 free, half 2, empty 4 and no pods; zone is empty
// and labeled, gpu is empty and tainted, cordoned is what it says.
func TestChoose(t *testing.T) {
	taint := v1.Taint{Key: "gpu", Effect: v1.TaintEffectNoSchedule}
	cordon := v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}
	nodes := []*cluster.Node{
		{Name: "full"},
		{Name: "half"},
		{Name: "empty"},
		{Name: "zone", Labels: map[string]string{"zone": "a"}},
		{Name: "gpu", Taints: []v1.Taint{taint}},
		{Name: "cordoned", Taints: []v1.Taint{cordon}},
	}
	in := func(s v1alpha1.Slot, selector map[string]string, tolerations ...v1.Toleration) v1alpha1.Slot {
		s.NodeSelector, s.Tolerations = selector, tolerations
		return s
	}
	zone := map[string]string{"zone": "a"}
	cases := map[string]struct {
		slots []v1alpha1.Slot
		want  []string
		why   string
	}{
		"the fullest that fits": {slots: []v1alpha1.Slot{slot("a", "", 1000)}, want: []string{"full"}},
		"largest first": {
			slots: []v1alpha1.Slot{slot("a", "", 1000), slot("b", "", 2000)}, want: []string{"full", "half"},
		},
		"slots of a gang share a node": {slots: []v1alpha1.Slot{
			slot("a", "", 2000), slot("b", "", 2000),
			slot("c", "", 2000),
		}, want: []string{"half", "empty", "empty"}},
		"next to a slot with a node": {
			slots: []v1alpha1.Slot{slot("a", "", 1000), slot("b", "full", 1000)}, want: []string{"half", "full"},
		},
		"selected": {slots: []v1alpha1.Slot{in(slot("a", "", 1000), zone)}, want: []string{"zone"}},
		"tolerated": {
			slots: []v1alpha1.Slot{
				in(slot("a", "", 3500), nil, v1.Toleration{Key: "gpu", Operator: v1.TolerationOpExists}),
				slot("b", "", 4000), slot("c", "", 4000),
			},
			want: []string{"gpu", "empty", "zone"},
		},
		"on a cordoned node": {
			slots: []v1alpha1.Slot{
				in(slot("a", "", 4000), map[string]string{}, v1.Toleration{
					Key:      v1.TaintNodeUnschedulable,
					Operator: v1.TolerationOpExists,
				}),
			},
			want: []string{"cordoned"},
		},
		"too large": {
			slots: []v1alpha1.Slot{slot("a", "", 4001)},
			why: "slot a asks for 4.001 CPU: no node of 6 fits: 4 with too little cpu (at most 4 free, on empty), 1 " +
				"cordoned, 1 with a taint the slot does not tolerate",
		},
		"selected by none": {
			slots: []v1alpha1.Slot{in(slot("a", "", 1), map[string]string{"zone": "b"})},
			why:   "slot a asks for 0.001 CPU: no node of 6 fits: 6 not selected by nodeSelector",
		},
		"too many": {
			slots: []v1alpha1.Slot{in(slot("a", "", 3000), zone), in(slot("b", "", 3000), zone)},
			why: "slot b asks for 3 CPU: no node of 6 fits: 5 not selected by nodeSelector, 1 with too little cpu (at most " +
				"1 free, on zone)",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := ledger.New(ledger.Options{})
			w := &world{ledger: l, c: New(Options{
				Ledger: gatestest.Ledger(l), Client: fake.NewSimpleClientset(), Nodes: cluster.NewNodes(),
			})}
			for _, n := range nodes {
				w.observeNode(n)
			}
			l.ObserveNode(ledger.NodeObservation{Name: "cordoned", Unschedulable: true, Allocatable: request(4000).Amounts})
			for node, used := range map[string]int64{"full": 3000, "half": 2000} {
				l.ObservePod(ledger.PodObservation{Pod: podRef("on-" + node), Node: node, Request: request(used)})
			}
			rsv := newReservation("r", 0, tc.slots...)
			kept, err := convert.Slots(l.Table(), rsv)
			require.NoError(t, err)
			why := w.c.choose(l.Survey(), kept, rsv.Spec.Slots, time.Now().Add(attemptMost))
			if tc.why != "" {
				require.NotNil(t, why)
				assert.Equal(t, cause{reasonNoNodeFits, tc.why}, why.cause)
				return
			}
			require.Nil(t, why)
			var got []string
			for _, h := range kept {
				got = append(got, h.Node)
			}
			assert.Equal(t, tc.want, got)
		})
	}
}
