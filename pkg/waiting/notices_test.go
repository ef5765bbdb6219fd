package waiting

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/follow"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
)

func newPod(name string, milliCPU int64) *cluster.Pod {
	return &cluster.Pod{
		Ref: ledger.PodRef{Namespace: "ns", Name: name, UID: types.UID(name)}, Request: placementtest.Request(milliCPU),
	}
}

var ref = ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "s"}

// reserveFor has a reservation of one slot, which consumers may use, if there are any.
func (w *world) reserveFor(consumers *v1alpha1.ConsumerSpec) {
	require.NoError(w.t, w.Question.Matcher.Set(&v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name},
		Spec:       v1alpha1.ReservationSpec{Slots: []v1alpha1.Slot{{Name: ref.Slot}}, Consumers: consumers},
	}))
}

// newRig has nodes full and held of 4 CPUs: one with a pod of 4, one with a slot of 3.
func newRig(t *testing.T, consumers *v1alpha1.ConsumerSpec) *world {
	w := makeWorld(t, "full", "held")
	w.ledger.ObservePod(ledger.PodObservation{
		Pod: newPod("there", 0).Ref, Node: "full",
		Request: placementtest.Request(4000),
	})
	held := ledger.Slot{Ref: ref, Node: "held", Policy: ledger.Once, Request: placementtest.Request(3000)}
	require.True(t, w.ledger.ObserveSlot(held))
	w.reserveFor(consumers)
	return w
}

// TestRefusedForDevices has capacity for the pod everywhere, and its device is kept.
func TestRefusedForDevices(t *testing.T) {
	w := makeWorld(t, "n")
	placementtest.GPUs(w.ledger, "n", "gpu-0")
	claiming := func(pod, claim string) *cluster.Pod {
		p := newPod(pod, 1000)
		p.Devices = &cluster.DeviceAnnotations{Claims: []string{claim}}
		return p
	}
	other := claiming("other", "d")
	require.True(t, w.ledger.ObserveSlot(ledger.Slot{
		Ref: ref, Node: "n", Policy: ledger.Once, Request: other.Request, Devices: placementtest.Claims(other),
	}))
	w.reserveFor(nil)
	w.TellRefused(claiming("p", "c"), []string{"n"})
	require.Len(t, w.recorder.Events, 1)
	assert.Equal(t,
		"Warning CapacityReserved node n would have capacity for this pod, but reservation ns/r/s keeps it for others",
		<-w.recorder.Events)
}

// A pod is told what is wrong with its claims, each thing once in a while, whatever it is told else. While something is
// about to heal it is not told, and then at once if it has not.
func TestRefusedForClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRig(t, nil)
		reason, note := ledger.DeviceClaimUnusable, "there is no claim c"
		w.trouble = func(*cluster.Pod) (ledger.Reason, string) { return reason, note }
		p := newPod("p", 2000)
		told := func() (list []string) {
			for range 3 {
				w.TellGangRefused(p, ledger.GangUnplaced, "there is too little for the gang")
				w.TellRefused(p, []string{"held"})
				<-time.After(lookAfter / 2)
			}
			for len(w.recorder.Events) > 0 {
				list = append(list, <-w.recorder.Events)
			}
			return list
		}
		assert.Equal(t, []string{"Warning GangUnplaced there is too little for the gang"}, told(), "it has no claims")
		p.Devices = &cluster.DeviceAnnotations{Claims: []string{"c"}}
		assert.Equal(t, []string{"Warning DeviceClaimUnusable there is no claim c"}, told())
		note = "there is no claim d"
		assert.Equal(t, []string{"Warning DeviceClaimUnusable there is no claim d"}, told())
		<-time.After(repeatAfter)
		assert.Len(t, told(), 2, "of both again")
		reason = ledger.Fits
		assert.Empty(t, told())
		reason, note = ledger.DeviceClaimUnusable, "there is no claim e"
		assert.Equal(t, []string{"Warning DeviceClaimUnusable there is no claim e"}, told())
		for i := range 10 * eventBurst {
			w.TellGangRefused(newPod(fmt.Sprint("p-", i), 2000), ledger.GangUnplaced, "all of them")
		}
		for len(w.recorder.Events) > 0 {
			<-w.recorder.Events
		}
		note = "there is no claim f"
		w.TellRefused(p, []string{"held"})
		require.Len(t, w.recorder.Events, 1, "other Events do not crowd it out")
		assert.Equal(t, "Warning DeviceClaimUnusable there is no claim f", <-w.recorder.Events)
	})
}

// Each thing that is wrong with the claims of a pod is an Event of its own at the API server, which takes those for one
// that differ in the note alone.
func TestEventsAboutClaims(t *testing.T) {
	w := newRig(t, nil)
	client := fake.NewClientset()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	defer broadcaster.Shutdown()
	require.NoError(t, broadcaster.StartRecordingToSinkWithContext(t.Context()))
	w.claimNotices = follow.NewEvents(broadcaster.NewRecorder(scheme.Scheme, "test"), eventsPerSecond, eventBurst)
	p := newPod("p", 2000)
	p.Devices = &cluster.DeviceAnnotations{Claims: []string{"c"}}
	for _, note := range []string{"there is no claim c", "there is no claim d"} {
		w.trouble = func(*cluster.Pod) (ledger.Reason, string) { return ledger.DeviceClaimUnusable, note }
		w.TellRefused(p, []string{"held"})
		require.Eventually(t, func() bool {
			list, err := client.EventsV1().Events("ns").List(t.Context(), metav1.ListOptions{})
			return err == nil && slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return e.Note == note })
		}, time.Minute, time.Millisecond)
	}
}

