package drain

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	reservationsfake "github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/fake"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// decided is an API server whose Reservations are decided on as soon as they are made.
func decided(answer func(rsv *v1alpha1.Reservation) v1alpha1.ReservationPhase) *reservationsfake.Clientset {
	client, made := reservationsfake.NewSimpleClientset(), 0
	client.PrependReactor("create", "reservations", func(a clienttesting.Action) (bool, runtime.Object, error) {
		rsv := a.(clienttesting.CreateAction).GetObject().(*v1alpha1.Reservation)
		made++
		rsv.Name = rsv.GenerateName + string(rune('a'+made))
		rsv.Status.Phase = answer(rsv)
		rsv.Status.AvailableAt = &metav1.Time{Time: time.Now()}
		rsv.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAvailable}}
		for i := range rsv.Spec.Slots {
			rsv.Status.Slots = append(rsv.Status.Slots, v1alpha1.SlotStatus{
				Name: rsv.Spec.Slots[i].Name, State: v1alpha1.SlotReserved,
			})
		}
		return false, nil, nil
	})
	return client
}

func available(*v1alpha1.Reservation) v1alpha1.ReservationPhase { return v1alpha1.ReservationAvailable }

func TestKeepsPlaces(t *testing.T) {
	client := decided(available)
	d := New(Options{Reservations: client, Nodes: []string{"b", "a", "b"}, TTL: 5 * time.Minute})
	web, db := podOf("Deployment", "web", "web-1", "u1"), podOf("StatefulSet", "db", "db-0", "u2")
	web.Requests = reserver.Amounts{"cpu": 1500, "memory": 1 << 30, "pods": 1, "nvidia.com/gpu": 2}
	web.HostPorts = []string{"TCP/10.0.0.1:80", "UDP/fd00::1:53"}
	there := podOf("Deployment", "web", "web-2", "u3")
	there.Slot = "team/drain-x/y"
	nowhere, bare := podOf("Deployment", "web", "web-3", "u4"), podOf("", "", "bare", "u5")
	nowhere.To = ""
	kept, err := d.keep(t.Context(), &Plan{Go: []*Pod{web, db, there, nowhere, bare}})
	require.NoError(t, err)
	assert.True(t, kept)
	list, err := d.list(t.Context(), "team")
	require.NoError(t, err)
	require.Len(t, list, 2)
	of := map[bool]*v1alpha1.Reservation{}
	for i := range list {
		assert.Equal(t, "a,b", list[i].Annotations[v1alpha1.DrainedNodesAnnotation])
		assert.Equal(t, 5*time.Minute, list[i].Spec.TTL.Duration)
		of[list[i].Spec.Consumers.Controller != nil] = &list[i]
	}
	assert.Equal(t, &v1alpha1.ControllerReference{Kind: "Deployment", Name: "web"}, of[true].Spec.Consumers.Controller)
	require.Len(t, of[true].Spec.Slots, 1)
	slot := of[true].Spec.Slots[0]
	assert.Equal(t, "b", slot.NodeName)
	assert.Len(t, slot.Requests, 3)
	for name, want := range map[v1.ResourceName]string{"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "2"} {
		assert.True(t, resource.MustParse(want).Equal(slot.Requests[name]), name)
	}
	assert.Equal(t, []v1alpha1.HostPort{
		{HostIP: "10.0.0.1", Protocol: v1.ProtocolTCP, Port: 80},
		{HostIP: "fd00::1", Protocol: v1.ProtocolUDP, Port: 53},
	}, slot.HostPorts)
	assert.Equal(t, []string{"db-0"}, of[false].Spec.Consumers.Selector.MatchExpressions[0].Values)

	for _, pod := range []*Pod{web, db} {
		has, err := d.hasSlot(t.Context(), pod)
		require.NoError(t, err)
		assert.True(t, has, pod.Pod)
	}
	for _, pod := range []*Pod{podOf("Deployment", "other", "o", "u"), podOf("StatefulSet", "db", "db-1", "u")} {
		has, err := d.hasSlot(t.Context(), pod)
		require.NoError(t, err)
		assert.False(t, has, pod.Pod)
	}
	require.NoError(t, d.giveBack(t.Context()))
	list, err = d.list(t.Context(), "")
	require.NoError(t, err)
	assert.Empty(t, list)
}

