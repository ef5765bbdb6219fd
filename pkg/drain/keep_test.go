package drain

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
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
		rsv.UID = types.UID(rsv.Name)
		rsv.Status.Phase = answer(rsv)
		rsv.Status.AvailableAt = &metav1.Time{Time: time.Now()}
		if rsv.Spec.TTL != nil {
			rsv.Status.ExpiresAt = &metav1.Time{Time: time.Now().Add(rsv.Spec.TTL.Duration)}
		}
		rsv.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAvailable, Message: "no node"}}
		for i := range rsv.Spec.Slots {
			rsv.Status.Slots = append(rsv.Status.Slots, v1alpha1.SlotStatus{
				Name: rsv.Spec.Slots[i].Name, NodeName: rsv.Spec.Slots[i].NodeName, State: v1alpha1.SlotReserved,
			})
		}
		return false, nil, nil
	})
	return client
}

func available(*v1alpha1.Reservation) v1alpha1.ReservationPhase { return v1alpha1.ReservationAvailable }

func TestKeepsPlaces(t *testing.T) {
	client := decided(available)
	d, _, _ := newDrain(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	d.Nodes, d.TTL, d.Reservations = []string{"a", "b"}, 5*time.Minute, client
	web, db := podOf("Deployment", "web", "web-1", "u1"), podOf("StatefulSet", "db", "db-0", "u2")
	web.Requests = reserver.Amounts{"cpu": 1500, "memory": 1 << 30, "pods": 1, "nvidia.com/gpu": 2}
	web.HostPorts = []string{"TCP/10.0.0.1:80", "UDP/fd00::1:53"}
	there := podOf("Deployment", "web", "web-2", "u3")
	there.Slot = "team/drain-x/y"
	nowhere, bare := podOf("Deployment", "web", "web-3", "u4"), podOf("", "", "bare", "u5")
	nowhere.To = ""
	why, err := d.keep(t.Context(), &Plan{Go: []*Pod{web, db, there, nowhere, bare}})
	require.NoError(t, err)
	assert.Empty(t, why)
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
		open, at, err := d.open(t.Context(), pod)
		require.NoError(t, err)
		assert.Equal(t, 1, open, pod.Pod)
		assert.NotNil(t, at, pod.Pod)
	}
	for _, pod := range []*Pod{podOf("Deployment", "other", "o", "u"), podOf("StatefulSet", "db", "db-1", "u")} {
		open, at, err := d.open(t.Context(), pod)
		require.NoError(t, err)
		assert.Zero(t, open, pod.Pod)
		assert.Nil(t, at, pod.Pod)
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
			why, err := d.keep(t.Context(), plan)
			assert.Equal(t, refused, err != nil, err)
			assert.Equal(t, !refused, why == "no node", why)
			list, err := d.list(t.Context(), "")
			require.NoError(t, err)
			assert.Empty(t, list)
		})
	}
}

// A Reservation goes again whose creation was not answered; what was kept before stays.
func TestLostAnswerOfACreation(t *testing.T) {
	client := decided(available)
	d := New(Options{Reservations: client, Nodes: []string{"a"}})
	why, err := d.keep(t.Context(), &Plan{Go: []*Pod{podOf("Deployment", "web", "web-1", "u1")}})
	require.NoError(t, err)
	require.Empty(t, why)
	client.PrependReactor("create", "reservations", func(a clienttesting.Action) (bool, runtime.Object, error) {
		rsv := a.(clienttesting.CreateAction).GetObject().(*v1alpha1.Reservation)
		rsv.Name, rsv.UID = "lost", "lost"
		assert.NoError(t, client.Tracker().Create(a.GetResource(), rsv, rsv.Namespace))
		return true, nil, apierrors.NewTimeoutError("it took too long", 1)
	})
	_, err = d.keep(t.Context(), &Plan{Go: []*Pod{podOf("Deployment", "other", "other-1", "u2")}})
	require.Error(t, err)
	list, err := d.list(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, "web", list[0].Spec.Consumers.Controller.Name)
}

