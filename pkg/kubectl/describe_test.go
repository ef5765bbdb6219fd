package kubectl

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// Who may use a reservation is told in words, for a gang with its kind where that counts.
func TestDescribeConsumersOfGangs(t *testing.T) {
	for want, gang := range map[string]v1alpha1.GangReference{
		"pods of the gang training":         {Name: "training"},
		"pods of the volcano gang training": {Name: "training", Kind: "volcano"},
	} {
		r := ended()
		r.Spec.Consumers = &v1alpha1.ConsumerSpec{Gang: &gang}
		assert.Equal(t, want, describeConsumers(r))
	}
}

func TestDescribeLostDevices(t *testing.T) {
	s := &v1alpha1.SlotStatus{State: v1alpha1.SlotReserved, Devices: []string{"GPU-0", "GPU-1", "GPU-2"}}
	assert.Equal(t, "Reserved", describeState(s))
	s.LostDevices = []string{"GPU-0", "GPU-2"}
	assert.Equal(t, "Reserved, lost GPU-0 GPU-2", describeState(s))
}
