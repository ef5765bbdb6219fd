package crd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

var expiry = time.Date(2030, time.January, 2, 3, 4, 5, 0, time.UTC)

// availableStatus is the status of a reservation of three slots, two of them used.
func availableStatus() v1alpha1.ReservationStatus {
	return v1alpha1.ReservationStatus{
		Phase: v1alpha1.ReservationAvailable, ObservedGeneration: 1, NodeName: "node-7 +2", Consumed: "2/3",
		AvailableAt: &metav1.Time{Time: expiry.Add(-10 * time.Minute)}, ExpiresAt: &metav1.Time{Time: expiry},
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: "Reserved",
			Message: "all slots are held", LastTransitionTime: metav1.Time{Time: expiry.Add(-10 * time.Minute)},
		}},
		Slots: []v1alpha1.SlotStatus{{
			Name: "a", NodeName: "node-7", NodeUID: "n-7", State: v1alpha1.SlotConsumed,
			Pods: []v1alpha1.PodReference{{Name: "web-0", UID: "u-0"}}, Devices: []string{"GPU-4b1e7b0e", "/dev/fpga0"},
		}},
	}
}

func (s *suite) setStatus(t *testing.T, name string, status v1alpha1.ReservationStatus) error {
	t.Helper()
	reservation := s.get(t, name)
	reservation.Status = status
	_, err := s.Reservations().UpdateStatus(t.Context(), reservation, metav1.UpdateOptions{})
	return err
}

func (s *suite) testStatusIsSeparate(t *testing.T) {
	const name = "status"
	client := s.Reservations()
	require.NoError(t,
		s.reserve(t, name,
			"spec: {ttl: 10m, slots: [{name: a, requests: {cpu: \"1\"}}]}\nstatus: {phase: Available, nodeName: mine}"))
	assert.Empty(t, s.get(t, name).Status, "nobody creates a reservation that is available already")

	want := availableStatus()
	require.NoError(t, s.setStatus(t, name, want))
	got := s.get(t, name)
	assert.True(t, got.Status.ExpiresAt.Equal(want.ExpiresAt))
	assert.Equal(t, want.Slots, got.Status.Slots)
	assert.Equal(t, want.Conditions[0].Reason, got.Status.Conditions[0].Reason)
	assert.EqualValues(t, 1, got.Generation, "a status is no new generation")

	changed := got.DeepCopy()
	changed.Spec.TTL.Duration = time.Hour
	changed.Status.NodeName = "mine"
	_, err := client.Update(t.Context(), changed, metav1.UpdateOptions{})
	require.NoError(t, err)
	got = s.get(t, name)
	assert.Equal(t, time.Hour, got.Spec.TTL.Duration)
	assert.Equal(t, want.NodeName, got.Status.NodeName, "an update of the object leaves the status")
	assert.EqualValues(t, 2, got.Generation)

	changed = got.DeepCopy()
	changed.Spec.TTL.Duration = 2 * time.Hour
	changed.Status.Consumed = "3/3"
	_, err = client.UpdateStatus(t.Context(), changed, metav1.UpdateOptions{})
	require.NoError(t, err)
	got = s.get(t, name)
	assert.Equal(t, time.Hour, got.Spec.TTL.Duration, "an update of the status leaves the spec")
	assert.Equal(t, "3/3", got.Status.Consumed)

	want.Phase = "Lost"
	assert.ErrorContains(t, s.setStatus(t, name, want), `status.phase: Unsupported value: "Lost"`)
	want = availableStatus()
	want.Slots[0].State = "Lost"
	assert.ErrorContains(t, s.setStatus(t, name, want), `status.slots[0].state: Unsupported value: "Lost"`)
}

func (s *suite) testFinalPhase(t *testing.T) {
	phases := []v1alpha1.ReservationPhase{
		v1alpha1.ReservationPending, v1alpha1.ReservationAvailable, v1alpha1.ReservationSucceeded,
		v1alpha1.ReservationExpired, v1alpha1.ReservationFailed, v1alpha1.ReservationPreempted,
	}
	for _, from := range phases {
		for _, to := range phases {
			t.Run(string(from)+" to "+string(to), func(t *testing.T) {
				name := strings.ToLower(fmt.Sprintf("from-%s-to-%s", from, to))
				require.NoError(t, s.reserve(t, name, one(`ttl: 10m`)))
				require.NoError(t, s.setStatus(t, name, v1alpha1.ReservationStatus{Phase: from}))
				err := s.setStatus(t, name, v1alpha1.ReservationStatus{Phase: to, ObservedGeneration: 1})
				if from.IsFinal() && from != to {
					assert.ErrorContains(t, err, "a reservation that has ended stays as it ended")
				} else {
					assert.NoError(t, err)
				}
			})
		}
	}
}
