package crd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// one is a spec with a single good slot and capacity for one more field.
func one(field string) string {
	return "spec: {slots: [{name: a, requests: {cpu: 1}}], " + field + "}"
}

// slot is a spec whose only slot is good but for one more field.
func slot(field string) string {
	return "spec: {slots: [{name: a, requests: {cpu: 1}, " + field + "}]}"
}

// requests is a spec whose only slot requests amounts, and amount one that requests one.
func requests(amounts string) string {
	return "spec: {slots: [{name: a, requests: {" + amounts + "}}]}"
}
func amount(value string) string { return requests("cpu: " + value) }

// named is a spec whose only slot is good but for its name.
func named(name string) string { return "spec: {slots: [{name: " + name + ", requests: {cpu: 1}}]}" }

// consumers is a spec that says who may use it.
func consumers(who string) string { return one("consumers: {" + who + "}") }

// selector is a spec for the pods that one expression selects.
func selector(expression string) string {
	return consumers("selector: {matchExpressions: [{" + expression + "}]}")
}

func manySlots(count int) string {
	var slots strings.Builder
	for i := range count {
		fmt.Fprintf(&slots, "{name: slot-%d, requests: {cpu: 1}}, ", i)
	}
	return "spec: {slots: [" + slots.String() + "]}"
}

const (
	onlyOne       = `at most one of index, selector, controller and gang`
	notInTenYears = `ttl must be a duration such as 10m, of at most 87600h`
)

