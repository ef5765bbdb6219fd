package resources

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
)

// What would be filled in is counted as what it comes to, also where it makes no sense.
func TestWhatIsFilledInIsChecked(t *testing.T) {
	pod := podOf(v1.Container{Resources: v1.ResourceRequirements{Limits: list("cpu", "-1")}})
	_, err := ForIncomingPod(NewTable(), pod)
	assert.ErrorContains(t, err, "spec.containers[0].resources.requests[cpu] is -1")
	_, _, err = ForResizedPod(NewTable(), podOf(), pod)
	assert.ErrorContains(t, err, "spec.containers[0].resources.requests[cpu] is -1")
}
