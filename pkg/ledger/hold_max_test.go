package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// TestAHoldAndItsPodsUseTheLargerOfBoth states the formula in numbers: a hold of
// 4 CPUs on a node of 10, pods that use it, one after another, what the node has
// free after each, and what it has free as each of them goes again.
func TestAHoldAndItsPodsUseTheLargerOfBoth(t *testing.T) {
	cases := map[string]struct {
		policy ledger.AllocatePolicy
		pods   []int64
		free   []int64 // after each pod is bound
		after  []int64 // after each pod is gone, the first first
	}{
		"smaller":                   {ledger.Aligned, []int64{1}, []int64{6}, []int64{6}},
		"equal":                     {ledger.Aligned, []int64{4}, []int64{6}, []int64{6}},
		"larger":                    {ledger.Aligned, []int64{7}, []int64{3}, []int64{6}},
		"together smaller":          {ledger.Aligned, []int64{1, 2}, []int64{6, 6}, []int64{6, 6}},
		"together equal":            {ledger.Aligned, []int64{1, 3}, []int64{6, 6}, []int64{6, 6}},
		"together larger":           {ledger.Aligned, []int64{3, 3, 1}, []int64{6, 4, 3}, []int64{6, 6, 6}},
		"larger, then smaller":      {ledger.Aligned, []int64{9, 1}, []int64{1, 0}, []int64{6, 6}},
		"restricted, smaller":       {ledger.Restricted, []int64{1, 3}, []int64{6, 6}, []int64{6, 6}},
		"once, smaller: rest freed": {ledger.Once, []int64{1}, []int64{9}, []int64{10}},
		"once, equal":               {ledger.Once, []int64{4}, []int64{6}, []int64{10}},
		"once, larger":              {ledger.Once, []int64{10}, []int64{0}, []int64{10}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := newLedger(1, 10, 100, 110)
			h := ledger.Hold{Ref: ledger.HoldRef{Namespace: "ns", Name: "r", Slot: "x"}, Node: nodeName(0), Request: request(4, 10), Policy: c.policy}
			require.Equal(t, 1, l.Reserve(ledger.Plan{Slots: []ledger.Hold{h}}, start).Granted)
			free := func() int64 {
				require.NoError(t, l.CheckInvariants())
				return l.AppendUsage(nil, []string{nodeName(0)}, []resources.Column{resources.CPU})[0].Free()
			}
			require.EqualValues(t, 6, free())
			for k, cpu := range c.pods {
				p := ledger.Placement{Pod: podRef(string(rune('a' + k))), Node: nodeName(0), Request: request(cpu, 1), Holds: []ledger.HoldRef{h.Ref}}
				before := free()
				grant, rejection := l.StartBind(&p, start)
				require.Nil(t, rejection)
				require.Equal(t, h.Ref, grant.Hold)
				require.LessOrEqual(t, free(), before, "a bind in flight freed something")
				l.Confirm(p.Pod, p.Node)
				require.Equal(t, c.free[k], free(), "after pod %d", k)
			}
			for k := range c.pods {
				l.RemovePod(podRef(string(rune('a'+k))), 1)
				require.Equal(t, c.after[k], free(), "without pod %d", k)
			}
			l.ReleaseHolds("ns", "r")
			require.EqualValues(t, 10, free(), "something was lost")
		})
	}
}
