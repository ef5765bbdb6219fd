//go:build costs

package devices

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/costs"
)

func TestFitsAllocatesNothing(t *testing.T) {
	p := bigNode(256)
	free := p.Schedulable()
	requests := append(contended(t), contended(t)...)
	require.Equal(t, Fits, p.Fits(free, requests).Reason)
	assert.Zero(t, testing.AllocsPerRun(100, func() { p.Fits(free, requests) }))
}

// The largest claim that the API server takes is read with memory of a few times its size.
func TestLargestClaim(t *testing.T) {
	spec := specOf(t, `selector: {}`)
	size := 0
	for i := range 32 {
		r := v1alpha1.PropertyRequirement{Key: "model", Operator: v1alpha1.PropertyNotIn}
		for k := range 64 {
			r.Values = append(r.Values, fmt.Sprintf("%0253d", i*64+k))
			size += len(r.Values[k])
		}
		spec.Selector.MatchExpressions = append(spec.Selector.MatchExpressions, r)
	}
	before := allocated()
	_, err := Compile(field.NewPath("spec"), &spec)
	require.NoError(t, err)
	assert.Less(t, allocated()-before, uint64(12*size))
}

// TestCosts: the ledger is locked while devices are chosen, also where many claims want first what others need.
func TestCosts(t *testing.T) {
	const devices = 256
	var all []Device
	var requests []*Request
	for i := range devices {
		all = append(all, gpuOf(fmt.Sprintf("gpu-%03d", i), "number", fmt.Sprint(i)))
		request := ``
		if i >= devices/2 { // one of those that come first by name
			request = fmt.Sprintf(`selector: {matchProperties: {number: "%d"}}`, i-devices/2)
		}
		requests = append(requests, requestOf(t, request))
	}
	p := NewPool(all)
	free := p.Schedulable()
	costs.Check(t, "choose 256 contended devices", func() {
		_, v := p.Choose(free, nil, requests)
		require.Equal(t, Fits, v.Reason)
	})
}

// allocated is how much memory was taken so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// A shape of request that is new to a pool costs no more than the first, however many were made up before. All nodes
// are asked for it while nothing can be decided.
func TestNewShapesCostLittle(t *testing.T) {
	const shapes, most = 1024, 1 << 10
	p := bigNode(8)
	free, requests := p.Schedulable(), make([]*Request, shapes)
	for i := range requests {
		requests[i] = requestOf(t, fmt.Sprintf(`selector: {matchExpressions: [{key: memory, operator: Gt, values: ["%d"]}]}`,
			i))
	}
	before := allocated()
	for _, r := range requests {
		require.Equal(t, Fits, p.Fits(free, []*Request{r}).Reason)
	}
	assert.Less(t, (allocated()-before)/shapes, uint64(most))
}
