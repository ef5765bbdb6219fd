package v1alpha1

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDeviceSchemaAgreesWithConstants(t *testing.T) {
	device := func(field string) map[string]any {
		return schemaOf(t, "extendedresources", "properties", "spec", "properties", field)
	}
	claim := func(path ...string) map[string]any {
		return schemaOf(t, "extendedresourceclaims", append([]string{"properties"}, path...)...)
	}
	assert.EqualValues(t, MaxProperties, device("properties")["maxProperties"])
	count := claim("spec", "properties", "count")
	assert.EqualValues(t, MaxClaimedDevices, count["maximum"])
	assert.EqualValues(t, 1, count["default"])
	assert.EqualValues(t, MaxClaimedDevices, claim("spec", "properties", "extendedResourceNames")["maxItems"])
	assert.EqualValues(t, MaxClaimedDevices, claim("status", "properties", "extendedResources")["maxItems"])
	assert.Equal(t, device("resourceName")["pattern"], claim("spec", "properties", "resourceName")["pattern"],
		"a claim names a resource as a device does")
}

func TestDevicesLeaveOutWhatIsAbsent(t *testing.T) {
	for want, object := range map[string]any{
		`{"nodeName":"n","resourceName":"a/b","deviceID":"d"}`: ExtendedResourceSpec{NodeName: "n", ResourceName: "a/b", DeviceID: "d"},
		`{"resourceName":"a/b"}`:                               ExtendedResourceClaimSpec{ResourceName: "a/b"},
		`{"key":"k","operator":"Exists"}`:                      PropertyRequirement{Key: "k", Operator: PropertyExists},
		`{}`:                                                   ExtendedResourceClaimStatus{},
	} {
		content, err := json.Marshal(object)
		require.NoError(t, err)
		assert.Equal(t, want, string(content))
	}
}
