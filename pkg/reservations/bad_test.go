package reservations

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/test/bubble"
)

// TestBadObjects has people write by hand what the definition lets through: it waits or fails with a reason. What the
// definition refuses is in test/crd.
func TestBadObjects(t *testing.T) {
	type testCase struct{ spec, want string }
	cases := map[string]testCase{
		"an unknown node":    {`{slots: [{name: a, requests: {cpu: 1}, nodeName: nowhere}]}`, "Pending NodeUnknown  0/1"},
		"more than there is": {`{slots: [{name: a, requests: {cpu: 5}, nodeName: n1}]}`, "Pending InsufficientResource  0/1"},
		"what nobody has": {
			`{slots: [{name: a, requests: {example.com/gpu: 1}, nodeName: n1}]}`,
			"Pending InsufficientResource  0/1",
		},
		"not to be counted": {`{slots: [{name: a, requests: {memroy: 1Gi}}]}`, "Failed InvalidSpec  0/1"},
		"beyond counting":   {`{slots: [{name: a, requests: {cpu: 999999E}}]}`, "Failed InvalidSpec  0/1"},
		"the sum beyond counting": {
			`{slots: [{name: a, requests: {memory: 8Ei}},
			  {name: b, requests: {memory: 7Ei}}, {name: c, requests: {memory: 7Ei}}]}`,
			"Pending NoNodeFits  0/3",
		},
		"the sum on one node beyond counting": {
			`{slots: [{name: a, nodeName: n1, requests: {memory: 7Ei}},
			  {name: b, nodeName: n1, requests: {memory: 7Ei}}]}`,
			"Pending InsufficientResource  0/2",
		},
		"a label of nonsense": {
			`{slots: [{name: a, requests: {cpu: 1m}, nodeSelector: {"a b": "c d"}}]}`,
			"Pending NoNodeFits  0/1",
		},
		"a toleration of letters": {
			`{slots: [{name: a, requests: {cpu: 1m}, nodeSelector: {no: node},
			  tolerations: [{key: a, operator: Lt, value: x}]}]}`,
			"Pending NoNodeFits  0/1",
		},
		"a port twice": {
			`{slots: [{name: a, nodeName: n1, requests: {cpu: 1m}, hostPorts: [{port: 80}]},
			  {name: b, nodeName: n1, requests: {cpu: 1m}, hostPorts: [{port: 80, hostIP: 0.0.0.0}]}]}`,
			"Pending HostPortConflict  0/2",
		},
		"an address of nonsense": {
			`{slots: [{name: a, nodeName: n1, requests: {cpu: 1m}, hostPorts: [{port: 81, hostIP: 999.999.999.999}]}]}`,
			"Available AllSlotsHeld n1 0/1 a@n1=Reserved",
		},
		"a pod twice": {
			`{slots: [{name: a, nodeName: n1, requests: {cpu: 1m}, pod: {name: p}},
			  {name: b, nodeName: n1, requests: {cpu: 2m}, pod: {name: p}}]}`,
			"Pending SlotExists  0/2",
		},
		"more than the policy": {
			`{ttl: 87600h, slots: [{name: a, nodeName: n1, requests: {cpu: 1m}}]}`,
			"Failed TTLTooLong  0/1",
		},
		"a selector of nonsense": {
			`{consumers: {selector: {matchLabels: {"a b": c}}}, slots: [{name: a, requests: {cpu: 1m}}]}`,
			"Failed InvalidSpec  0/1",
		},
	}
	bubble.Each(t, cases, func(t *testing.T, tc testCase) {
		w := newWorld(t, "n1")
		rsv := newReservation("r", time.Minute)
		require.NoError(t, yaml.UnmarshalStrict([]byte(tc.spec), &rsv.Spec))
		w.create(rsv)
		w.settle()
		assert.Equal(t, tc.want, w.shown("r"))
		assert.NotEmpty(t, w.get("r").Status.Conditions[0].Message)
	})
}
