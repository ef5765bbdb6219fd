package arbiter

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

func TestNodeScoreExtremes(t *testing.T) {
	huge := int64(math.MaxInt64)
	for _, u := range []ledger.Usage{
		{Allocatable: 0, Used: 5},
		{Allocatable: 1, Used: 0},
		{Allocatable: huge, Used: huge},
		{Allocatable: 1, Used: huge},
		{Allocatable: huge, Used: 0},
		{Allocatable: -1, Used: 1},
		{Allocatable: 10, Used: -10},
	} {
		for _, least := range []bool{false, true} {
			for _, request := range []int64{0, 1, huge} {
				got := nodeScore([]factor{{weight: 100, request: request}}, []ledger.Usage{u}, least, false)
				assert.GreaterOrEqual(t, got, extenderv1.MinExtenderPriority, "%+v", u)
				assert.LessOrEqual(t, got, extenderv1.MaxExtenderPriority, "%+v", u)
			}
		}
	}
	assert.Equal(t, int64(10), nodeScore([]factor{{1, 1}}, []ledger.Usage{{Allocatable: 4, Used: 3}}, false, false))
	assert.Equal(t, int64(0), nodeScore([]factor{{1, 2}}, []ledger.Usage{{Allocatable: 4, Used: 3}}, true, false))
}
