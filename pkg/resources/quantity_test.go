package resources

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A quantity that is accepted is one Kubernetes accepts, and its arithmetic ends
// soon: else the fuzzer reports that it hangs.
func FuzzQuantity(f *testing.F) {
	for _, s := range []string{
		"1", "500m", "1.5", "4Gi", "1e3", "1E", "1Ei", "-1", "+.5e-3", "1e", "e", "",
		"1e99999999999",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q, err := ParseQuantity(s)
		if err == nil {
			q.Value()
			q.MilliValue()
			q.Cmp(resource.MustParse("1"))
			_ = q.String()
		}
	})
}

func TestParseQuantity(t *testing.T) {
	cases := map[string]struct {
		text  string
		value int64
		want  string // part of the error
	}{
		"plain":              {text: "2", value: 2},
		"rounded up":         {text: "1500m", value: 2},
		"binary suffix":      {text: "4Gi", value: 4 << 30},
		"exponent":           {text: "1e3", value: 1000},
		"suffix E":           {text: "1E", value: 1e18},
		"suffix Ei":          {text: "1Ei", value: 1 << 60},
		"negative":           {text: "-1", value: -1},
		"seconds to parse":   {text: "0.1e-30000000", want: "beyond 24"},
		"seconds to compare": {text: "1e3000000", want: "beyond 24"},
		"misread":            {text: "1e9999999999", want: "beyond 24"},
		"too long":           {text: "1" + string(make([]byte, 64)), want: "longer than 64"},
		"no number":          {text: "many", want: "write it like"},
		"empty":              {text: "", want: "write it like"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q, err := ParseQuantity(tc.text)
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.value, q.Value())
		})
	}
}

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
