package devices

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// TestReservedDevices has Reservations keep devices for pods that are to come.
func TestReservedDevices(t *testing.T) {
	c := newCluster(t, setup{nodes: 2, args: quickStart})
	c.startScheduler(scheduler)
	for name, test := range map[string]func(*cluster){
		"a slot keeps devices":                     slotKeeps,
		"a deleted pod's devices are kept":         deletedPodKeeps,
		"the devices of an expired slot are freed": slotExpires,
	} {
		t.Run(name, func(t *testing.T) { test(c.in(t)) })
	}
	c.requireConsistent()
	c.verdict.requireGood(t)
}

// awaitReservation waits until a Reservation is in a phase, and returns it.
func (c *cluster) awaitReservation(name string, phase v1alpha1.ReservationPhase) (rsv *v1alpha1.Reservation) {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) {
		var err error
		rsv, err = c.objects.GlobalreserveV1alpha1().Reservations(namespace).Get(c.t.Context(), name, metav1.GetOptions{})
		if assert.NoError(t, err) {
			assert.Equal(t, phase, rsv.Status.Phase, "%+v", rsv.Status)
		}
	})
	return rsv
}

// createConsumer creates a pod of an index, which may use the room of a Reservation.
func (c *cluster) createConsumer(name, claim, index string) {
	c.t.Helper()
	pod := newPod(name, scheduler, claim)
	pod.Annotations[v1alpha1.ReservationIndexAnnotation] = index
	c.create(pod)
}

func slotKeeps(c *cluster) {
	c.createDevice("slot-0", "node-0", "slot")
	c.createDevice("slot-1", "node-1", "slot")
	c.apply(`
apiVersion: globalreserve.io/v1alpha1
kind: Reservation
metadata: {name: slot}
spec:
  ttl: 0s
  consumers: {index: slot}
  slots:
  - name: a
    nodeName: node-1
    requests: {cpu: 100m}
    devices: [{resourceName: nvidia.com/gpu, matchProperties: {model: slot}}]
`)
	c.awaitReservation("slot", v1alpha1.ReservationAvailable)
	c.createClaim("slot-other", "slot", 1)
	c.createClaim("slot-another", "slot", 1)
	require.Equal(c.t, "GPU-slot-0", given(c.run("slot-other", "slot-other")), "the device that nobody keeps")
	c.create(newPod("slot-another", scheduler, "slot-another"))
	c.awaitRefused("slot-another")

	c.server.Crash(c.t)
	c.createClaim("slot-consumer", "slot", 1)
	c.createConsumer("slot-consumer", "slot-consumer", "slot")
	consumer, _ := c.awaitBound("slot-consumer")
	require.Equal(c.t, "GPU-slot-1", given(consumer))
	require.NotEmpty(c.t, consumer.Annotations[v1alpha1.MatchedReservationAnnotation])
	require.Empty(c.t, c.pod("slot-another").Spec.NodeName)
	c.awaitReservation("slot", v1alpha1.ReservationSucceeded)
	c.deletePod("slot-other")
	another, _ := c.awaitBound("slot-another")
	require.Equal(c.t, "GPU-slot-0", given(another))
	c.deletePod("slot-another")
	c.deletePod("slot-consumer")
}

// deletedPodKeeps has a pod be deleted whose room is to be kept: its device is a part of that.
func deletedPodKeeps(c *cluster) {
	c.createDevice("back", "node-0", "back")
	c.createClaim("back", "back", 1)
	pod := newPod("goes", scheduler, "back")
	pod.Annotations[v1alpha1.ReservationAnnotation] = "true"
	pod.Annotations[v1alpha1.ReservationIndexAnnotation] = "back"
	pod.Annotations[v1alpha1.ReservationTTLAnnotation] = "10m"
	c.create(pod)
	c.awaitBound("goes")
	c.awaitClaim("back", v1alpha1.ExtendedResourceClaimBound)
	c.deletePod("goes")
	c.awaitReservation("goes", v1alpha1.ReservationAvailable)
	c.awaitClaim("back", v1alpha1.ExtendedResourceClaimPending)

	c.createClaim("thief", "back", 1)
	c.create(newPod("thief", scheduler, "thief"))
	c.awaitRefused("thief")
	c.server.Crash(c.t)
	c.createConsumer("comes-back", "back", "back")
	back, _ := c.awaitBound("comes-back")
	require.Equal(c.t, "GPU-back", given(back))
	require.Empty(c.t, c.pod("thief").Spec.NodeName)
	c.deletePod("comes-back")
	c.awaitBound("thief")
	c.deletePod("thief")
}

func slotExpires(c *cluster) {
	c.createDevice("short", "node-0", "short")
	c.awaitDevice("short", v1alpha1.ExtendedResourceAvailable)
	c.apply(`
apiVersion: globalreserve.io/v1alpha1
kind: Reservation
metadata: {name: short}
spec:
  ttl: 2s
  consumers: {index: short}
  slots:
  - name: a
    requests: {cpu: 100m}
    devices: [{resourceName: nvidia.com/gpu, matchProperties: {model: short}}]
`)
	c.awaitReservation("short", v1alpha1.ReservationAvailable)
	c.createClaim("waits", "short", 1)
	c.create(newPod("waits", scheduler, "waits"))
	c.awaitRefused("waits")
	c.awaitReservation("short", v1alpha1.ReservationExpired)
	pod, _ := c.awaitBound("waits")
	require.Equal(c.t, "GPU-short", given(pod))
	c.deletePod("waits")
}