// refused has what the schema must refuse, with a part of the message its author gets.
var refused = map[string]refusal{
	"empty object":        {``, `spec: Required value`},
	"empty spec":          {`spec: {}`, `spec.slots: Required value`},
	"spec is a list":      {`spec: []`, `spec: Invalid value`},
	"no slots":            {`spec: {slots: []}`, `spec.slots in body should have at least 1 items`},
	"empty slot":          {`spec: {slots: [{}]}`, `spec.slots[0].requests: Required value`},
	"slot without a name": {`spec: {slots: [{requests: {cpu: 1}}]}`, `spec.slots[0].name: Required value`},
	"unknown field":       {one(`nodes: 3`), `unknown field "spec.nodes"`},
	"too many slots":      {manySlots(v1alpha1.MaxSlots + 1), `spec.slots: Too many: 1001: must have at most 1000 items`},
	"duplicate slot names": {
		`spec: {slots: [{name: a, requests: {cpu: 1}}, {name: a, requests: {cpu: 2}}]}`,
		`spec.slots[1]: Duplicate value: {"name":"a"}`,
	},
	"slot name with capitals": {named(`Worker`), `spec.slots[0].name`},
	"slot name too long": {
		named(strings.Repeat("a", 254)),
		`spec.slots[0].name: Too long: may not be more than 253 bytes`,
	},
	"slot name with a line break": {named(`"a\nb"`), `spec.slots[0].name`},

	"no requests":           {`spec: {slots: [{name: a}]}`, `spec.slots[0].requests: Required value`},
	"empty requests":        {requests(``), `spec.slots[0].requests in body should have at least 1 properties`},
	"negative amount":       {amount(`"-1"`), `spec.slots[0].requests: Invalid value: an amount must not be negative`},
	"negative whole number": {amount(`-1`), `an amount must not be negative`},
	"amount of words":       {amount(`lots`), `spec.slots[0].requests.cpu: Invalid value: "lots"`},
	"empty amount":          {amount(`""`), `spec.slots[0].requests.cpu: Invalid value`},
	"amount with a space":   {amount(`"1 "`), `spec.slots[0].requests.cpu: Invalid value`},
	"fraction":              {amount(`0.5`), `spec.slots[0].requests.cpu in body must be of type integer,string: "number"`},
	"fractional exponent":   {amount(`"1e1.5"`), `spec.slots[0].requests.cpu: Invalid value`},
	"huge exponent":         {amount(`"1e999999999"`), `spec.slots[0].requests.cpu: Invalid value`},
	"overflowing exponent":  {amount(`"1e99999999999999999999"`), `spec.slots[0].requests.cpu: Invalid value`},
	"endless digits":        {amount(`"` + strings.Repeat("9", 1000) + `"`), `spec.slots[0].requests.cpu: Invalid value`},
	"number beyond 64 bits": {amount(`100000000000000000000`), `spec.slots[0].requests.cpu: Invalid value`},
	"amount is null":        {amount(`null`), `spec.slots[0].requests`},
	"amount is a list":      {amount(`[1]`), `spec.slots[0].requests.cpu: Invalid value`},
	"pod count":             {requests(`cpu: 1, pods: 2`), `leave out pods: a slot always counts as one pod`},
	"resource without name": {requests(`"": 1`), `a resource's name has 1 to 317 characters`},

	"absurd ttl": {
		one(`ttl: 87601h`),
		`spec.ttl: Invalid value: "87601h": ttl must be a duration such as 10m, of at most 87600h (ten years)`,
	},
	"overflowing ttl":      {one(`ttl: 9999999999999h`), notInTenYears},
	"overflow by addition": {one(`ttl: 999999h999999h999999h999999h`), notInTenYears},
	"negative ttl":         {one(`ttl: -5m`), `spec.ttl: Invalid value: "-5m"`},
	"ttl in days":          {one(`ttl: 2d`), `ttl must be a duration such as 10m`},
	"ttl without a unit":   {one(`ttl: "600"`), `ttl must be a duration such as 10m`},
	"ttl as a number":      {one(`ttl: 600`), `spec.ttl in body must be of type string: "integer"`},
	"empty ttl":            {one(`ttl: ""`), `spec.ttl`},
	"ttl too long to be read": {
		one(`ttl: ` + strings.Repeat("1s", 17)),
		`spec.ttl: Too long: may not be more than 32 bytes`,
	},

	"unknown policy": {
		one(`allocatePolicy: Never`),
		`spec.allocatePolicy: Unsupported value: "Never": supported values: "Once", "Aligned", "Restricted"`,
	},
	"priority beyond int32":       {one(`priority: 3000000000`), `spec.priority: Invalid value: 3000000000`},
	"scheduler name in two lines": {one(`schedulerName: "a\nb"`), `spec.schedulerName: Invalid value`},
	"scheduler name too long": {
		one(`schedulerName: ` + strings.Repeat("é", 127)),
		`a scheduler's name has at most 253 bytes`,
	},
	"preemptible is a word": {one(`preemptible: "yes"`), `spec.preemptible in body must be of type boolean: "string"`},

	"index and selector": {
		consumers(`index: a, selector: {}`),
		`spec.consumers: Invalid value: at most one of index, selector, controller and gang may be set`,
	},
	"selector and controller": {consumers(`selector: {}, controller: {kind: Job, name: a}`), onlyOne},
	"index and gang":          {consumers(`index: a, gang: {name: a}`), onlyOne},
	"gang without a name":     {consumers(`gang: {kind: volcano}`), `spec.consumers.gang.name: Required value`},
	"gang of another namespace": {
		consumers(`gang: {name: other/training}`),
		`spec.consumers.gang.name: Invalid value: "other/training"`,
	},
	"gang of a PodGroup's kind": {
		consumers(`gang: {name: training, kind: PodGroup}`),
		`spec.consumers.gang.kind: Invalid value: "PodGroup"`,
	},
	"empty index":             {consumers(`index: ""`), `spec.consumers.index in body should be at least 1 chars long`},
	"controller without name": {consumers(`controller: {kind: Job}`), `spec.consumers.controller.name: Required value`},
	"controller in lower case": {
		consumers(`controller: {kind: job, name: a}`),
		`spec.consumers.controller.kind: Invalid value: "job"`,
	},
	"unknown operator":   {selector(`key: a, operator: Is`), `operator must be In, NotIn, Exists or DoesNotExist`},
	"In without values":  {selector(`key: a, operator: In`), `In and NotIn need values`},
	"Exists with values": {selector(`key: a, operator: Exists, values: [b]`), `Exists and DoesNotExist take none`},
}