// All places are kept or none: those that could be go again, also where the API server refuses one.
func TestKeepsAllPlacesOrNone(t *testing.T) {
	for name, refused := range map[string]bool{"no capacity": false, "no right": true} {
		t.Run(name, func(t *testing.T) {
			client := decided(func(rsv *v1alpha1.Reservation) v1alpha1.ReservationPhase {
				if rsv.Spec.Consumers.Controller.Name == "c" {
					return v1alpha1.ReservationPending
				}
				return v1alpha1.ReservationAvailable
			})
			if refused {
				client.PrependReactor("create", "reservations", func(a clienttesting.Action) (bool, runtime.Object, error) {
					rsv := a.(clienttesting.CreateAction).GetObject().(*v1alpha1.Reservation)
					if rsv.Spec.Consumers.Controller.Name != "c" {
						return false, nil, nil
					}
					return true, nil, apierrors.NewForbidden(v1alpha1.Resource("reservations"), "", nil)
				})
			}
			d := New(Options{Reservations: client, Nodes: []string{"a"}})
			plan := &Plan{}
			for _, owner := range []string{"a", "b", "c", "d"} {
				plan.Go = append(plan.Go, podOf("Deployment", owner, owner+"-1", owner))
			}
			kept, err := d.keep(t.Context(), plan)
			assert.Equal(t, refused, err != nil, err)
			assert.False(t, kept)
			list, err := d.list(t.Context(), "")
			require.NoError(t, err)
			assert.Empty(t, list)
		})
	}
}

// The end of the places moves along as long as the drain goes on.
func TestPutsOffTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, complaints := decided(available), &bytes.Buffer{}
		d := New(Options{Reservations: client, Nodes: []string{"a"}, TTL: 4 * time.Minute, ErrOut: complaints})
		_, err := d.keep(t.Context(), &Plan{Go: []*Pod{podOf("Deployment", "web", "web-1", "u1")}})
		require.NoError(t, err)
		go d.putOff(t.Context())
		for range 10 {
			time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
			synctest.Wait()
			list, err := d.list(t.Context(), "team")
			require.NoError(t, err)
			end := list[0].Status.AvailableAt.Add(list[0].Spec.TTL.Duration)
			assert.InDelta(t, 4*time.Minute, time.Until(end), float64(2*time.Second))
		}
		assert.Empty(t, complaints.String())
	})
}

// At the end pods are waited for that were made before the command was run again, and have a place still.
func TestWaitsForTheLastPods(t *testing.T) {
	for name, comes := range map[string]bool{"it comes": true, "it stays away": false} {
		synctest.Test(t, func(t *testing.T) {
			labels := map[string]string{"app": "web"}
			web := podOf("Deployment", "web", "web-1", "u1")
			waits := web.Object.DeepCopy()
			waits.Labels, waits.Spec.NodeName = labels, ""
			d, _, cluster := newDrain(waits, &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web"},
				Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
			})
			d.Reservations = decided(available)
			_, err := d.keep(t.Context(), &Plan{Go: []*Pod{web}})
			require.NoError(t, err)
			if comes {
				time.AfterFunc(10*time.Second, func() {
					bound := waits.DeepCopy()
					bound.Spec.NodeName = "b"
					assert.NoError(t, cluster.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), bound, "team"))
				})
			}
			began := time.Now()
			err = d.finish(t.Context())
			assert.Equal(t, comes, err == nil, "%s: %v", name, err)
			assert.GreaterOrEqual(t, time.Since(began), 10*time.Second)
			list, err := d.list(t.Context(), "")
			require.NoError(t, err)
			assert.Equal(t, comes, len(list) == 0, "places stay kept for those that wait")
		})
	}
}

// The same nodes are the same drain, in whatever order; the names of its Reservations are no other's.
func TestNames(t *testing.T) {
	name := New(Options{Nodes: []string{"b", "a"}}).Name()
	assert.Equal(t, name, New(Options{Nodes: []string{"a", "b", "a"}}).Name())
	assert.NotEqual(t, name, New(Options{Nodes: []string{"a"}}).Name())
	assert.NotEqual(t, name, New(Options{Nodes: []string{"a", "b", "c"}}).Name())
}
