package crd

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

const (
	full = `spec: {ttl: 10m, schedulerName: s, priority: 1, preemptible: true, allocatePolicy: Aligned,
  consumers: {index: i}, slots: [{name: a, nodeName: node-1, requests: {cpu: 1}}, {name: b, requests: {cpu: 1}}]}`
	bare        = `spec: {slots: [{name: a, requests: {cpu: 1}}]}`
	withDevices = `spec: {ttl: 10m, slots: [{name: a, requests: {cpu: 1}, devices: [{resourceName: x.io/gpu, count: 2, matchProperties: {m: K80}}]}]}`
	forever     = `spec: {ttl: 0s, slots: [{name: a, requests: {cpu: 1}}]}`

	slotsFixed = "spec.slots: Invalid value: slots are immutable: delete the reservation and create another"
	notShorter = "ttl may be extended, not shortened: delete the reservation to end it early"
	andB       = `, {"name": "b", "requests": {"cpu": 1}}`
)

// slots is a patch of all slots.
func slots(all string) string { return `{"spec": {"slots": [` + all + `]}}` }

var changes = map[string]change{
	"ttl extended":          {from: full, patch: `{"spec": {"ttl": "11m"}}`},
	"ttl written otherwise": {from: full, patch: `{"spec": {"ttl": "600s"}}`},
	"ttl extended for ever": {from: full, patch: `{"spec": {"ttl": "0s"}}`},
	"ttl added":             {from: bare, patch: `{"spec": {"ttl": "1m"}}`},
	"ttl shortened":         {full, `{"spec": {"ttl": "9m"}}`, notShorter},
	"ttl limited":           {forever, `{"spec": {"ttl": "87600h"}}`, notShorter},
	"ttl removed": {
		full, `{"spec": {"ttl": null}}`,
		"ttl cannot be removed: 0s keeps the reservation until it is deleted",
	},
	"ttl absurd":            {full, `{"spec": {"ttl": "87601h"}}`, "of at most 87600h"},
	"labels":                {from: full, patch: `{"metadata": {"labels": {"a": "b"}}}`},
	"scheduler named empty": {from: bare, patch: `{"spec": {"schedulerName": ""}}`},
	"slot's amount":         {full, slots(`{"name": "a", "nodeName": "node-1", "requests": {"cpu": 2}}` + andB), slotsFixed},
	"slot's node":           {full, slots(`{"name": "a", "nodeName": "m", "requests": {"cpu": 1}}` + andB), slotsFixed},
	"slot removed":          {full, slots(`{"name": "a", "nodeName": "node-1", "requests": {"cpu": 1}}`), slotsFixed},
	"slot added":            {bare, slots(`{"name": "a", "requests": {"cpu": 1}}` + andB), slotsFixed},
	"slot renamed":          {bare, slots(`{"name": "b", "requests": {"cpu": 1}}`), slotsFixed},
	"devices stay":          {from: withDevices, patch: `{"spec": {"ttl": "11m"}}`},
	"slot's devices": {
		withDevices,
		slots(`{"name": "a", "requests": {"cpu": 1}, "devices": [{"resourceName": "x.io/gpu", "count": 1}]}`),
		slotsFixed,
	},
	"slot's devices removed":   {withDevices, slots(`{"name": "a", "requests": {"cpu": 1}}`), slotsFixed},
	"slots removed":            {bare, `{"spec": {"slots": null}}`, "spec.slots: Required value"},
	"scheduler":                {full, `{"spec": {"schedulerName": "t"}}`, "schedulerName is immutable"},
	"scheduler added":          {bare, `{"spec": {"schedulerName": "t"}}`, "schedulerName is immutable"},
	"scheduler removed":        {full, `{"spec": {"schedulerName": null}}`, "schedulerName is immutable"},
	"priority":                 {full, `{"spec": {"priority": 2}}`, "priority is immutable"},
	"priority added":           {bare, `{"spec": {"priority": 0}}`, "priority is immutable"},
	"priority removed":         {full, `{"spec": {"priority": null}}`, "priority is immutable"},
	"preemptible":              {full, `{"spec": {"preemptible": false}}`, "preemptible is immutable"},
	"preemptible to default":   {full, `{"spec": {"preemptible": null}}`, "preemptible is immutable"},
	"policy":                   {full, `{"spec": {"allocatePolicy": "Once"}}`, "allocatePolicy is immutable"},
	"policy to default":        {full, `{"spec": {"allocatePolicy": null}}`, "allocatePolicy is immutable"},
	"consumers":                {full, `{"spec": {"consumers": {"index": "j"}}}`, "consumers are immutable"},
	"consumers added":          {bare, `{"spec": {"consumers": {"index": "j"}}}`, "consumers are immutable"},
	"consumers removed":        {full, `{"spec": {"consumers": null}}`, "consumers are immutable"},
	"several things at a time": {full, `{"spec": {"ttl": "20m", "priority": 2}}`, "priority is immutable"},
}

// A Go client rewrites 1000m and the number 1 as "1". The rules compare text, so its update of the whole
// object is refused; patches and status updates, which are what the server sends, are not concerned.
func (s *suite) testQuantitiesCompareAsWritten(t *testing.T) {
	label := map[string]string{"a": "b"}
	for name, test := range map[string]struct {
		written   string
		canonical bool
	}{
		"milli":     {"1000m", false},
		"number":    {"1", false},
		"canonical": {`"1"`, true},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, s.reserve(t, name, amount(test.written)))
			got := s.get(t, name)
			assert.EqualValues(t, 1000, got.Spec.Slots[0].Requests.Cpu().MilliValue())
			got.Labels = label
			_, err := s.Reservations().Update(t.Context(), got, metav1.UpdateOptions{})
			if test.canonical {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "slots are immutable")
			}
			require.NoError(t, s.patch(t, name, `{"metadata": {"labels": {"a": "c"}}, "spec": {"ttl": "1h"}}`))
			require.NoError(t, s.setStatus(t, name, v1alpha1.ReservationStatus{Phase: v1alpha1.ReservationPending}))
		})
	}
}