// Anybody can put the label on Reservations of its own: they keep nothing for other pods, and are not put off.
func TestForeignReservationsWithTheLabel(t *testing.T) {
	client := decided(available)
	d := New(Options{Reservations: client, Nodes: []string{"a"}})
	_, err := client.GlobalreserveV1alpha1().Reservations("team").Create(t.Context(), &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "mine-", Labels: map[string]string{v1alpha1.DrainLabel: d.Name()}},
		Spec: v1alpha1.ReservationSpec{
			Consumers: &v1alpha1.ConsumerSpec{Index: "mine"}, Slots: []v1alpha1.Slot{{Name: "0"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	open, _, err := d.open(t.Context(), podOf("StatefulSet", "db", "db-0", "u"))
	require.NoError(t, err)
	assert.Zero(t, open)
	_, err = d.keep(t.Context(), &Plan{Go: []*Pod{podOf("Deployment", "web", "web-1", "u1")}})
	require.NoError(t, err)
	require.Len(t, d.relied, 1)
	for key := range d.relied {
		assert.Contains(t, key.Name, "-web-")
	}
}

// The end of the places moves along as long as the drain goes on; that of a run before this one is put off at once,
// and by no more than what is missing.
func TestPutsOffTheEnd(t *testing.T) {
	for _, resumed := range []time.Duration{0, 10 * time.Second, 3*time.Minute + 50*time.Second} {
		synctest.Test(t, func(t *testing.T) {
			client, complaints, kube := decided(available), &bytes.Buffer{}, kubefake.NewClientset()
			kube.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
				now := metav1.ObjectMeta{CreationTimestamp: metav1.Now()}
				return true, &authenticationv1.SelfSubjectReview{ObjectMeta: now}, nil
			})
			options := Options{
				Kube: kube, Reservations: client, Nodes: []string{"a"}, TTL: 4 * time.Minute, ErrOut: complaints,
			}
			d, web := New(options), podOf("Deployment", "web", "web-1", "u1")
			_, err := d.keep(t.Context(), &Plan{Go: []*Pod{web}})
			require.NoError(t, err)
			left := func() time.Duration {
				list, err := d.list(t.Context(), "team")
				require.NoError(t, err)
				return time.Until(list[0].Status.AvailableAt.Add(list[0].Spec.TTL.Duration))
			}
			if resumed > 0 {
				<-time.After(resumed)
				list, err := d.list(t.Context(), "team")
				require.NoError(t, err)
				d, web.Slot = New(options), "team/"+list[0].Name+"/web-1"
				_, err = d.keep(t.Context(), &Plan{Go: []*Pod{web}})
				require.NoError(t, err)
			}
			go d.putOff(t.Context())
			for range 10 {
				synctest.Wait()
				assert.Greater(t, left(), 4*time.Minute-2*time.Second)
				assert.Less(t, left(), 5*time.Minute)
				<-time.After(time.Minute + time.Millisecond)
			}
			assert.Empty(t, complaints.String())
		})
	}
}

// At the end pods are waited for that were made before the command was run again, and have a place still.
func TestWaitsForTheLastPods(t *testing.T) {
	for name, comes := range map[string]bool{"it comes": true, "it stays away": false} {
		synctest.Test(t, func(t *testing.T) {
			labels := map[string]string{"app": "web"}
			web := podOf("Deployment", "web", "web-1", "u1")
			waits := web.Object.DeepCopy()
			waits.Labels, waits.Spec.NodeName = map[string]string{"app": "web", "pod-template-hash": "h"}, ""
			waits.OwnerReferences[0].Kind, waits.OwnerReferences[0].Name = "ReplicaSet", "web-h"
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

// An owner of which it is not known what it makes takes no time from those that are known.
func TestUnknownOwnersComeLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := podOf("CloneSet", "a", "a-1", "u1")
		other.Unmanaged = true
		d, _, _ := newDrain()
		client := decided(available)
		d.Reservations = client
		_, err := d.keep(t.Context(), &Plan{Go: []*Pod{other, podOf("Deployment", "web", "web-1", "u2")}})
		require.NoError(t, err)
		client.ClearActions()
		began := time.Now()
		require.NoError(t, d.finish(t.Context()))
		assert.Equal(t, lastPods, time.Since(began), "its pod may come still")
		looked := client.Actions()[1].(clienttesting.GetAction) // after the list
		assert.Contains(t, looked.GetName(), "-web-")
		list, err := d.list(t.Context(), "")
		require.NoError(t, err)
		assert.Empty(t, list)
	})
}

// The same nodes are the same drain, in whatever order; the names of its Reservations are no other's.
func TestNames(t *testing.T) {
	name := New(Options{Nodes: []string{"b", "a"}}).Name()
	assert.Equal(t, name, New(Options{Nodes: []string{"a", "b", "a"}}).Name())
	assert.NotEqual(t, name, New(Options{Nodes: []string{"a"}}).Name())
	assert.NotEqual(t, name, New(Options{Nodes: []string{"a", "b", "c"}}).Name())
}
