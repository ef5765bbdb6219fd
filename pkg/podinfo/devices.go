package podinfo

import (
	"slices"
	"strings"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
)

// DeviceMarks are what a pod's annotations say of devices.
type DeviceMarks struct {
	// Claims are the names of the pod's claims, in the order they are written.
	Claims []string
	// Err says what is wrong with the annotation where it cannot be read; Claims is nil
	// then.
	Err string
	// Given is what the pod was bound with: the annotation extended-resources as it was
	// written. It counts once the pod has a node.
	Given string
}

// Same reports whether two pods, or two states of one, say the same; either may be nil.
func (m *DeviceMarks) Same(o *DeviceMarks) bool {
	if m == nil || o == nil {
		return m == o
	}
	return m.Err == o.Err && m.Given == o.Given && slices.Equal(m.Claims, o.Claims)
}

// ReadDeviceMarks reads the annotations of a pod; nil means that it claims no devices,
// as nearly all pods do not.
func ReadDeviceMarks(annotations map[string]string) *DeviceMarks {
	text := annotations[v1alpha1.ExtendedResourceClaimsAnnotation]
	if text == "" {
		return nil
	}
	names, err := devices.ClaimNames(text)
	switch {
	case err != nil:
		return &DeviceMarks{Err: err.Error(), Given: annotations[v1alpha1.ExtendedResourcesAnnotation]}
	case len(names) == 0:
		return nil
	}
	return &DeviceMarks{Claims: names, Given: annotations[v1alpha1.ExtendedResourcesAnnotation]}
}

// Given adds to the annotations that are written with the pod's binding the devices it
// was given. A pod that was created with that annotation, as a copy of another one,
// gets its own in place of it. annotations may be nil, and is not changed where the pod
// claims no devices.
func (i *Info) Given(annotations map[string]string, ids []string) map[string]string {
	if i.Devices == nil {
		return annotations
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.ExtendedResourcesAnnotation] = strings.Join(ids, ",")
	return annotations
}