func TestTellRefused(t *testing.T) {
	const blamed = "Warning CapacityReserved node held would have capacity for this pod, but reservation ns/r/s keeps " +
		"it for others"
	everybody := &v1alpha1.ConsumerSpec{Selector: &metav1.LabelSelector{}}
	both := []string{"full", "held", "unknown"}
	cases := map[string]struct {
		milliCPU  int64
		offered   []string
		consumers *v1alpha1.ConsumerSpec
		want      string
	}{
		"because of the slot":                      {milliCPU: 2000, offered: both, want: blamed},
		"it would not fit without the slot either": {milliCPU: 5000, offered: both},
		"the node was not offered":                 {milliCPU: 2000, offered: []string{"full"}},
		"it fits beside the slot":                  {milliCPU: 1000, offered: both},
		"the slot is for it":                       {milliCPU: 2000, offered: both, consumers: everybody},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newRig(t, tc.consumers)
			w.TellRefused(newPod("p", tc.milliCPU), tc.offered)
			close(w.recorder.Events)
			assert.Equal(t, tc.want, <-w.recorder.Events)
		})
	}
}

// TestHowOften checks that pods tried again and again are told now and then.
func TestHowOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRig(t, nil)
		told := func() int {
			n := len(w.recorder.Events)
			for range n {
				<-w.recorder.Events
			}
			return n
		}
		for range 100 {
			w.TellRefused(newPod("p", 2000), []string{"held"})
		}
		assert.Equal(t, 1, told())
		<-time.After(repeatAfter)
		w.TellRefused(newPod("p", 2000), []string{"held"})
		assert.Equal(t, 1, told())
		for i := range 10 * eventBurst {
			w.TellRefused(newPod(fmt.Sprint("p-", i), 2000), []string{"held"})
		}
		assert.Equal(t, eventBurst-1, told(), "all pods together, right after one")
		<-time.After(lookAfter)
		w.TellRefused(newPod(fmt.Sprint("p-", 10*eventBurst-1), 2000), []string{"held"})
		assert.Equal(t, 1, told(), "one that was left out")
	})
}

// A pod whose Binding is repeated is told who does so, how often, why it is refused and what to do.
func TestTellRepeated(t *testing.T) {
	w := newRig(t, nil)
	pod := newPod("p", 2000)
	pod.Scheduler = "eager"
	r := &Refusal{Caller: "system:serviceaccount:eager:binder", Times: 100, Rejection: ledger.Rejection{
		Pod: pod.Ref, Node: "full", Reason: ledger.InsufficientResource, Resource: "cpu", Requested: 2000,
	}}
	require.True(t, w.TellRepeated(pod, r, 99*time.Second))
	assert.Equal(t,
		`Warning BindingRepeated scheduler "eager" (user "system:serviceaccount:eager:binder") has asked 100 times within 1m39s to bind `+
			`this pod to node full, and was refused each time. Put it behind the scheduler extender, which tells it where there is no capacity, `+
			`or see docs/integrations. The last reason: node "full" has too little cpu for pod ns/p: requested 2 CPU, 0 free`,
		<-w.recorder.Events)
	for range eventBurst - 1 {
		require.True(t, w.TellRepeated(pod, r, time.Second))
	}
	assert.False(t, w.TellRepeated(pod, r, time.Second), "it is left out: too many are written")
}

// A pod that is refused by several at once is told once.
func TestRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRig(t, nil)
		for i := range eventBurst {
			var refused sync.WaitGroup
			for range 8 {
				refused.Go(func() { w.TellRefused(newPod(fmt.Sprint("p-", i), 2000), []string{"held"}) })
			}
			refused.Wait()
			require.Len(t, w.recorder.Events, i+1)
		}
	})
}

// Who is refused for the sake of a gang is told why, now and then, and nothing else meanwhile.
func TestTellGangRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRig(t, nil)
		for range 100 {
			w.TellGangRefused(newPod("p", 2000), ledger.GangUnplaced, "there is too little for the gang")
			w.TellRefused(newPod("p", 2000), []string{"held"})
		}
		require.Len(t, w.recorder.Events, 1)
		assert.Equal(t, "Warning GangUnplaced there is too little for the gang", <-w.recorder.Events)
		<-time.After(2 * lookAfter)
		w.TellGangRefused(newPod("p", 2000), ledger.GangUnplaced, "there is too little for the gang")
		require.Empty(t, w.recorder.Events)
		w.TellGangRefused(newPod("p", 2000), ledger.GangWaits, "another one comes first")
		require.Len(t, w.recorder.Events, 1, "of another reason it is told at once")
		assert.Equal(t, "Warning GangWaits another one comes first", <-w.recorder.Events)
		<-time.After(repeatAfter)
		w.TellGangRefused(newPod("p", 2000), ledger.GangWaits, "another one still comes first")
		require.Len(t, w.recorder.Events, 1)
		assert.Equal(t, "Warning GangWaits another one still comes first", <-w.recorder.Events)
		for i := range 10 * eventBurst {
			w.TellGangRefused(newPod(fmt.Sprint("p-", i), 2000), ledger.GangUnplaced, "all of them")
		}
		assert.Len(t, w.recorder.Events, eventBurst-1, "all pods together, right after one")
		w.TellGangRefused(&cluster.Pod{}, ledger.GangUnplaced, "nobody knows it")
		assert.Len(t, w.recorder.Events, eventBurst-1)
	})
}
