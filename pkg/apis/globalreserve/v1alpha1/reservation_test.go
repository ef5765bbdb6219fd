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
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

const written = `
apiVersion: globalreserve.io/v1alpha1
kind: Reservation
metadata: {name: training-7, namespace: ml}
spec:
  schedulerName: batch-scheduler
  priority: 0
  preemptible: true
  ttl: 90m
  allocatePolicy: Restricted
  consumers:
    selector: {matchLabels: {job: training-7}}
  slots:
  - name: worker-0
    nodeName: node-7
    tolerations: [{key: gpu, operator: Exists}]
    requests: {cpu: 4000m, memory: 8Gi, example.com/gpu: 1}
    hostPorts: [{hostIP: 10.0.0.1, protocol: UDP, port: 53}]
    pod: {name: worker-0, uid: u-0}
  - name: worker-1
    nodeSelector: {zone: a}
    requests: {cpu: 0}
status:
  phase: Available
  observedGeneration: 3
  nodeName: node-7 +1
  consumed: 1/2
  availableAt: "2030-01-01T00:00:00Z"
  expiresAt: "2030-01-01T01:30:00Z"
  conditions:
  - {type: Available, status: "True", reason: Reserved, message: "", lastTransitionTime: "2030-01-01T00:00:00Z"}
  slots:
  - {name: worker-0, nodeName: node-7, nodeUID: n-7, state: Consumed, pods: [{name: worker-0, uid: u-0}]}
  - {name: worker-1, nodeName: node-8, nodeUID: n-8, state: Reserved}
`

func decoded(t *testing.T) *Reservation {
	t.Helper()
	reservation := &Reservation{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(written), reservation))
	return reservation
}

func TestDecode(t *testing.T) {
	got := decoded(t)
	assert.Equal(t, 90*time.Minute, got.Spec.TTL.Duration)
	require.NotNil(t, got.Spec.Priority)
	assert.Zero(t, *got.Spec.Priority, "0 is a priority and not an absent one")
	assert.Equal(t, AllocateRestricted, got.Spec.AllocatePolicy)
	require.Len(t, got.Spec.Slots, 2)
	assert.EqualValues(t, 4000, got.Spec.Slots[0].Requests.Cpu().MilliValue())
	assert.EqualValues(t, 8<<30, got.Spec.Slots[0].Requests.Memory().Value())
	assert.Equal(t, HostPort{HostIP: "10.0.0.1", Protocol: corev1.ProtocolUDP, Port: 53}, got.Spec.Slots[0].HostPorts[0])
	assert.Equal(t, ReservationAvailable, got.Status.Phase)
	assert.Equal(t, SlotConsumed, got.Status.Slots[0].State)
}

func TestRoundTrip(t *testing.T) {
	want := decoded(t)
	content, err := json.Marshal(want)
	require.NoError(t, err)
	got := &Reservation{}
	require.NoError(t, json.Unmarshal(content, got))
	again, err := json.Marshal(got)
	require.NoError(t, err)
	assert.JSONEq(t, string(content), string(again))
	assert.True(t, want.Status.ExpiresAt.Equal(got.Status.ExpiresAt))
	assert.Equal(t, *want.Spec.TTL, *got.Spec.TTL)
}

// What a minimal object leaves out must be left out on the wire, or the server would take a zero value
// for a wish: a ttl of 0s, for one, keeps room for ever.
func TestAbsentStaysAbsent(t *testing.T) {
	content, err := json.Marshal(&Reservation{Spec: ReservationSpec{Slots: []Slot{{
		Name: "a", Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
	}}}})
	require.NoError(t, err)
	var fields struct {
		Spec   map[string]any `json:"spec"`
		Status map[string]any `json:"status"`
	}
	require.NoError(t, json.Unmarshal(content, &fields))
	assert.Equal(t, map[string]any{
		"preemptible": false,
		"slots":       []any{map[string]any{"name": "a", "requests": map[string]any{"cpu": "1"}}},
	}, fields.Spec)
	assert.Empty(t, fields.Status)
}

