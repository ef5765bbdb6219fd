package gates

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/policy"
)

func TestCallerIsListed(t *testing.T) {
	rules := policy.Default()
	rules.Schedulers = []policy.Scheduler{
		{Name: "batch", Callers: []string{"alice"}, Limits: map[v1.ResourceName]policy.Amount{v1.ResourceCPU: "50%"}},
		{Name: "listed", Callers: []string{"alice"}},
	}
	gates := New(policy.NewStore(rules, time.Minute))
	cases := map[string]struct {
		scheduler, caller string
		refused           bool
	}{
		"listed":                          {scheduler: "batch", caller: "alice"},
		"not listed":                      {scheduler: "batch", caller: "bob", refused: true},
		"by plain HTTP":                   {scheduler: "batch", caller: ledger.Trusted},
		"the server itself":               {scheduler: "batch"},
		"another scheduler":               {scheduler: "other", caller: "bob"},
		"a scheduler that has no limits":  {scheduler: "listed", caller: "bob"},
		"a reservation without scheduler": {caller: "bob"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := ledger.PodRef{Namespace: "ns", Name: "p"}
			err := gates.Refuse(&ledger.Placement{Pod: pod, Node: "n", Scheduler: tc.scheduler, Caller: tc.caller})
			if !tc.refused {
				require.NoError(t, err)
				return
			}
			var e *Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, Error{
				Outcome: Refused, Pod: pod, Node: "n", Why: `caller "bob" may not act for scheduler "batch", which has limits: ` +
					`the policy file has to list it among the scheduler's callers`,
			}, *e)
		})
	}
}
