package resources

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
)

func TestShortage(t *testing.T) {
	const gi = 1 << 30
	for _, tt := range []struct {
		name        v1.ResourceName
		asked, free int64
		want        [2]string
	}{
		{v1.ResourceCPU, 4000, 0, [2]string{"4 CPU", "0"}},
		{v1.ResourceCPU, 1500, -250, [2]string{"1.5 CPU", "-0.25"}},
		{v1.ResourceMemory, 4 * gi, gi + gi/2, [2]string{"4Gi", "1.5Gi"}},
		{v1.ResourceMemory, 4 * gi, 4*gi - 1024, [2]string{"4Gi", "4194303Ki"}},
		{v1.ResourceMemory, 4*gi + 1, 4 * gi, [2]string{"4294967297", "4Gi"}},
		{v1.ResourceEphemeralStorage, 10 * gi, 0, [2]string{"10Gi", "0"}},
		{"hugepages-2Mi", 4 << 20, 2 << 20, [2]string{"4Mi", "2Mi"}},
		{v1.ResourcePods, 1, 0, [2]string{"1", "0"}},
		{"nvidia.com/gpu", 8, 3, [2]string{"8", "3"}},
	} {
		asked, free := Shortage(tt.name, tt.asked, tt.free)
		assert.Equal(t, tt.want, [2]string{asked, free}, "%s %d %d", tt.name, tt.asked, tt.free)
	}
}

func TestRequestText(t *testing.T) {
	table := NewTable()
	gpu, ok := table.Use("nvidia.com/gpu")
	assert.True(t, ok)
	r := &Request{
		Amounts:  []Amount{{CPU, 2500}, {Memory, 2 << 30}, {Pods, 1}, {gpu, 1}},
		Unlisted: []NamedAmount{{"example.com/x", 3}},
	}
	assert.Equal(t, "2.5 CPU, 2Gi memory, 1 nvidia.com/gpu, 3 example.com/x", r.Text(table))
	assert.Equal(t, "no amounts", (&Request{Amounts: []Amount{{Pods, 1}}}).Text(table))
}
