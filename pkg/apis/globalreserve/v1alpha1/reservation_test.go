package v1alpha1

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// What a minimal object leaves out must be left out on the wire, or the server would take a zero value
// for a wish: a ttl of 0s, for one, keeps capacity for ever.
func TestAbsentStaysAbsent(t *testing.T) {
	cpu := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	for _, tc := range []struct {
		want   string
		object any
	}{
		{
			`{"slots":[{"name":"a","requests":{"cpu":"1"}}],"preemptible":false}`,
			ReservationSpec{Slots: []Slot{{Name: "a", Requests: cpu}}},
		},
		{`{}`, ReservationStatus{}},
		{`{}`, ExtendedResourceClaimStatus{}},
		{`{"nodeName":"n","resourceName":"a/b","deviceID":"d"}`, ExtendedResourceSpec{
			NodeName: "n", ResourceName: "a/b",
			DeviceID: "d",
		}},
		{`{"resourceName":"a/b"}`, ExtendedResourceClaimSpec{ResourceName: "a/b"}},
		{`{"key":"k","operator":"Exists"}`, PropertyRequirement{Key: "k", Operator: PropertyExists}},
	} {
		content, err := json.Marshal(tc.object)
		require.NoError(t, err)
		assert.JSONEq(t, tc.want, string(content))
	}
}

func TestFinalPhases(t *testing.T) {
	for phase, final := range map[ReservationPhase]bool{
		"": false, ReservationPending: false, ReservationAvailable: false,
		ReservationSucceeded: true, ReservationExpired: true, ReservationFailed: true, ReservationPreempted: true,
	} {
		assert.Equal(t, final, phase.IsFinal(), "phase %q", phase)
	}
}

// schemaOf returns one field of the schema of a kind in manifests/crd, which is given by its plural name; a path goes
// through properties, items and additionalProperties.
func schemaOf(t *testing.T, kind string, path ...string) map[string]any {
	t.Helper()
	content, err := os.ReadFile("../../../../manifests/crd/globalreserve.io_" + kind + ".yaml")
	require.NoError(t, err)
	definition := map[string]any{}
	require.NoError(t, yaml.Unmarshal(content, &definition))
	versions, _, err := unstructured.NestedSlice(definition, "spec", "versions")
	require.NoError(t, err)
	require.Len(t, versions, 1)
	node, found, err := unstructured.NestedMap(versions[0].(map[string]any),
		append([]string{"schema", "openAPIV3Schema"}, path...)...)
	require.NoError(t, err)
	require.True(t, found, "%v", path)
	return node
}

func TestSchemaAgreesWithConstants(t *testing.T) {
	spec := func(field string) map[string]any {
		return schemaOf(t, "reservations", "properties", "spec", "properties", field)
	}
	assert.EqualValues(t, MaxSlots, spec("slots")["maxItems"])
	assert.EqualValues(t, MaxSlots, schemaOf(t, "reservations", "properties", "status", "properties", "slots")["maxItems"])
	assert.Equal(t, "map", spec("slots")["x-kubernetes-list-type"])
	assert.Equal(t, []any{"Once", "Aligned", "Restricted"}, spec("allocatePolicy")["enum"])
	assert.Equal(t, string(AllocateOnce), spec("allocatePolicy")["default"])
	assert.Equal(t, false, spec("preemptible")["default"])
	assert.NotContains(t, spec("ttl"), "default")

	limit, err := time.ParseDuration("87600h")
	require.NoError(t, err)
	assert.Equal(t, MaxTTL, limit)
	rules, _, err := unstructured.NestedSlice(spec("ttl"), "x-kubernetes-validations")
	require.NoError(t, err)
	assert.Equal(t, "duration(self) <= duration('87600h')", rules[0].(map[string]any)["rule"])
}

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

var fiveDigits = regexp.MustCompile(`[0-9]{5}`)

// What the schema's patterns admit, Go can read: an object that a client cannot decode stops every
// informer of the kind.
func TestPatternsAdmitOnlyWhatGoReads(t *testing.T) {
	slots := []string{
		"properties", "spec", "properties", "slots", "items", "properties", "requests",
		"additionalProperties",
	}
	quantity, ok := schemaOf(t, "reservations", slots...)["pattern"].(string)
	require.True(t, ok)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(quantity).Draw(t, "quantity")
		parsed, err := resource.ParseQuantity(text)
		require.NoError(t, err)
		require.NotPanics(t, func() { parsed.Value(); parsed.MilliValue(); _ = parsed.String() })
	})
	// Beyond what an int64 of nanoseconds holds a rule of the schema refuses it, which test/crd shows.
	small := func(text string) bool { return len(text) <= 32 && !fiveDigits.MatchString(text) }
	duration, ok := schemaOf(t, "reservations", "properties", "spec", "properties", "ttl")["pattern"].(string)
	require.True(t, ok)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(duration).Filter(small).Draw(t, "ttl")
		var parsed metav1.Duration
		require.NoError(t, json.Unmarshal([]byte(`"`+text+`"`), &parsed))
	})
}
