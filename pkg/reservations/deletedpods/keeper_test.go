package deletedpods

import (
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reservations/store/storetest"
	"github.com/globalreserve/globalreserve/test/bubble"
)

func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.remove(pod("p", func(p *cluster.Pod) {
			p.Annotations.TTL, p.Annotations.Godel, p.Caller = "90", true, "c"
			p.Controller = cluster.Controller{Kind: "StatefulSet", Name: "db"}
		}))
		assert.Equal(t, []string{"ns/p/deleted-pod"}, w.slots())
		assert.Equal(t, []string{"ns/p/deleted-pod"}, w.told, "who wakes pods hears of it when it can be matched")
		synctest.Wait()
		rsv := w.object("p")
		require.NotNil(t, rsv)
		assert.Equal(t, convert.MadeByDeletedPod, rsv.Labels[convert.MadeByLabel])
		assert.Equal(t, map[string]string{
			v1alpha1.CallerAnnotation: "c", podUIDAnnotation: "uid-of-p",
			v1alpha1.GodelReservationAnnotation: "true",
		}, rsv.Annotations)
		assert.Equal(t, &v1alpha1.ConsumerSpec{Index: "i"}, rsv.Spec.Consumers, "the index comes before the controller")
		assert.Equal(t, 90*time.Second, rsv.Spec.TTL.Duration)
		assert.Equal(t, v1alpha1.AllocateOnce, rsv.Spec.AllocatePolicy)
		assert.Equal(t, "s", rsv.Spec.SchedulerName)
		assert.EqualValues(t, 7, *rsv.Spec.Priority)
		require.Len(t, rsv.Spec.Slots, 1)
		assert.Equal(t, "n", rsv.Spec.Slots[0].NodeName)
		assert.EqualValues(t, 2000, rsv.Spec.Slots[0].Requests.Cpu().MilliValue())
		back, err := convert.Slots(w.ledger.Table(), rsv)
		require.NoError(t, err)
		held, _ := w.ledger.Slots()
		assert.True(t, back[0].Request.Equal(held[0].Request), "the object says what is held")
		assert.Equal(t, back[0].Ref, held[0].Ref)
		assert.True(t, w.matcher.Origin("ns", "p").Godel)
		assert.WithinDuration(t, time.Now().Add(90*time.Second), held[0].Deadline, time.Second)
		assert.WithinDuration(t, time.Now(), held[0].AvailableAt, time.Second)
		assert.Empty(t, w.events())
		assert.Empty(t, w.tasks)
	})
}

func TestWithoutIndexAndController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.remove(pod("p", func(p *cluster.Pod) { p.Annotations.Index = "" }))
		synctest.Wait()
		assert.Equal(t, &v1alpha1.PodReference{Name: "p"}, w.object("p").Spec.Slots[0].Pod)
		_, ok := w.ledger.SlotFor(ledger.PodRef{Namespace: "ns", Name: "p", UID: "another"})
		assert.True(t, ok)
	})
}

func TestNotKept(t *testing.T) {
	type testCase struct {
		setup func(w *world)
		pod   func(*cluster.Pod)
	}
	tests := map[string]testCase{
		"nobody asks":                    {pod: func(p *cluster.Pod) { p.Annotations = nil }},
		"no Reservations can be made":    {setup: func(w *world) { w.serving = false }},
		"the policy keeps none":          {setup: (*world).switchOff},
		"its Deployment does not ask":    {pod: ofDeployment},
		"a gate refuses it":              {pod: func(p *cluster.Pod) { p.Scheduler, p.Caller = "limited", "not-listed" }},
		"its StatefulSet cannot ask":     {pod: func(p *cluster.Pod) { ofDeployment(p); p.Controller.Kind = "StatefulSet" }},
		"it was deleted for another pod": {pod: func(p *cluster.Pod) { p.Preempted = true }},
	}
	bubble.Each(t, tests, func(t *testing.T, tt testCase) {
		w := newWorld(t, deployment("web", map[string]string{"globalreserve.io/reservation-ttl": "1m"}))
		synctest.Wait()
		if tt.setup != nil {
			tt.setup(w)
		}
		w.remove(pod("p", tt.pod))
		assert.Empty(t, w.slots())
		pass(time.Minute)
		assert.Zero(t, w.api.CreateCount)
		assert.Empty(t, w.candidates())
	})
}