// refusedSlots has the same for one more field of a slot that is good but for it. A message may begin with where it is
// in the slot.
var refusedSlots = map[string]refusal{
	"node and node selector": {
		`nodeName: node-1, nodeSelector: {zone: a}`,
		`: Invalid value: nodeSelector is for a node the server chooses`,
	},
	"node name": {`nodeName: "a/b"`, `.nodeName: Invalid value: "a/b"`},
	"label too long": {
		`nodeSelector: {zone: ` + strings.Repeat("a", 64) + `}`,
		`a label's name has 1 to 317 characters, its value at most 63`,
	},
	"toleration's operator": {
		`tolerations: [{key: a, operator: In}]`,
		`a toleration's operator must be Exists, Equal, Lt or Gt`,
	},
	"toleration's effect": {
		`tolerations: [{key: a, effect: Never}]`,
		`a toleration's effect must be NoSchedule, PreferNoSchedule or NoExecute`,
	},
	"toleration of more": {`tolerations: [{key: a, tolerationSeconds: 100000000000000000000}]`, `tolerationSeconds`},
	"port 0":             {`hostPorts: [{port: 0}]`, `.hostPorts[0].port in body should be greater than or equal to 1`},
	"port 65536":         {`hostPorts: [{port: 65536}]`, `.hostPorts[0].port in body should be less than or equal to 65535`},
	"unknown protocol":   {`hostPorts: [{port: 80, protocol: HTTP}]`, `.hostPorts[0].protocol: Unsupported value: "HTTP"`},
	"host IP":            {`hostPorts: [{port: 80, hostIP: localhost}]`, `.hostPorts[0].hostIP: Invalid value: "localhost"`},
	"pod without a name": {`pod: {uid: u}`, `.pod.name: Required value`},
	"pod elsewhere":      {`pod: {name: kube-system/a}`, `.pod.name: Invalid value: "kube-system/a"`},
	"devices of nothing": {`devices: [{count: 1}]`, `.devices[0].resourceName: Required value`},
	"devices of core":    {`devices: [{resourceName: cpu}]`, `.devices[0].resourceName: Invalid value: "cpu"`},
	"no devices": {
		`devices: [{resourceName: x.io/gpu, count: 0}]`,
		`.devices[0].count in body should be greater than or equal to 1`,
	},
	"65 devices": {
		`devices: [{resourceName: x.io/gpu, count: 65}]`,
		`.devices[0].count in body should be less than or equal to 64`,
	},
	"17 kinds of devices": {
		`devices: [` + strings.Repeat(`{resourceName: x.io/gpu}, `, 17) + `]`,
		`.devices: Too many: 17: must have at most 16 items`,
	},
	"claim elsewhere": {
		`devices: [{resourceName: x.io/gpu, claimName: other/c}]`,
		`.devices[0].claimName: Invalid value: "other/c"`,
	},
	"unknown device operator": {
		`devices: [{resourceName: x.io/gpu, matchExpressions: [{key: a, operator: Like, values: [b]}]}]`,
		`operator: Unsupported value: "Like"`,
	},
	"pod with a namespace": {`pod: {name: a, namespace: kube-system}`, `unknown field "spec.slots[0].pod.namespace"`},
}

