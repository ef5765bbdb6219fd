package crd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const nvidia = "nvidia.com/gpu"

// identified is a device by what nobody may change of it.
func identified(node, resource, id string) string {
	return fmt.Sprintf("spec: {nodeName: %s, resourceName: %s, deviceID: %s}", node, resource, id)
}

// device is a good device but for what is added.
func device(more string) string {
	return "spec: {nodeName: node-1, resourceName: nvidia.com/gpu, deviceID: GPU-0, " + more + "}"
}

func manyProperties(count int) string {
	var properties strings.Builder
	for i := range count {
		fmt.Fprintf(&properties, "example.com/property-%d: v, ", i)
	}
	return "properties: {" + properties.String() + "}"
}

const (
	badName      = `a property's name has 1 to 317 characters`
	badValue     = `a property's value has at most 253 characters`
	needNumber   = `Gt and Lt need one value that is a number or a quantity`
	tooManyNames = `extendedResourceNames names more devices than count asks for`
	fixedDevice  = " is immutable: delete the device and create another"
)

var refusedDevices = map[string]refusal{
	"empty object":           {``, `spec: Required value`},
	"no node":                {`spec: {resourceName: nvidia.com/gpu, deviceID: d}`, `spec.nodeName: Required value`},
	"no resource":            {`spec: {nodeName: node-1, deviceID: d}`, `spec.resourceName: Required value`},
	"no ID":                  {`spec: {nodeName: node-1, resourceName: nvidia.com/gpu}`, `spec.deviceID: Required value`},
	"empty node":             {identified(`""`, nvidia, "d"), `spec.nodeName: Invalid value: ""`},
	"bad node":               {identified("a/b", nvidia, "d"), `spec.nodeName: Invalid value: "a/b"`},
	"resource without slash": {identified("node-1", "gpu", "d"), `spec.resourceName: Invalid value: "gpu"`},
	"empty ID":               {identified("node-1", nvidia, `""`), `spec.deviceID: Invalid value: ""`},
	"ID with a comma":        {identified("node-1", nvidia, `"a,b"`), `spec.deviceID: Invalid value: "a,b"`},
	"ID with a semicolon":    {identified("node-1", nvidia, `"a;b"`), `spec.deviceID: Invalid value: "a;b"`},
	"ID with =":              {identified("node-1", nvidia, `"a=b"`), `spec.deviceID: Invalid value: "a=b"`},
	"ID with a line break":   {identified("node-1", nvidia, `"a\nb"`), `spec.deviceID: Invalid value`},
	"long ID":                {identified("node-1", nvidia, strings.Repeat("a", 254)), `spec.deviceID: Too long`},
	"too many properties":    {device(manyProperties(v1alpha1.MaxProperties + 1)), `spec.properties: Too many`},
	"number as a value":      {device(`properties: {memory: 12}`), `spec.properties.memory: Invalid value: "integer"`},
	"property without name":  {device(`properties: {"": c}`), badName},
	"long property":          {device(`properties: {` + strings.Repeat("a", 318) + `: c}`), badName},
	"long value":             {device(`properties: {a: ` + strings.Repeat("a", 254) + `}`), badValue},
	"unknown field":          {device(`count: 2`), `unknown field "spec.count"`},
}

var acceptedDevices = map[string]string{
	"bare":            device(``),
	"gpu":             device(`properties: {model: K80, memory: 12Gi, nvidia.com/cuda-cores: "4992"}`),
	"uuid":            identified("node-1", nvidia, "GPU-4b1e7b0e-6c1f-4b57-9a39-2f6c6a3f5a11"),
	"path":            identified("node-1.example", "example.com/disk", "/dev/nvme0n1"),
	"pci-address":     identified("node-1", "intel.com/sriov", `"0000:3b:00.1"`),
	"unschedulable":   device(`unschedulable: true`),
	"null-value":      device(`properties: {a: null}`),
	"no-properties":   device(`properties: {}`),
	"any-value":       device(`properties: {a: "", b: "any text, even this"}`),
	"many-properties": device(manyProperties(v1alpha1.MaxProperties)),
}