// What the Deployment says counts as it is when the pod goes.
func TestDeployment(t *testing.T) {
	asks := map[string]string{"globalreserve.io/reservation": "true", "globalreserve.io/reservation-ttl": "10m"}
	type testCase struct {
		now  *metav1.PartialObjectMetadata // nil: as it was listed
		gone bool
		want time.Duration // of the object; 0: none
	}
	tests := map[string]testCase{
		"asks": {want: 10 * time.Minute},
		"asks for another ttl now": {now: deployment("web", map[string]string{
			"globalreserve.io/reservation":     "true",
			"globalreserve.io/reservation-ttl": "20m",
		}), want: 20 * time.Minute},
		"does not ask any more": {now: deployment("web", nil)},
		"says false now":        {now: deployment("web", map[string]string{"globalreserve.io/reservation": "false"})},
		"is gone":               {gone: true},
		"is going":              {now: going(deployment("web", asks))},
	}
	bubble.Each(t, tests, func(t *testing.T, tt testCase) {
		w := newWorld(t, deployment("web", asks))
		synctest.Wait()
		if tt.now != nil {
			require.NoError(t, w.metadata.Tracker().Update(deployments, tt.now, "ns"))
		}
		if tt.gone {
			require.NoError(t, w.metadata.Tracker().Delete(deployments, "ns", "web"))
		}
		synctest.Wait()
		w.remove(pod("p", ofDeployment))
		kept := len(w.slots())
		synctest.Wait()
		if tt.want == 0 {
			assert.Zero(t, kept)
			assert.Empty(t, w.names())
			return
		}
		assert.Equal(t, 1, kept, "at once")
		require.Equal(t, []string{"p"}, w.names())
		rsv := w.object("p")
		assert.Equal(t, tt.want, rsv.Spec.TTL.Duration)
		assert.Equal(t, "web", rsv.Spec.Consumers.Controller.Name)
		views, _ := w.ledger.Slots()
		assert.WithinDuration(t, time.Now().Add(tt.want), views[0].Deadline, 10*time.Second)
	})
}

func TestOnlyMarksAreKeptOfDeployments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, deployment("web", map[string]string{
			"godel.bytedance.com/reservation":                  "true",
			"kubectl.kubernetes.io/last-applied-configuration": "long",
		}))
		synctest.Wait()
		assert.Equal(t, &cluster.Annotations{Keep: cluster.KeepYes, Godel: true}, w.Deployments.marks("ns", "web"))
		assert.Nil(t, w.Deployments.marks("other", "web"))
		kept := w.Deployments.Watch.Get("ns/web").(*metav1.PartialObjectMetadata)
		assert.Equal(t, map[string]string{"godel.bytedance.com/reservation": "true"}, kept.Annotations)
		assert.Empty(t, kept.Labels)
	})
}

func TestCreating(t *testing.T) {
	fates := func(n int, f storetest.Fate) []storetest.Fate { return slices.Repeat([]storetest.Fate{f}, n) }
	reset := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	never := func(err error) storetest.Fate { return storetest.Fate{Never: true, Err: err} }
	refused := func(why string) storetest.Fate {
		return never(apierrors.NewForbidden(v1alpha1.Resource("reservations"), "p", errors.New(why)))
	}
	lost, away := never(reset), never(apierrors.NewInternalError(errors.New("no")))
	forbidden := refused("the namespace is going")
	quota := refused("exceeded quota: q, requested: count/reservations.globalreserve.io=1")
	unknown := never(apierrors.NewUnauthorized("not yet"))
	noRight := refused(`User "server" cannot create resource "reservations"`)
	type testCase struct {
		creates []storetest.Fate
		kept    bool
		lasts   bool // what becomes of the creates, until the slot ends
		events  int
	}
	tests := map[string]testCase{
		"at once":                                      {kept: true},
		"the API server is away":                       {creates: fates(3, away), kept: true},
		"the answer is lost":                           {creates: fates(1, storetest.Fate{Err: reset}), kept: true},
		"the request is lost":                          {creates: fates(2, lost), kept: true},
		"it is refused for good":                       {creates: fates(1, forbidden), events: 1},
		"it is never known":                            {creates: fates(1000, lost), lasts: true},
		"the server is not known for a moment":         {creates: fates(2, unknown), kept: true},
		"a right is missing for a moment":              {creates: fates(2, noRight), kept: true},
		"a right is missing for long":                  {creates: fates(1000, noRight), lasts: true},
		"a quota counts the one whose answer was lost": {creates: []storetest.Fate{{Err: reset}, quota}, kept: true},
		"a quota counts the one that is being made": {
			creates: append([]storetest.Fate{{Err: reset, Commit: time.Second}}, fates(1000, quota)...), kept: true,
		},
		"it is refused after a while": {creates: append(fates(3, lost), fates(1000, forbidden)...), events: 1},
	}
	bubble.Each(t, tests, func(t *testing.T, tt testCase) {
		w := newWorld(t)
		w.api.NextCreates(tt.creates...)
		w.remove(pod("p", nil))
		pass(30 * time.Second)
		if tt.lasts {
			assert.Len(t, w.slots(), 1, "as long as it lasts")
			w.ledger.Expire(time.Now().Add(time.Hour))
			pass(time.Minute)
		}
		objects, slots := []string{}, []string{}
		if tt.kept {
			objects, slots = []string{"p"}, []string{"ns/p/deleted-pod"}
		}
		assert.Equal(t, objects, w.names())
		assert.Equal(t, slots, w.slots())
		assert.Len(t, w.events(), tt.events)
		assert.Len(t, w.candidates(), len(slots))
		assert.Empty(t, w.tasks)
	})
}

