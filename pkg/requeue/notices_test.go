package requeue

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
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
)

var ref = ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "s"}

// newRig has nodes full and held of 4 CPUs: one with a pod of 4, one with a slot of 3.
func newRig(t *testing.T, consumers *metav1.LabelSelector) *world {
	w := makeWorld(t, "full", "held")
	w.observeBound(w.pod("there", "4", 0), "full")
	held := ledger.Slot{Ref: ref, Node: "held", Policy: ledger.Once, Request: placementtest.Request(3000)}
	require.True(t, w.ledger.ObserveSlot(held))
	w.reserveFor(ref, ledger.Once, consumers)
	return w
}

// TestRefusedForDevices has capacity for the pod everywhere, and its device is kept.
func TestRefusedForDevices(t *testing.T) {
	w := makeWorld(t, "n")
	placementtest.GPUs(w.ledger, "n", "gpu-0")
	claiming := func(name, claim string) *cluster.Pod {
		p := pod(name)
		p.Devices = &cluster.DeviceAnnotations{Claims: []string{claim}}
		return p
	}
	other := claiming("other", "d")
	require.True(t, w.ledger.ObserveSlot(ledger.Slot{
		Ref: ref, Node: "n", Policy: ledger.Once, Request: other.Request, Devices: placementtest.Claims(other),
	}))
	w.reserveFor(ref, ledger.Once, nil)
	w.TellRefused(claiming("p", "c"), []string{"n"})
	assert.Equal(t, []string{
		"Warning CapacityReserved node n would have capacity for this pod, but reservation ns/r/s keeps it for others",
	}, w.events())
}

// A pod gets Events on what is wrong with its claims, each once in a while, whatever its other Events are. While
// something is about to heal it gets none, and then one at once if it has not healed.
func TestRefusedForClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRig(t, nil)
		reason, note := ledger.DeviceClaimUnusable, "there is no claim c"
		w.trouble = func(*cluster.Pod) (ledger.Reason, string) { return reason, note }
		p := pod("p")
		told := func() []string {
			for range 3 {
				w.TellGangRefused(p, ledger.GangUnplaced, "there is too little for the gang")
				w.TellRefused(p, []string{"held"})
				<-time.After(lookAfter / 2)
			}
			return w.events()
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
			w.TellGangRefused(pod(fmt.Sprint("p-", i)), ledger.GangUnplaced, "all of them")
		}
		w.events()
		note = "there is no claim f"
		w.TellRefused(p, []string{"held"})
		assert.Equal(t, []string{"Warning DeviceClaimUnusable there is no claim f"}, w.events(),
			"other Events do not crowd it out")
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
	w.claimNotices = informer.NewEvents(broadcaster.NewRecorder(scheme.Scheme, "test"), eventsPerSecond, eventBurst)
	p := pod("p")
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
	both := []string{"full", "held", "unknown"}
	cases := map[string]struct {
		milliCPU  int64
		offered   []string
		consumers *metav1.LabelSelector
		want      string
	}{
		"because of the slot":                      {milliCPU: 2000, offered: both, want: blamed},
		"it would not fit without the slot either": {milliCPU: 5000, offered: both},
		"the node was not offered":                 {milliCPU: 2000, offered: []string{"full"}},
		"it fits beside the slot":                  {milliCPU: 1000, offered: both},
		"the slot is for it":                       {milliCPU: 2000, offered: both, consumers: &metav1.LabelSelector{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newRig(t, tc.consumers)
			p := pod("p")
			p.Request = placementtest.Request(tc.milliCPU)
			w.TellRefused(p, tc.offered)
			close(w.recorder.Events)
			assert.Equal(t, tc.want, <-w.recorder.Events)
		})
	}
}

// TestHowOften checks that pods tried again and again get Events now and then.
func TestHowOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRig(t, nil)
		told := func() int { return len(w.events()) }
		for range 100 {
			w.TellRefused(pod("p"), []string{"held"})
		}
		assert.Equal(t, 1, told())
		<-time.After(repeatAfter)
		w.TellRefused(pod("p"), []string{"held"})
		assert.Equal(t, 1, told())
		for i := range 10 * eventBurst {
			w.TellRefused(pod(fmt.Sprint("p-", i)), []string{"held"})
		}
		assert.Equal(t, eventBurst-1, told(), "all pods together, right after one")
		<-time.After(lookAfter)
		w.TellRefused(pod(fmt.Sprint("p-", 10*eventBurst-1)), []string{"held"})
		assert.Equal(t, 1, told(), "one that was left out")
	})
}

// A pod whose Binding is repeated gets an Event: who does so, how often, why it is refused and what to do.
func TestTellRepeated(t *testing.T) {
	w := newRig(t, nil)
	p := pod("p")
	p.Scheduler = "eager"
	r := &Refusal{Caller: "system:serviceaccount:eager:binder", Times: 100, Rejection: ledger.Rejection{
		Pod: p.Ref, Node: "full", Reason: ledger.InsufficientResource, Resource: "cpu", Requested: 2000,
	}}
	require.True(t, w.TellRepeated(p, r, 99*time.Second))
	assert.Equal(t,
		`Warning BindingRepeated scheduler "eager" (user "system:serviceaccount:eager:binder") has asked 100 times within 1m39s to bind `+
			`this pod to node full, and was refused each time. Put it behind the scheduler extender, which tells it where there is no capacity, `+
			`or see docs/integrations. The last reason: node "full" has too little cpu for pod ns/p: requested 2 CPU, 0 free`,
		<-w.recorder.Events)
	for range eventBurst - 1 {
		require.True(t, w.TellRepeated(p, r, time.Second))
	}
	assert.False(t, w.TellRepeated(p, r, time.Second), "it is left out: too many are written")
}

// A pod that is refused by several at once gets one Event.
func TestRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRig(t, nil)
		for i := range eventBurst {
			var refused sync.WaitGroup
			for range 8 {
				refused.Go(func() { w.TellRefused(pod(fmt.Sprint("p-", i)), []string{"held"}) })
			}
			refused.Wait()
			require.Len(t, w.recorder.Events, i+1)
		}
	})
}

// A pod that is refused for the sake of a gang gets an Event on why, now and then, and no other meanwhile.
func TestTellGangRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRig(t, nil)
		for range 100 {
			w.TellGangRefused(pod("p"), ledger.GangUnplaced, "there is too little for the gang")
			w.TellRefused(pod("p"), []string{"held"})
		}
		assert.Equal(t, []string{"Warning GangUnplaced there is too little for the gang"}, w.events())
		<-time.After(2 * lookAfter)
		w.TellGangRefused(pod("p"), ledger.GangUnplaced, "there is too little for the gang")
		require.Empty(t, w.recorder.Events)
		w.TellGangRefused(pod("p"), ledger.GangWaits, "another one comes first")
		assert.Equal(t, []string{"Warning GangWaits another one comes first"}, w.events(),
			"of another reason it is told at once")
		<-time.After(repeatAfter)
		w.TellGangRefused(pod("p"), ledger.GangWaits, "another one still comes first")
		assert.Equal(t, []string{"Warning GangWaits another one still comes first"}, w.events())
		for i := range 10 * eventBurst {
			w.TellGangRefused(pod(fmt.Sprint("p-", i)), ledger.GangUnplaced, "all of them")
		}
		assert.Len(t, w.recorder.Events, eventBurst-1, "all pods together, right after one")
		w.TellGangRefused(&cluster.Pod{}, ledger.GangUnplaced, "nobody knows it")
		assert.Len(t, w.recorder.Events, eventBurst-1)
	})
}