func TestDeepCopySharesNothing(t *testing.T) {
	original := decoded(t)
	clone := original.DeepCopy()
	clone.Spec.TTL.Duration = time.Second
	*clone.Spec.Priority = 7
	clone.Spec.Consumers.Selector.MatchLabels["job"] = "other"
	clone.Spec.Slots[0].Requests[corev1.ResourceCPU] = resource.MustParse("9")
	clone.Spec.Slots[0].Pod.UID = "other"
	clone.Spec.Slots[1].NodeSelector["zone"] = "b"
	clone.Status.Slots[0].Pods[0].Name = "other"
	clone.Status.ExpiresAt.Time = time.Time{}
	clone.Status.Conditions[0].Reason = "Other"
	assert.Equal(t, decoded(t), original)
}

func TestScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, AddToScheme(scheme))
	for kind, object := range map[string]runtime.Object{
		"Reservation": &Reservation{}, "ReservationList": &ReservationList{},
		"ExtendedResource": &ExtendedResource{}, "ExtendedResourceList": &ExtendedResourceList{},
		"ExtendedResourceClaim": &ExtendedResourceClaim{}, "ExtendedResourceClaimList": &ExtendedResourceClaimList{},
	} {
		kinds, _, err := scheme.ObjectKinds(object)
		require.NoError(t, err)
		require.Len(t, kinds, 1)
		assert.Equal(t, SchemeGroupVersion.WithKind(kind), kinds[0])
		assert.Equal(t, Kind(kind), kinds[0].GroupKind())
	}
	assert.Equal(t, "reservations.globalreserve.io", Resource("reservations").String())
}

func TestFinalPhases(t *testing.T) {
	for phase, final := range map[ReservationPhase]bool{
		"": false, ReservationPending: false, ReservationAvailable: false,
		ReservationSucceeded: true, ReservationExpired: true, ReservationFailed: true, ReservationPreempted: true,
	} {
		assert.Equal(t, final, phase.IsFinal(), "phase %q", phase)
	}
}

// schemaAt returns one field of Reservation's schema in manifests/crd; a path goes through properties,
// items and additionalProperties.
func schemaAt(t *testing.T, path ...string) map[string]any {
	t.Helper()
	return schemaOf(t, "reservations", path...)
}

// schemaOf returns one field of the schema of a kind, which is given by its plural name.
func schemaOf(t *testing.T, kind string, path ...string) map[string]any {
	t.Helper()
	content, err := os.ReadFile("../../../../manifests/crd/globalreserve.io_" + kind + ".yaml")
	require.NoError(t, err)
	definition := map[string]any{}
	require.NoError(t, yaml.Unmarshal(content, &definition))
	versions, _, err := unstructured.NestedSlice(definition, "spec", "versions")
	require.NoError(t, err)
	require.Len(t, versions, 1)
	node, found, err := unstructured.NestedMap(versions[0].(map[string]any), append([]string{"schema", "openAPIV3Schema"}, path...)...)
	require.NoError(t, err)
	require.True(t, found, "%v", path)
	return node
}

func TestSchemaAgreesWithConstants(t *testing.T) {
	spec := func(field string, more ...string) map[string]any {
		return schemaAt(t, append([]string{"properties", "spec", "properties", field}, more...)...)
	}
	assert.EqualValues(t, MaxSlots, spec("slots")["maxItems"])
	assert.EqualValues(t, MaxSlots, schemaAt(t, "properties", "status", "properties", "slots")["maxItems"])
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

var fiveDigits = regexp.MustCompile(`[0-9]{5}`)

// What the schema's patterns admit, Go can read: an object that a client cannot decode stops every
// informer of the kind.
func TestPatternsAdmitOnlyWhatGoReads(t *testing.T) {
	slots := []string{"properties", "spec", "properties", "slots", "items", "properties", "requests", "additionalProperties"}
	quantity, ok := schemaAt(t, slots...)["pattern"].(string)
	require.True(t, ok)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(quantity).Draw(t, "quantity")
		parsed, err := resource.ParseQuantity(text)
		require.NoError(t, err)
		require.NotPanics(t, func() { parsed.Value(); parsed.MilliValue(); _ = parsed.String() })
	})
	// Beyond what an int64 of nanoseconds holds a rule of the schema refuses it, which test/crd shows.
	small := func(text string) bool { return len(text) <= 32 && !fiveDigits.MatchString(text) }
	duration, ok := schemaAt(t, "properties", "spec", "properties", "ttl")["pattern"].(string)
	require.True(t, ok)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(duration).Filter(small).Draw(t, "ttl")
		var parsed metav1.Duration
		require.NoError(t, json.Unmarshal([]byte(`"`+text+`"`), &parsed))
	})
}
