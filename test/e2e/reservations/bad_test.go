package reservations

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// badObjects: what people write by hand is refused by the API server, or waits or fails with a
// reason. The server lives on.
func badObjects(c *cluster) {
	c.nodes(1)
	slotWith := func(fields string) string { return `{slots: [{name: a, ` + fields + `}]}` }
	var tooMany []string
	for i := range v1alpha1.MaxSlots + 1 {
		tooMany = append(tooMany, fmt.Sprintf("{name: a%d, requests: {cpu: 1m}}", i))
	}
	cases := map[string]struct {
		spec string
		// refused is part of what the API server says; else the object is in the phase, for the reason.
		refused string
		phase   v1alpha1.ReservationPhase
		reason  string
	}{
		"empty":               {spec: `{}`, refused: "spec.slots: Required"},
		"no slots":            {spec: `{slots: []}`, refused: "at least 1"},
		"no requests":         {spec: slotWith(`nodeName: bad-0`), refused: "requests: Required"},
		"empty requests":      {spec: slotWith(`requests: {}`), refused: "at least 1"},
		"negative":            {spec: slotWith(`requests: {cpu: -1}`), refused: "must not be negative"},
		"negative text":       {spec: slotWith(`requests: {cpu: "-1"}`), refused: "must not be negative"},
		"no number":           {spec: slotWith(`requests: {cpu: many}`), refused: "requests.cpu"},
		"the pod count":       {spec: slotWith(`requests: {pods: 3}`), refused: "leave out pods"},
		"the same slot twice": {spec: `{slots: [{name: a, requests: {cpu: 1}}, {name: a, requests: {cpu: 1}}]}`, refused: "Duplicate value"},
		"too many slots":      {spec: `{slots: [` + strings.Join(tooMany, ", ") + `]}`, refused: "Too many"},
		"a ttl of nonsense":   {spec: `{ttl: soon, slots: [{name: a, requests: {cpu: 1}}]}`, refused: "spec.ttl"},
		"a negative ttl":      {spec: `{ttl: -5s, slots: [{name: a, requests: {cpu: 1}}]}`, refused: "spec.ttl"},
		"a ttl of a century":  {spec: `{ttl: 900000h, slots: [{name: a, requests: {cpu: 1}}]}`, refused: "at most 87600h"},
		"two ways to match":   {spec: `{consumers: {index: a, selector: {}}, slots: [{name: a, requests: {cpu: 1}}]}`, refused: "at most one of"},
		"an unknown policy":   {spec: `{allocatePolicy: Twice, slots: [{name: a, requests: {cpu: 1}}]}`, refused: "allocatePolicy"},
		"an unknown field":    {spec: slotWith(`requests: {cpu: 1}, replicas: 3`), refused: "unknown field"},
		"a port of the moon":  {spec: slotWith(`requests: {cpu: 1}, hostPorts: [{port: 70000}]`), refused: "hostPorts"},
		"a node and a choice": {spec: slotWith(`requests: {cpu: 1}, nodeName: bad-0, nodeSelector: {a: b}`), refused: "leave out nodeSelector or nodeName"},
		"an unknown node":     {spec: slotWith(`requests: {cpu: 1}, nodeName: nowhere`), phase: v1alpha1.ReservationPending, reason: "NodeUnknown"},
		"more than there is":  {spec: slotWith(`requests: {cpu: 5}, nodeName: bad-0`), phase: v1alpha1.ReservationPending, reason: "InsufficientResource"},
		"more than anybody has": {
			spec: slotWith(`requests: {cpu: 9000}`), phase: v1alpha1.ReservationPending, reason: "NoNodeFits",
		},
		"what nobody has":         {spec: slotWith(`requests: {example.com/gpu: 1}, nodeName: bad-0`), phase: v1alpha1.ReservationPending, reason: "InsufficientResource"},
		"what nobody can have":    {spec: slotWith(`requests: {memroy: 1Gi}`), phase: v1alpha1.ReservationFailed, reason: "InvalidSpec"},
		"beyond counting":         {spec: slotWith(`requests: {cpu: 999999E}`), phase: v1alpha1.ReservationFailed, reason: "InvalidSpec"},
		"beyond counting, in 1e":  {spec: slotWith(`requests: {memory: 1e99}`), refused: "requests.memory"},
		"the sum beyond counting": {spec: `{slots: [{name: a, requests: {memory: 8Ei}}, {name: b, requests: {memory: 7Ei}}, {name: c, requests: {memory: 7Ei}}]}`, phase: v1alpha1.ReservationPending, reason: "NoNodeFits"},
		"almost beyond counting":  {spec: `{slots: [{name: a, nodeName: bad-0, requests: {memory: 7Ei}}, {name: b, nodeName: bad-0, requests: {memory: 7Ei}}]}`, phase: v1alpha1.ReservationPending, reason: "InsufficientResource"},
		"more than the policy":    {spec: `{ttl: 87600h, slots: [{name: a, nodeName: bad-0, requests: {cpu: 1m}}]}`, phase: v1alpha1.ReservationFailed, reason: "TTLTooLong"},
		"a selector of nonsense":  {spec: `{consumers: {selector: {matchLabels: {"a b": c}}}, slots: [{name: a, requests: {cpu: 1m}}]}`, phase: v1alpha1.ReservationFailed, reason: "InvalidSpec"},
		"a label of nonsense":     {spec: slotWith(`requests: {cpu: 1m}, nodeSelector: {"a b": "c d"}`), phase: v1alpha1.ReservationPending, reason: "NoNodeFits"},
		"a toleration of letters": {spec: slotWith(`requests: {cpu: 1m}, nodeSelector: {no: node}, tolerations: [{key: a, operator: Lt, value: x}]`), phase: v1alpha1.ReservationPending, reason: "NoNodeFits"},
		"a port twice": {
			spec:  `{slots: [{name: a, nodeName: bad-0, requests: {cpu: 1m}, hostPorts: [{port: 80}]}, {name: b, nodeName: bad-0, requests: {cpu: 1m}, hostPorts: [{port: 80, hostIP: 0.0.0.0}]}]}`,
			phase: v1alpha1.ReservationPending, reason: "HostPortConflict",
		},
		"an address of nonsense": {
			spec:  slotWith(`nodeName: bad-0, requests: {cpu: 1m}, hostPorts: [{port: 81, hostIP: 999.999.999.999}]`),
			phase: v1alpha1.ReservationAvailable, reason: "AllSlotsHeld",
		},
		"the longest names": {
			spec:  `{ttl: 10m, slots: [{name: ` + strings.Repeat("n", 253) + `, nodeName: ` + strings.Repeat("n", 253) + `, requests: {cpu: 1m}, pod: {name: ` + strings.Repeat("p", 253) + `}}]}`,
			phase: v1alpha1.ReservationPending, reason: "NodeUnknown",
		},
		"a pod twice": {
			spec:  `{slots: [{name: a, nodeName: bad-0, requests: {cpu: 1m}, pod: {name: p}}, {name: b, nodeName: bad-0, requests: {cpu: 2m}, pod: {name: p}}]}`,
			phase: v1alpha1.ReservationPending, reason: "HoldExists",
		},
		"a made-up status": {
			spec:  `{slots: [{name: a, nodeName: nowhere, requests: {cpu: 1}}]}` + "\nstatus: {phase: Available, nodeName: mine}",
			phase: v1alpha1.ReservationPending, reason: "NodeUnknown",
		},
	}
	n := 0
	for name, tc := range cases {
		n++
		object := fmt.Sprintf("bad-%d", n)
		c.t.Run(name, func(t *testing.T) {
			c := *c
			c.t = t
			err := c.apply(object, tc.spec)
			if tc.refused != "" {
				require.ErrorContains(t, err, tc.refused)
				return
			}
			require.NoError(t, err)
			rsv := c.await(object, tc.phase)
			assert.Equal(t, tc.reason, reason(rsv))
			assert.NotEmpty(t, rsv.Status.Conditions[0].Message)
			require.NoError(t, c.reservations().Delete(t.Context(), object, metav1.DeleteOptions{}))
		})
	}
	assert.True(c.t, c.server.Running(), "the server lives on")
	c.reserve("good", `{ttl: 10m, slots: [{name: a, nodeName: bad-0, requests: {cpu: 4}}]}`)
	c.await("good", v1alpha1.ReservationAvailable)
}
