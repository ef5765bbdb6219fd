package devices

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// TestReservedDevices has Reservations keep devices for pods that are to come.
func TestReservedDevices(t *testing.T) {
	c := newCluster(t, setup{nodes: 2})
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

// createConsumer creates a pod of an index, which may use the capacity of a Reservation.
func (c *cluster) createConsumer(name, claim, index string) {
	c.T.Helper()
	c.create(name, scheduler, claim, v1alpha1.ReservationIndexAnnotation, index)
}

func slotKeeps(c *cluster) {
	c.CreateDevice("slot-0", "node-0", "slot")
	c.CreateDevice("slot-1", "node-1", "slot")
	c.CreateReservation("slot", `{ttl: 0s, consumers: {index: slot}, slots: [{name: a, nodeName: node-1, requests: {cpu: 100m},
		devices: [{resourceName: nvidia.com/gpu, matchProperties: {model: slot}}]}]}`)
	c.AwaitReservation("slot", v1alpha1.ReservationAvailable)
	c.CreateDeviceClaim("slot-other", "slot", 1)
	c.CreateDeviceClaim("slot-another", "slot", 1)
	require.Equal(c.T, "GPU-slot-0", given(c.run("slot-other", "slot-other")), "the device that nobody keeps")
	c.create("slot-another", scheduler, "slot-another")
	c.AwaitRefused("slot-another")

	c.Server.Crash(c.T)
	c.CreateDeviceClaim("slot-consumer", "slot", 1)
	c.createConsumer("slot-consumer", "slot-consumer", "slot")
	consumer, _ := c.AwaitBound("slot-consumer")
	require.Equal(c.T, "GPU-slot-1", given(consumer))
	require.NotEmpty(c.T, consumer.Annotations[v1alpha1.MatchedReservationAnnotation])
	require.Empty(c.T, c.Pod("slot-another").Spec.NodeName)
	c.AwaitReservation("slot", v1alpha1.ReservationSucceeded)
	c.Delete("slot-other")
	another, _ := c.AwaitBound("slot-another")
	require.Equal(c.T, "GPU-slot-0", given(another))
	c.Delete("slot-another", "slot-consumer")
}

// deletedPodKeeps has a pod be deleted whose capacity is to be kept: its device is a part of that.
func deletedPodKeeps(c *cluster) {
	c.CreateDevice("back", "node-0", "back")
	c.CreateDeviceClaim("back", "back", 1)
	c.create("goes", scheduler, "back", v1alpha1.ReservationAnnotation, "true",
		v1alpha1.ReservationIndexAnnotation, "back", v1alpha1.ReservationTTLAnnotation, "10m")
	c.AwaitBound("goes")
	c.awaitClaim("back", v1alpha1.ExtendedResourceClaimBound)
	c.Delete("goes")
	c.AwaitReservation("goes", v1alpha1.ReservationAvailable)
	c.awaitClaim("back", v1alpha1.ExtendedResourceClaimPending)

	c.CreateDeviceClaim("thief", "back", 1)
	c.create("thief", scheduler, "thief")
	c.AwaitRefused("thief")
	c.Server.Crash(c.T)
	c.createConsumer("comes-back", "back", "back")
	back, _ := c.AwaitBound("comes-back")
	require.Equal(c.T, "GPU-back", given(back))
	require.Empty(c.T, c.Pod("thief").Spec.NodeName)
	c.Delete("comes-back")
	c.AwaitBound("thief")
	c.Delete("thief")
}

func slotExpires(c *cluster) {
	c.CreateDevice("short", "node-0", "short")
	c.awaitDevice("short", v1alpha1.ExtendedResourceAvailable)
	c.CreateReservation("short", `{ttl: 20s, consumers: {index: short}, slots: [{name: a, requests: {cpu: 100m},
		devices: [{resourceName: nvidia.com/gpu, matchProperties: {model: short}}]}]}`)
	c.AwaitReservation("short", v1alpha1.ReservationAvailable)
	c.CreateDeviceClaim("waits", "short", 1)
	c.create("waits", scheduler, "waits")
	c.AwaitRefused("waits")
	c.AwaitReservation("short", v1alpha1.ReservationExpired)
	pod, _ := c.AwaitBound("waits")
	require.Equal(c.T, "GPU-short", given(pod))
	c.Delete("waits")
}