// accepted has what the schema must let through, hand-written forms and what the server judges later.
var accepted = map[string]string{
	"unknown-node":    slot(`nodeName: no-such-node`),
	"node-left-empty": slot(`nodeName: ""`),
	"server-chooses":  slot(`nodeSelector: {zone: a}, tolerations: [{operator: Exists}]`),
	"named-and-tolerated": slot(
		`nodeName: node-1, tolerations: [{key: a, operator: Equal, value: b, effect: NoExecute, tolerationSeconds: 5}]`,
	),
	"unknown-resource":   requests(`example.com/gpu: 8`),
	"more-than-any-node": amount(`"999999999999999999E"`),
	"exponents":          amount(`"1e3"`),
	"large-exponents":    amount(`"1e99"`),
	"small-exponents":    amount(`"1E-99"`),
	"plus-sign":          amount(`"+1.5"`),
	"no-leading-digit":   amount(`".5"`),
	"binary-suffix":      amount(`8Gi`),
	"nano-cores":         amount(`1n`),
	"nothing":            amount(`0`),
	"largest-number":     amount(`9223372036854775807`),
	"until-deleted":      one(`ttl: 0s`),
	"ten-years":          one(`ttl: 87600h`),
	"zero-in-hours":      one(`ttl: 0h0m0s`),
	"compound-ttl":       one(`ttl: 1h30m0.5s`),
	"milliseconds":       one(`ttl: 1500ms`),
	"nobody":             consumers(``),
	"every-pod":          consumers(`selector: {}`),
	"by-labels": one(
		`consumers: {selector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}]}}`,
	),
	"by-index":           consumers(`index: any text even this`),
	"by-controller":      consumers(`controller: {kind: Deployment, name: web.v2}`),
	"by-gang":            consumers(`gang: {name: training}`),
	"by-gang-of-a-kind":  consumers(`gang: {name: "any text, even this", kind: volcano}`),
	"any-scheduler-name": one(`schedulerName: StupidScheduler`),
	"scheduler-in-words": one(`schedulerName: "Планировщик Nr. 1/β"`),
	"longest-scheduler":  one(`schedulerName: ` + strings.Repeat("é", 126) + "S"),
	"by-pod":             slot(`pod: {name: web-0}`),
	"lowest-priority":    one(`priority: -2147483648`),
	"host-ports": slot(
		`hostPorts: [{port: 80}, {port: 80, protocol: UDP, hostIP: "::1"}, {port: 81, hostIP: ""}]`,
	),
	"devices": slot(
		`devices: [{resourceName: x.io/gpu}, {resourceName: x.io/gpu, count: 2, claimName: c, matchProperties: {model: K80}, matchExpressions: [{key: memory, operator: Gt, values: [8Gi]}], extendedResourceNames: [gpu-0]}]`,
	),
	"devices-given": slot(`devices: [{resourceName: x.io/gpu, deviceIDs: [GPU-4b1e7b0e]}]`),
	"devices-senseless": slot(
		`devices: [{resourceName: x.io/gpu, matchExpressions: [{key: memory, operator: Gt, values: [much, more]}]}]`,
	),
	"everything": `spec:
  schedulerName: batch-scheduler
  priority: 1000
  preemptible: true
  ttl: 10m
  allocatePolicy: Restricted
  consumers: {index: training-7}
  slots:
  - name: worker-0
    nodeName: node-7
    requests: {cpu: "4", memory: 8Gi}
    hostPorts: [{hostIP: 10.0.0.1, protocol: TCP, port: 8080}]
    pod: {name: worker-0, uid: 4b1e7b0e-6c1f-4b57-9a39-2f6c6a3f5a11}
  - name: worker-1
    nodeSelector: {zone: a}
    requests: {cpu: 500m}
`,
}

func (s *suite) testDefaults(t *testing.T) {
	require.NoError(t, s.reserve(t, "defaults", slot(`hostPorts: [{port: 80}]`)))
	got := s.get(t, "defaults")
	assert.Equal(t, v1alpha1.AllocateOnce, got.Spec.AllocatePolicy)
	assert.False(t, got.Spec.Preemptible)
	assert.Nil(t, got.Spec.TTL, "the server's policy decides")
	assert.Nil(t, got.Spec.Priority, "the pods decide")
	assert.Nil(t, got.Spec.Consumers)
	assert.Equal(t, corev1.ProtocolTCP, got.Spec.Slots[0].HostPorts[0].Protocol)
	assert.Empty(t, got.Status.Phase)
	assert.EqualValues(t, 1, got.Generation)

	require.NoError(t, s.reserve(t, "devices-of-default-count", slot(`devices: [{resourceName: x.io/gpu}]`)))
	assert.EqualValues(t, 1, s.get(t, "devices-of-default-count").Spec.Slots[0].Devices[0].Count)

	require.NoError(t, s.reserve(t, "minutes", one(`ttl: 90m`)))
	assert.Equal(t, 90*time.Minute, s.get(t, "minutes").Spec.TTL.Duration)
}
