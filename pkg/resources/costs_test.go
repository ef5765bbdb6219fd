//go:build costs

package resources

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
)

// Nearly all pods are as the API server stores them, and each change of each of them is looked at.
func TestStoredPodsCostNothing(t *testing.T) {
	amounts := list("cpu", "1", "memory", "5")
	pod := podOf(v1.Container{Resources: v1.ResourceRequirements{Requests: amounts, Limits: amounts}})
	pod.Spec.Resources = &v1.ResourceRequirements{Requests: amounts, Limits: amounts}
	assert.Zero(t, testing.AllocsPerRun(10, func() { pod = asStored(pod) }))
}