// After a lost answer an object of the name may be another's, which keeps nothing of this pod.
func TestRefusedWhereAnotherHasTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write("p")
		w.api.NextCreates(
			storetest.Fate{Never: true, Err: &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}},
			storetest.Fate{Never: true, Err: apierrors.NewForbidden(v1alpha1.Resource("reservations"), "p",
				errors.New("exceeded quota"))})
		w.remove(pod("p", nil))
		pass(30 * time.Second)
		assert.Empty(t, w.slots())
		assert.Equal(t, 1, w.api.GetCount)
		assert.Len(t, w.events(), 1)
	})
}

// A slot that is used up, or given back by somebody, needs no object. The pod that used it up may go, too, while the
// object is written.
func TestUsedUpWhileItsObjectIsWritten(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	type testCase struct {
		create         storetest.Fate
		again          bool // a second pod of the name goes
		objects, slots []string
	}
	tests := map[string]testCase{
		"and never is": {
			create: storetest.Fate{Delay: time.Second, Never: true, Err: refused}, objects: []string{}, slots: []string{},
		},
		"and the name again": {
			create: storetest.Fate{Delay: time.Second}, again: true, objects: []string{"p", "p-second"},
			slots: []string{"ns/p-second/deleted-pod"},
		},
	}
	bubble.Each(t, tests, func(t *testing.T, tt testCase) {
		w := newWorld(t)
		w.api.NextCreates(tt.create)
		w.remove(pod("p", nil))
		synctest.Wait()
		back := pod("back", nil)
		placement := back.Placement("n")
		placement.Slots = []ledger.SlotRef{{Namespace: "ns", Name: "p", Slot: slotName}}
		grant, rejection := w.ledger.StartBind(&placement, time.Now())
		require.Nil(t, rejection)
		require.Equal(t, "ns/p/deleted-pod", grant.Slot.String())
		require.True(t, w.ledger.Confirm(back.Ref, "n"))
		if tt.again {
			w.remove(pod("p", func(p *cluster.Pod) { p.Ref.UID = "second" }))
			require.Equal(t, []string{"ns/p/deleted-pod"}, w.slots())
		}
		pass(time.Minute)
		assert.Equal(t, tt.objects, w.names())
		assert.Equal(t, tt.slots, w.slots())
		assert.Len(t, w.candidates(), len(tt.slots))
		assert.Empty(t, w.tasks)
	})
}

func TestNamesThatAreTaken(t *testing.T) {
	suffix := "p-uid-of-p"
	type testCase struct {
		setup   func(w *world)
		objects []string
		slots   []string
		events  int
	}
	tests := map[string]testCase{
		"known before": {
			func(w *world) { w.taken["p"] = true }, []string{suffix}, []string{"ns/" + suffix + "/deleted-pod"}, 0,
		},
		"by a slot": {func(w *world) {
			w.ledger.ObserveSlot(ledger.Slot{
				Ref: ledger.SlotRef{Namespace: "ns", Name: "p", Slot: "x"}, Node: "n",
				Request: pod("p", nil).Request,
			})
		}, []string{suffix}, []string{"ns/p/x", "ns/" + suffix + "/deleted-pod"}, 0},
		"found when it is created": {
			func(w *world) { w.write("p") }, []string{"p", suffix}, []string{"ns/" + suffix + "/deleted-pod"}, 0,
		},
		"all of them": {func(w *world) { w.write("p"); w.write(suffix) }, []string{"p", suffix}, []string{}, 1},
		"all of them, known before": {
			func(w *world) { w.taken["p"], w.taken[suffix] = true, true }, []string{}, []string{}, 1,
		},
	}
	bubble.Each(t, tests, func(t *testing.T, tt testCase) {
		w := newWorld(t)
		tt.setup(w)
		w.remove(pod("p", nil))
		pass(10 * time.Second)
		assert.ElementsMatch(t, tt.objects, w.names())
		assert.ElementsMatch(t, tt.slots, w.slots())
		assert.Len(t, w.events(), tt.events)
		assert.Empty(t, w.tasks)
		w.taken["p"], w.taken[suffix] = true, true
		_, _, keep := w.Keep(pod("p", nil)) // one that finishes while it is deleted ends twice
		assert.False(t, keep)
		assert.Empty(t, w.events(), "it has no capacity any more")
	})
}

func TestBadTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.remove(pod("p", func(p *cluster.Pod) { p.Annotations.TTL = "soon" }))
		synctest.Wait()
		assert.Equal(t, time.Minute, w.object("p").Spec.TTL.Duration)
		list := w.events()
		require.Len(t, list, 1)
		assert.Contains(t, list[0],
			`Warning InvalidReservationTTL annotation globalreserve.io/reservation-ttl: "soon" is no duration`)
	})
}