var goodDevice = device(`properties: {model: K80}`)

var deviceChanges = map[string]change{
	"property":      {from: goodDevice, patch: `{"spec": {"properties": {"model": "K80-2", "memory": "12Gi"}}}`},
	"no properties": {from: goodDevice, patch: `{"spec": {"properties": null}}`},
	"unschedulable": {from: goodDevice, patch: `{"spec": {"unschedulable": true}}`},
	"labels":        {from: goodDevice, patch: `{"metadata": {"labels": {"a": "b"}}}`},
	"node":          {goodDevice, `{"spec": {"nodeName": "node-2"}}`, "nodeName" + fixedDevice},
	"resource":      {goodDevice, `{"spec": {"resourceName": "amd.com/gpu"}}`, "resourceName" + fixedDevice},
	"ID":            {goodDevice, `{"spec": {"deviceID": "GPU-1"}}`, "deviceID" + fixedDevice},
	"no ID":         {goodDevice, `{"spec": {"deviceID": null}}`, "spec.deviceID: Required value"},
}

func (s *suite) testDeviceStatus(t *testing.T) {
	require.NoError(t, s.create(t, "ExtendedResource", "made-up", goodDevice+"\nstatus: {phase: Bound}"))
	got, err := s.Devices().Get(t.Context(), "made-up", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Empty(t, got.Status, "nobody creates a device that is bound already")
}

// claim is a good claim but for what is added.
func claim(more string) string { return "spec: {resourceName: nvidia.com/gpu, " + more + "}" }

// requirement is a claim whose selector has one requirement.
func requirement(fields string) string {
	return claim("selector: {matchExpressions: [{" + fields + "}]}")
}

var refusedClaims = map[string]refusal{
	"empty object":        {``, `spec: Required value`},
	"no resource":         {`spec: {count: 1}`, `spec.resourceName: Required value`},
	"bad resource":        {`spec: {resourceName: gpu}`, `spec.resourceName: Invalid value: "gpu"`},
	"count 0":             {claim(`count: 0`), `spec.count in body should be greater than or equal to 1`},
	"negative count":      {claim(`count: -1`), `spec.count in body should be greater than or equal to 1`},
	"huge count":          {claim(`count: 65`), `spec.count in body should be less than or equal to 64`},
	"fractional count":    {claim(`count: 1.5`), `spec.count`},
	"more names than one": {claim(`extendedResourceNames: [a, b]`), tooManyNames},
	"more names than two": {claim(`count: 2, extendedResourceNames: [a, b, c]`), tooManyNames},
	"a name twice": {
		claim(`count: 2, extendedResourceNames: [a, a]`),
		`spec.extendedResourceNames[1]: Duplicate value: "a"`,
	},
	"bad name":              {claim(`extendedResourceNames: [A/b]`), `spec.extendedResourceNames[0]`},
	"empty name":            {claim(`extendedResourceNames: [""]`), `spec.extendedResourceNames[0]`},
	"labels":                {claim(`selector: {matchLabels: {model: K80}}`), `unknown field "spec.selector.matchLabels"`},
	"number as a value":     {claim(`selector: {matchProperties: {memory: 12}}`), `spec.selector.matchProperties.memory`},
	"property without name": {claim(`selector: {matchProperties: {"": c}}`), badName},
	"long value":            {claim(`selector: {matchProperties: {a: ` + strings.Repeat("a", 254) + `}}`), badValue},
	"no key":                {requirement(`operator: Exists`), `spec.selector.matchExpressions[0].key: Required value`},
	"bad key":               {requirement(`key: "a b", operator: Exists`), `spec.selector.matchExpressions[0].key`},
	"no operator":           {requirement(`key: a`), `spec.selector.matchExpressions[0].operator: Required value`},
	"unknown operator": {
		requirement(`key: a, operator: Ge, values: ["1"]`),
		`spec.selector.matchExpressions[0].operator: Unsupported value: "Ge"`,
	},
	"In without values":    {requirement(`key: a, operator: In`), `In and NotIn need values`},
	"NotIn without values": {requirement(`key: a, operator: NotIn, values: []`), `In and NotIn need values`},
	"Exists with values":   {requirement(`key: a, operator: Exists, values: [b]`), `DoesNotExist take no values`},
	"Gt without values":    {requirement(`key: a, operator: Gt`), needNumber},
	"Gt with two":          {requirement(`key: a, operator: Gt, values: ["1", "2"]`), needNumber},
	"Lt with a word":       {requirement(`key: a, operator: Lt, values: [large]`), needNumber},
	"Gt with GiB":          {requirement(`key: a, operator: Gt, values: [12GiB]`), needNumber},
	"Gt with exponent":     {requirement(`key: a, operator: Gt, values: ["1e999999999"]`), needNumber},
	"too many expressions": {claim(`selector: {matchExpressions: [` + strings.Repeat(`{key: a, operator: Exists}, `, 33) +
		`]}`), `spec.selector.matchExpressions: Too many`},
	"too many values": {
		requirement(`key: a, operator: In, values: [` + strings.Repeat(`a, `, 65) + `]`),
		`spec.selector.matchExpressions[0].values: Too many`,
	},
}

var acceptedClaims = map[string]string{
	"any":            claim(``),
	"two":            claim(`count: 2`),
	"most":           claim(`count: 64`),
	"k80":            claim(`count: 2, selector: {matchProperties: {model: K80}}`),
	"empty-selector": claim(`selector: {}`),
	"every-operator": claim(
		`selector: {matchExpressions: [{key: a, operator: In, values: [b]}, {key: a, operator: NotIn, values: [c]}, {key: d, operator: Exists}, {key: e, operator: DoesNotExist}, {key: example.com/memory, operator: Gt, values: [8Gi]}, {key: f, operator: Lt, values: ["-1.5"]}]}`,
	),
	"exponent":         requirement(`key: a, operator: Gt, values: ["1e3"]`),
	"named":            claim(`extendedResourceNames: [gpu-0]`),
	"named-and-others": claim(`count: 3, extendedResourceNames: [gpu-0, gpu-1.b]`),
}

var goodClaim = claim(`count: 2, selector: {matchProperties: {model: K80}}, extendedResourceNames: [a]`)

const fixed = "a claim's spec is immutable: delete the claim and create another"

var claimChanges = map[string]change{
	"labels":      {from: goodClaim, patch: `{"metadata": {"labels": {"a": "b"}}}`},
	"resource":    {goodClaim, `{"spec": {"resourceName": "amd.com/gpu"}}`, fixed},
	"count":       {goodClaim, `{"spec": {"count": 3}}`, fixed},
	"selector":    {goodClaim, `{"spec": {"selector": {"matchProperties": {"model": "T4"}}}}`, fixed},
	"no selector": {goodClaim, `{"spec": {"selector": null}}`, fixed},
	"names":       {goodClaim, `{"spec": {"extendedResourceNames": ["b"]}}`, fixed},
	"no names":    {goodClaim, `{"spec": {"extendedResourceNames": null}}`, fixed},
}

const fixedTemplate = "a template's spec is immutable: delete the template and create another; the claims that were " +
	"made from it stay"

var templateChanges = map[string]change{
	"labels":      {from: goodClaim, patch: `{"metadata": {"labels": {"a": "b"}}}`},
	"count":       {goodClaim, `{"spec": {"count": 3}}`, fixedTemplate},
	"no selector": {goodClaim, `{"spec": {"selector": null}}`, fixedTemplate},
}

// An update of the whole object that leaves the spec is no change of it.
func (s *suite) testUpdateClaim(t *testing.T) {
	require.NoError(t, s.create(t, "ExtendedResourceClaim", "updated", claim(``)))
	got, err := s.DeviceClaims().Get(t.Context(), "updated", metav1.GetOptions{})
	require.NoError(t, err)
	assert.EqualValues(t, 1, got.Spec.Count, "one device is what a claim means that does not say")
	got.Labels = testbed.Pairs("by", "update")
	_, err = s.DeviceClaims().Update(t.Context(), got, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// table asks for an object as kubectl prints it and returns the columns, the wide ones in brackets, with the cells.
func table(t *testing.T, request *rest.Request) (columns []string, cells []any) {
	t.Helper()
	table := testbed.Table(t, request)
	for _, column := range table.ColumnDefinitions {
		name := strings.ToUpper(column.Name)
		if column.Priority > 0 {
			name = "[" + name + "]"
		}
		columns = append(columns, name)
	}
	return columns, table.Rows[0].Cells
}

func condition(kind, reason string) []metav1.Condition {
	return []metav1.Condition{{
		Type: kind, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.Time{Time: expiry},
	}}
}

func (s *suite) testDeviceColumns(t *testing.T) {
	const name = "columns"
	api := s.Objects.GlobalreserveV1alpha1()
	require.NoError(t, s.create(t, "ExtendedResource", name, device(`unschedulable: true`)))
	gpu, err := api.ExtendedResources().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	gpu.Status = v1alpha1.ExtendedResourceStatus{
		Phase:      v1alpha1.ExtendedResourceBound,
		ClaimRef:   &v1alpha1.ExtendedResourceClaimReference{Namespace: "ml", Name: "k80-erc", UID: "u"},
		Conditions: condition(v1alpha1.ConditionOnline, "NodeExists"),
	}
	_, err = api.ExtendedResources().UpdateStatus(t.Context(), gpu, metav1.UpdateOptions{})
	require.NoError(t, err)
	columns, cells := table(t, api.RESTClient().Get().Resource("extendedresources").Name(name))
	assert.Equal(t, []string{
		"NAME", "NODE", "RESOURCE", "DEVICE", "STATUS", "CLAIM", "AGE", "[CLAIM-NAMESPACE]", "[UNSCHEDULABLE]", "[REASON]",
	}, columns)
	assert.Equal(t, []any{name, "node-1", "nvidia.com/gpu", "GPU-0", "Bound", "k80-erc"}, cells[:6])
	assert.Equal(t, []any{"ml", true, "NodeExists"}, cells[7:])

	require.NoError(t, s.create(t, "ExtendedResourceClaim", name, claim(`count: 2`)))
	erc, err := api.ExtendedResourceClaims(s.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	erc.Status = v1alpha1.ExtendedResourceClaimStatus{
		Phase: v1alpha1.ExtendedResourceClaimBound, NodeName: "node-1", ExtendedResources: []string{"gpu-0", "gpu-1"},
		PodRef:     &v1alpha1.PodReference{Name: "train-0", UID: "p"},
		Conditions: condition(v1alpha1.ConditionBound, "PodBound"),
	}
	erc, err = api.ExtendedResourceClaims(s.Namespace).UpdateStatus(t.Context(), erc, metav1.UpdateOptions{})
	require.NoError(t, err)
	columns, cells = table(t, api.RESTClient().Get().Namespace(s.Namespace).Resource("extendedresourceclaims").Name(name))
	assert.Equal(t, []string{
		"NAME", "RESOURCE", "COUNT", "STATUS", "NODE", "POD", "AGE", "[DEVICES]", "[REASON]",
	}, columns)
	assert.Equal(t, []any{name, "nvidia.com/gpu", float64(2), "Bound", "node-1", "train-0"}, cells[:6])
	assert.Equal(t, []any{`["gpu-0","gpu-1"]`, "PodBound"}, cells[7:])

	erc.Status.Phase = "Reserved"
	_, err = api.ExtendedResourceClaims(s.Namespace).UpdateStatus(t.Context(), erc, metav1.UpdateOptions{})
	assert.ErrorContains(t, err, `status.phase: Unsupported value: "Reserved"`)
}
