package resources

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"
)

// clamp is what saturating means: the nearest int64.
func clamp(n *big.Int) (value int64, exact bool) {
	switch {
	case n.IsInt64():
		return n.Int64(), true
	case n.Sign() > 0:
		return math.MaxInt64, false
	default:
		return math.MinInt64, false
	}
}

var edges = []int64{math.MinInt64, math.MinInt64 + 1, -2, -1, 0, 1, 2, math.MaxInt64 - 1, math.MaxInt64}

func FuzzArithmetic(f *testing.F) {
	for _, a := range edges {
		for _, b := range edges {
			f.Add(a, b)
		}
	}
	f.Fuzz(func(t *testing.T, a, b int64) {
		want, wantExact := clamp(new(big.Int).Add(big.NewInt(a), big.NewInt(b)))
		sum, exact := Add(a, b)
		assert.Equal(t, want, sum, "%d + %d", a, b)
		assert.Equal(t, wantExact, exact, "%d + %d", a, b)
		want, _ = clamp(new(big.Int).Sub(big.NewInt(a), big.NewInt(b)))
		assert.Equal(t, want, Sub(a, b), "%d - %d", a, b)
	})
}
