package kubectl

import (
	"math"
	"math/rand"
	"slices"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

func TestHumanAmount(t *testing.T) {
	for _, tt := range []struct {
		name  string
		value int64
		human string
		raw   string
	}{
		{"cpu", 0, "0", "0m"},
		{"cpu", 1, "0.001", "1m"},
		{"cpu", 500, "0.5", "500m"},
		{"cpu", 4000, "4", "4000m"},
		{"cpu", 100000, "100", "100000m"},
		{"cpu", -1250, "-1.25", "-1250m"},
		{"memory", 0, "0", "0"},
		{"memory", 1023, "1023", "1023"},
		{"memory", 1024, "1Ki", "1024"},
		{"memory", 1536 << 20, "1.5Gi", "1610612736"},
		{"memory", 8 * gi, "8Gi", "8589934592"},
		{"memory", 8*gi - 1, "8Gi", "8589934591"},
		{"memory", gi - 1, "1Gi", "1073741823"},
		{"memory", 1023 << 20, "1023Mi", "1072693248"},
		{"memory", -2 * gi, "-2Gi", "-2147483648"},
		{"memory", math.MaxInt64, "8Ei", "9223372036854775807"},
		{"ephemeral-storage", 10 * gi, "10Gi", "10737418240"},
		{"hugepages-1Gi", 2 * gi, "2Gi", "2147483648"},
		{"pods", 110, "110", "110"},
		{"nvidia.com/gpu", 8, "8", "8"},
		{"example.com/bytes", 1 << 40, "1099511627776", "1099511627776"},
	} {
		assert.Equal(t, tt.human, amount(tt.name, tt.value, false))
		assert.Equal(t, tt.raw, amount(tt.name, tt.value, true))
	}
}

// TestHumanAmountIsAQuantity reads what people are shown as a quantity again: cores exactly, bytes to
// within a tenth of their unit.
func TestHumanAmountIsAQuantity(t *testing.T) {
	require.NoError(t, quick.Check(func(value int64) bool {
		cores, err := resource.ParseQuantity(amount("cpu", value%1e12, false))
		require.NoError(t, err)
		bytes, err := resource.ParseQuantity(amount("memory", value, false))
		require.NoError(t, err)
		off := math.Abs(bytes.AsApproximateFloat64()-float64(value)) / (math.Abs(float64(value)) + 1)
		return cores.MilliValue() == value%1e12 && off < 0.051
	}, &quick.Config{Rand: rand.New(rand.NewSource(1))}))
}

func TestCompareResources(t *testing.T) {
	names := []string{"pods", "nvidia.com/gpu", "ephemeral-storage", "memory", "amd.com/gpu", "cpu"}
	slices.SortFunc(names, compareResources[string])
	assert.Equal(t, []string{"cpu", "memory", "amd.com/gpu", "nvidia.com/gpu", "ephemeral-storage", "pods"}, names)
}

func TestPercent(t *testing.T) {
	for _, tt := range []struct {
		account reserver.NodeAmount
		want    string
	}{
		{reserver.NodeAmount{}, "0%"},
		{reserver.NodeAmount{Allocatable: 100, Free: 100}, "0%"},
		{reserver.NodeAmount{Allocatable: 1000, Bound: 100, Reserved: 1, Free: 899}, "10%"},
		{reserver.NodeAmount{Allocatable: 100, Bound: 101, Free: -1}, "101%"},
		{reserver.NodeAmount{Bound: 1, Free: -1}, "999%"},
		{reserver.NodeAmount{Allocatable: 1, Bound: math.MaxInt64, Free: 1 - math.MaxInt64}, "999%"},
		{reserver.NodeAmount{Allocatable: math.MaxInt64, Bound: math.MaxInt64 / 2, Free: math.MaxInt64 / 2}, "50%"},
	} {
		assert.Equal(t, tt.want, percent(tt.account), "%+v", tt.account)
	}
}
