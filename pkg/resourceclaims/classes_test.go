package resourceclaims

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMappedResources follows what DeviceClasses map to devices: by the name that they give, and by their own.
func TestMappedResources(t *testing.T) {
	class := func(name string, resource *string) *resourcev1.DeviceClass {
		return &resourcev1.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       resourcev1.DeviceClassSpec{ExtendedResourceName: resource},
		}
	}
	gpu, other := "nvidia.com/gpu", "example.com/gpu"
	inWorld(t, nil, func(w *world) {
		kind := w.client.ResourceV1().DeviceClasses()
		step := func(err error) {
			require.NoError(t, err)
			synctest.Wait()
		}
		_, err := kind.Create(t.Context(), class("nics", nil), metav1.CreateOptions{})
		step(err)
		_, err = kind.Update(t.Context(), class("gpus", &other), metav1.UpdateOptions{})
		step(err)
		step(kind.Delete(t.Context(), "gpus", metav1.DeleteOptions{}))
		const prefix = "deviceclass.resource.kubernetes.io/"
		assert.Equal(t, [][]string{
			{prefix + "gpus", gpu},
			{prefix + "gpus", prefix + "nics", gpu},
			{prefix + "gpus", prefix + "nics", other},
			{prefix + "nics"},
		}, w.told)
	}, func(w *world) { require.NoError(t, w.client.Tracker().Add(class("gpus", &gpu))) })
}
