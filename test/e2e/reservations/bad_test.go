//go:build e2e

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

// badObjects: what people write by hand and the definition lets through waits or fails with a reason. The
// server lives on. What is refused is in test/crd.
func badObjects(c *cluster) {
	c.nodes(1)
	slotWith := func(fields string) string { return `{slots: [{name: a, ` + fields + `}]}` }
	cases := map[string]struct {
		spec   string
		phase  v1alpha1.ReservationPhase
		reason string
	}{
		"an unknown node":    {spec: slotWith(`requests: {cpu: 1}, nodeName: nowhere`), phase: v1alpha1.ReservationPending, reason: "NodeUnknown"},
		"more than there is": {spec: slotWith(`requests: {cpu: 5}, nodeName: bad-0`), phase: v1alpha1.ReservationPending, reason: "InsufficientResource"},
		"more than anybody has": {
			spec: slotWith(`requests: {cpu: 9000}`), phase: v1alpha1.ReservationPending, reason: "NoNodeFits",
		},
		"what nobody has":         {spec: slotWith(`requests: {example.com/gpu: 1}, nodeName: bad-0`), phase: v1alpha1.ReservationPending, reason: "InsufficientResource"},
		"what nobody can have":    {spec: slotWith(`requests: {memroy: 1Gi}`), phase: v1alpha1.ReservationFailed, reason: "InvalidSpec"},
		"beyond counting":         {spec: slotWith(`requests: {cpu: 999999E}`), phase: v1alpha1.ReservationFailed, reason: "InvalidSpec"},
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
			phase: v1alpha1.ReservationPending, reason: "SlotExists",
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
		c.T.(*testing.T).Run(name, func(t *testing.T) {
			c := *c
			c.T = t
			c.CreateReservation(object, tc.spec)
			rsv := c.AwaitReservation(object, tc.phase)
			assert.Equal(t, tc.reason, reason(rsv))
			assert.NotEmpty(t, rsv.Status.Conditions[0].Message)
			require.NoError(t, c.Reservations().Delete(t.Context(), object, metav1.DeleteOptions{}))
		})
	}
	assert.True(c.T, c.Server.Running(), "the server lives on")
	c.CreateReservation("good", `{ttl: 10m, slots: [{name: a, nodeName: bad-0, requests: {cpu: 4}}]}`)
	c.AwaitReservation("good", v1alpha1.ReservationAvailable)
}
