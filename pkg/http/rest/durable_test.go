package rest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// durable runs a test of a durable API with a clock of its own.
func durable(t *testing.T, test func(t *testing.T, d *fixture)) {
	synctest.Test(t, func(t *testing.T) { test(t, newDurable(t)) })
}

// each runs a test of a durable API with each case, in a bubble of its own.
func each[T any](t *testing.T, cases map[string]T, test func(t *testing.T, d *fixture, tc T)) {
	bubble.Each(t, cases, func(t *testing.T, tc T) { test(t, newDurable(t), tc) })
}

// inMemory is durable in a cluster that does not know Reservations.
func inMemory(t *testing.T, test func(t *testing.T, d *fixture)) {
	durable(t, func(t *testing.T, d *fixture) {
		d.NoKind = true
		test(t, d)
	})
}

// elapse lets time go by in a bubble.
func elapse(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // in a bubble
	synctest.Wait()
}

func TestNameOfTheObject(t *testing.T) {
	durable(t, func(t *testing.T, d *fixture) {
		request := gangOf("node-1", aPod("a", "1", "1Gi"))
		request.Name, request.Namespace, request.RequestID = "job-1", "team-a", "1"
		assert.Equal(t, "team-a/job-1", d.reserve(request).Reservation)

		byID := gangOf("node-1", aPod("b", "1", "1Gi"))
		byID.RequestID = "2"
		name := d.reserve(byID).Reservation
		assert.Regexp(t, "^team-a/reserve-[0-9a-f]{24}$", name)
		theirs := gangOf("node-1", aPod("c", "1", "1Gi"))
		theirs.SchedulerName, theirs.RequestID = "theirs", "2"
		assert.NotEqual(t, name, d.reserve(theirs).Reservation, "each scheduler has its own RequestIDs")
		assert.Equal(t, "2", d.Store.Object("team-a", name[len("team-a/"):]).Annotations["globalreserve.io/request-id"])

		random := gangOf("node-1", aPod("d", "1", "1Gi"))
		assert.Regexp(t, "^team-a/reserve-[a-z0-9]{26}$", d.reserve(random).Reservation)
	})
}

// Whether a request that does not say is durable depends on the cluster.
func TestWhatIsDurable(t *testing.T) {
	type testCase struct {
		asked   *bool
		noKind  bool
		objects int
		failed  bool
	}
	each(t, map[string]testCase{
		"by default":                   {objects: 1},
		"asked for":                    {asked: ptr.To(true), objects: 1},
		"in memory":                    {asked: ptr.To(false)},
		"by default, without the kind": {noKind: true},
		"in memory, without the kind":  {noKind: true, asked: ptr.To(false)},
		"asked for, and not to be had": {noKind: true, asked: ptr.To(true), failed: true},
	}, func(t *testing.T, d *fixture, tc testCase) {
		d.NoKind = tc.noKind
		request := gangOf("node-1", aPod("a", "1", "1Gi"))
		request.Durable, request.RequestID = tc.asked, "1"
		answer := d.reserve(request)
		assert.Len(t, d.Store.All(), tc.objects)
		assert.Equal(t, tc.objects > 0, answer.Reservation != "")
		assert.Equal(t, tc.objects > 0 || tc.failed, answer.Durable)
		if !tc.failed {
			assert.Empty(t, answer.Error)
			return
		}
		assert.Contains(t, answer.Error, "install manifests/crd")
		assert.Equal(t, []string{"a"}, answer.FailedPods)
		d.NoKind = false
		assert.Empty(t, d.reserve(request).Error, "such an answer is not kept")
	})
}

// Pods that hold capacity on the node already are a success, whoever asks again.
func TestDurableRepeatWithoutRequestID(t *testing.T) {
	durable(t, func(t *testing.T, d *fixture) {
		a, b, c := aPod("a", "1", "1Gi"), aPod("b", "1", "1Gi"), aPod("c", "1", "1Gi")
		first := d.reserve(gangOf("node-1 node-1", a, b))
		again := d.reserve(gangOf("node-1 node-1", a, b))
		assert.Equal(t, first.Reservation, again.Reservation)
		assert.Equal(t, first.ExpiresAt, again.ExpiresAt)
		slots, _ := d.ledger.Slots()
		assert.Equal(t, time.Now(), slots[0].AvailableAt, "it is told since when it is kept")
		assert.Equal(t, 1, d.Store.CreateCount)

		more := d.reserve(gangOf("node-1 node-1", b, c))
		assert.Empty(t, more.Error)
		assert.NotEqual(t, first.Reservation, more.Reservation)
		assert.Len(t, d.Store.Object("team-a", strings.TrimPrefix(more.Reservation, "team-a/")).Spec.Slots, 1,
			"b has capacity")

		assert.Empty(t, d.reserve(memoryOnly("node-1", a)).Error, "an allocation in its slot")
		assert.Empty(t, d.reserve(gangOf("node-1 node-1", a, b)).Error, "a is reserved in its slot")

		d.bind(a, "node-1")
		d.bind(b, "node-1")
		bound := d.reserve(gangOf("node-1 node-1", a, b))
		assert.Empty(t, bound.Error)
		assert.Empty(t, bound.Reservation)
		assert.Zero(t, bound.ExpiresAt)
	})
}

func TestDurableRefusals(t *testing.T) {
	small := func() *v1.Pod { return aPod("a", "1", "1Gi") }
	smallOn := func(node string) body { return gangOf(node, small()) }
	large := gangOf("node-1", aPod("a", "2", "1Gi"))
	named := func(request body) body { request.Name = "job"; return request }
	object := func(d *fixture) { d.reserve(smallOn("node-1")) }
	memory := func(d *fixture) { d.reserve(memoryOnly("node-1", small())) }
	shared := func(d *fixture) {
		slot := ledger.Slot{
			Ref: ledger.SlotRef{Namespace: "team-a", Name: "shared", Slot: "s"}, Node: "node-1", Policy: ledger.Aligned,
			Request: &resources.Request{Amounts: []resources.Amount{{Column: resources.CPU, Value: 1000}}},
		}
		d.ledger.ObserveSlot(slot)
		d.ledger.Reserve(ledger.NewPlan([]ledger.Placement{{
			Pod: ledger.PodRef{Namespace: "team-a", Name: "a", UID: "uid-a"}, Node: "node-1", Request: slot.Request,
			Scheduler: testScheduler, Slots: []ledger.SlotRef{slot.Ref},
		}}, ledger.AllOrNothing, time.Now().Add(time.Minute)), time.Now())
	}
	const otherAmount = "for another request of resources"
	type testCase struct {
		before          func(d *fixture)
		request         body
		reason, message string
	}
	each(t, map[string]testCase{
		"reserved on another node": {
			object, smallOn("node-2"), "AllocatedElsewhere", `already has an allocation on node "node-1"`,
		},
		"reserved for another amount": {object, large, "SlotExists", otherAmount},
		"reserved by this name for another amount": {
			func(d *fixture) { d.reserve(named(smallOn("node-1"))) }, named(large), "SlotExists", otherAmount,
		},
		"reserved in memory": {memory, smallOn("node-1"), "PodAllocated", "in memory"},
		"reserved in memory in its slot, for another amount": {
			func(d *fixture) { object(d); memory(d) }, large, "SlotExists", otherAmount,
		},
		"reserved in memory in a slot for others, too": {shared, smallOn("node-1"), "PodAllocated", "in memory"},
	}, func(t *testing.T, d *fixture, tc testCase) {
		tc.before(d)
		slots, writes := d.slots(), d.Store.Writes
		answer := d.reserve(tc.request)
		assert.Contains(t, answer.Error, "nothing was reserved, 1 of 1 pods were refused")
		assert.True(t, answer.Durable)
		require.Len(t, answer.Rejections, 1)
		assert.Equal(t, tc.reason, answer.Rejections[0].Reason)
		assert.Contains(t, answer.Rejections[0].Message, tc.message)
		assert.Equal(t, slots, d.slots())
		assert.Equal(t, writes, d.Store.Writes)
	})
}

// A slot of the name that is for an older pod gives the new one nothing.
func TestNameOfAnOlderReservation(t *testing.T) {
	durable(t, func(t *testing.T, d *fixture) {
		request := gangOf("node-1", aPod("a", "1", "1Gi"))
		request.Name = "job"
		require.Empty(t, d.reserve(request).Error)
		newer := aPod("a", "1", "1Gi")
		newer.UID = "uid-2"
		request.Pods = []*v1.Pod{newer, aPod("b", "1", "1Gi")}
		request.Nodes = []string{"node-1", "node-1"}
		answer := d.reserve(request)
		assert.Equal(t, []string{"a"}, answer.FailedPods)
		assert.Equal(t, "SlotExists", answer.Rejections[0].Reason)
		assert.Contains(t, answer.Error, "choose another Name")
		assert.Contains(t, answer.Error, "reservation team-a/job was made before and keeps what it has")
		assert.Equal(t, d.written(), d.slots())

		request.Pods, request.Nodes = []*v1.Pod{aPod("c", "1", "1Gi")}, []string{"node-1"}
		code, taken := d.ask("/reserve", request)
		assert.Equal(t, http.StatusConflict, code)
		assert.Contains(t, taken.Error, "another reservation team-a/job")
		assert.Equal(t, d.written(), d.slots())
	})
}

// What becomes of the write decides what is answered, and what is kept.
func TestOutcomesOfTheWrite(t *testing.T) {
	never := func(err error) fate { return fate{Never: true, Err: err} }
	const unwritten, unknown = "nothing was reserved", "it is not known whether"
	type testCase struct {
		creates, gets []fate
		want          string // part of the error; empty where it is granted
		within        time.Duration
		written       bool // in the end
	}
	each(t, map[string]testCase{
		"written":   {written: true},
		"forbidden": {creates: []fate{never(errForbidden)}, want: unwritten},
		"too many requests, then written": {
			creates: []fate{never(errTooMany), never(errTooMany)}, within: 3 * time.Second, written: true,
		},
		"too many requests":         {creates: repeat(20, never(errTooMany)), want: unwritten, within: 10 * time.Second},
		"answer lost, then found":   {creates: []fate{{Err: errLost}}, written: true},
		"not written, then written": {creates: []fate{never(errInternal)}, within: time.Second, written: true},
		"lost, then forbidden, but written": {
			creates: []fate{{Err: errLost, Commit: 20 * time.Millisecond}, never(errForbidden)},
			within:  time.Second, written: true,
		},
		"lost, then forbidden": {creates: []fate{never(errLost), never(errForbidden)}, want: unknown, within: time.Second},
		"API server gone": {
			creates: repeat(20, never(errLost)), gets: repeat(20, never(errLost)), want: unknown, within: 10 * time.Second,
		},
		"API server gone, written all along": {
			creates: repeat(20, fate{Err: errLost}), gets: repeat(25, never(errLost)), want: unknown, within: 10 * time.Second,
			written: true,
		},
	}, func(t *testing.T, d *fixture, tc testCase) {
		d.Store.Creates, d.Store.Gets = tc.creates, tc.gets
		request := gangOf("node-1 node-2", aPod("a", "1", "1Gi"), aPod("b", "1", "1Gi"))
		request.RequestID = "1"
		start := time.Now()
		code, answer := d.ask("/reserve", request)
		assert.LessOrEqual(t, time.Since(start), tc.within)
		assert.Contains(t, answer.Error, tc.want)
		assert.Equal(t, tc.want == "", answer.Error == "", answer.Error)
		assert.Equal(t, tc.want == unknown, code == http.StatusBadGateway)
		if tc.want != "" {
			assert.Equal(t, []string{"a", "b"}, answer.FailedPods)
			assert.Empty(t, answer.Reservation)
			assert.Equal(t, 1, d.Counted(t, "decisions_total", "reserve", testScheduler, "failed"))
		}
		if tc.want == unknown {
			assert.Len(t, d.slots(), 2, "the capacity is kept until it is known whether the object is there")
		}
		d.Store.Heal()
		elapse(30 * time.Second) // for what is done after the answer
		assert.Equal(t, tc.written, len(d.Store.All()) == 1)
		assert.Equal(t, d.written(), d.slots())
		assert.Empty(t, d.reserve(request).Error, "a repeat finds it, or writes it")
		assert.Len(t, d.Store.All(), 1)
		assert.Equal(t, d.written(), d.slots())
	})
}

// A program in the server's process learns as well that the outcome is not known, also when it has waited long enough.
func TestUnknownInTheSameProcess(t *testing.T) {
	durable(t, func(t *testing.T, d *fixture) {
		d.Store.Creates = repeat(100, fate{Never: true, Err: errLost})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		c, err := client.New(client.Options{URL: "http://localhost", Handler: d.handler})
		require.NoError(t, err)
		_, err = c.Reserve(ctx, &reserver.Request{
			SchedulerName: testScheduler, Pods: []*v1.Pod{aPod("a", "1", "1Gi")}, Nodes: []string{"node-1"},
		})
		require.ErrorAs(t, err, new(*reserver.UnknownOutcomeError))
	})
}

// What was never written is not kept for longer than an object would be that is made at the last moment.
func TestNothingIsKeptForEver(t *testing.T) {
	durable(t, func(t *testing.T, d *fixture) {
		gone := repeat(10000, fate{Never: true, Err: errLost})
		d.Store.Creates, d.Store.Gets = gone, gone
		request := gangOf("node-1", aPod("a", "1", "1Gi"))
		request.Name = "job"
		code, _ := d.ask("/reserve", request)
		require.Equal(t, http.StatusBadGateway, code)
		elapse(testTTL + store.Settle + 10*time.Second)
		d.ledger.Expire(time.Now())
		assert.Empty(t, d.slots())
		read := d.Store.GetCount
		elapse(time.Minute)
		assert.Equal(t, read, d.Store.GetCount, "nobody looks for it any more")
		d.Store.Heal()
		assert.Empty(t, d.reserve(request).Error, "nobody writes it any more")
	})
}

// A server that ends does not wait for an API server that is gone.
func TestStopWhileAWriteIsSettled(t *testing.T) {
	durable(t, func(t *testing.T, d *fixture) {
		gone := repeat(1000, fate{Never: true, Err: errLost})
		d.Store.Creates, d.Store.Gets = gone, gone
		code, _ := d.ask("/reserve", gangOf("node-1", aPod("a", "1", "1Gi")))
		require.Equal(t, http.StatusBadGateway, code)
		began := time.Now()
		d.restart()
		assert.Zero(t, time.Since(began))
	})
}

func repeat(n int, f fate) []fate { return slices.Repeat([]fate{f}, n) }

// While the fate of a write is not known, others that need it wait, and then decide by what came of it.
func TestOthersWaitForAWrite(t *testing.T) {
	same := func(b body) body { return b }
	named := func(b body) body {
		b.Name = "first"
		return b
	}
	written := []fate{{Delay: time.Second}}
	refused := []fate{{Delay: time.Second, Never: true, Err: errForbidden}}
	slow := []fate{{Delay: 20 * time.Second, Never: true, Err: errLost}, {Delay: 2 * time.Second}}
	type testCase struct {
		fates   []fate
		request func(first body) body
		granted bool // the second
		writes  int  // the second writes into what it finds that it answers for it, too
	}
	each(t, map[string]testCase{
		"the same pods, written": {written, same, true, 2}, "the same pods, refused": {refused, same, true, 1},
		"the same name, written": {written, named, true, 2}, "the same name, refused": {refused, named, true, 1},
		"the same pods, too slow to wait": {slow, same, false, 1}, "the same name, too slow to wait": {slow, named, false, 1},
	}, func(t *testing.T, d *fixture, tc testCase) {
		d.Store.Creates = tc.fates
		first := gangOf("node-1", aPod("a", "1", "1Gi"))
		first.Name = "first"
		done := make(chan reserver.Answer)
		go func() { done <- d.reserve(first) }()
		synctest.Wait() // for the write
		request := first
		request.Name = ""
		code, second := d.ask("/reserve", tc.request(request))
		assert.Equal(t, tc.granted, second.Error == "", second.Error)
		if !tc.granted {
			assert.Equal(t, http.StatusBadGateway, code)
			assert.Contains(t, second.Error, "another request is writing reservation team-a/first")
		}
		<-done
		assert.Equal(t, tc.writes, d.Store.Writes)
		assert.Equal(t, d.written(), d.slots())
		assert.Len(t, d.slots(), 1)
	})
}

// A reservation that pods of the gang have capacity in must be there.
func TestCapacityThatIsEnding(t *testing.T) {
	phase := func(is v1alpha1.ReservationPhase) func(*fixture, *v1alpha1.Reservation) {
		return func(_ *fixture, o *v1alpha1.Reservation) { o.Status.Phase = is }
	}
	type testCase struct {
		change func(d *fixture, object *v1alpha1.Reservation)
		want   string
		code   int
	}
	each(t, map[string]testCase{
		"deleted":     {func(d *fixture, _ *v1alpha1.Reservation) { clear(d.Store.Objects) }, "is ending", http.StatusOK},
		"expired":     {phase(v1alpha1.ReservationExpired), "is ending", http.StatusOK},
		"not granted": {phase(v1alpha1.ReservationPending), "is ending", http.StatusOK},
		"unreadable": {
			func(d *fixture, _ *v1alpha1.Reservation) { d.Store.Gets = []fate{{Never: true, Err: errLost}} },
			"could not be read", http.StatusBadGateway,
		},
	}, func(t *testing.T, d *fixture, tc testCase) {
		d.reserve(gangOf("node-1", aPod("a", "1", "1Gi")))
		for _, object := range d.Store.Objects {
			tc.change(d, object)
		}
		code, answer := d.ask("/reserve", gangOf("node-1 node-1", aPod("a", "1", "1Gi"), aPod("b", "1", "1Gi")))
		assert.Equal(t, tc.code, code)
		assert.Contains(t, answer.Error, tc.want)
		assert.Equal(t, []string{"a", "b"}, answer.FailedPods)
		assert.Len(t, d.slots(), 1, "what was placed for b is given up")
		assert.Equal(t, 1, d.Store.CreateCount)
	})
}

// podsOf asks for pods of a namespace, each on a node of its own.
func podsOf(d *fixture, namespace string, count int) body {
	request := body{SchedulerName: testScheduler}
	for i := range count {
		pod := aPod(fmt.Sprint("p-", i), "1m", "1Mi")
		pod.Namespace, pod.UID = namespace, types.UID(fmt.Sprint(namespace, i))
		node := fmt.Sprint("node-", i)
		d.AddNode(node, "4", "8Gi")
		request.Pods, request.Nodes = append(request.Pods, pod), append(request.Nodes, node)
	}
	return request
}

// A durable gang is one object. One that cannot be is kept in memory, unless it has to be durable.
func TestGangsOfOneObject(t *testing.T) {
	several := func(d *fixture) body {
		request, other := podsOf(d, "team-b", 2), podsOf(d, "team-a", 1)
		request.Pods, request.Nodes = append(request.Pods, other.Pods...), append(request.Nodes, other.Nodes...)
		return request
	}
	many := func(n int) func(d *fixture) body { return func(d *fixture) body { return podsOf(d, "team-a", n) } }
	const objects = "namespaces \"team-b\" and \"team-a\", and a Reservation object is for pods of one"
	type testCase struct {
		request func(d *fixture) body
		why     string // it is not one object
	}
	each(t, map[string]testCase{
		"several namespaces":     {request: several, why: objects},
		"the most of one object": {request: many(v1alpha1.MaxSlots)},
		"more than that":         {request: many(v1alpha1.MaxSlots + 1), why: "1000 at most"},
		"too large for one object": {request: func(d *fixture) body {
			request := podsOf(d, "team-a", v1alpha1.MaxSlots)
			for i, pod := range request.Pods {
				pod.Name = fmt.Sprint(strings.Repeat("a", 240), "-", i)
			}
			return request
		}, why: "bytes, and the limit is"},
		"any scheduler name": {request: func(d *fixture) body {
			request := podsOf(d, "team-a", 1)
			request.SchedulerName = "StupidScheduler"
			return request
		}},
	}, func(t *testing.T, d *fixture, tc testCase) {
		request := tc.request(d)
		refused := request
		refused.Nodes = slices.Repeat([]string{"no-such-node"}, len(request.Pods))
		assert.Empty(t, d.reserve(refused).Warnings, "nothing is kept")
		answer := d.reserve(request)
		assert.Empty(t, answer.Error)
		assert.Equal(t, tc.why == "", answer.Durable)
		assert.Equal(t, tc.why == "", answer.Reservation != "")
		if tc.why == "" {
			objects := d.Store.All()
			require.Len(t, objects, 1)
			assert.Equal(t, request.SchedulerName, objects[0].Spec.SchedulerName)
			assert.Equal(t, time.Now().Add(testTTL).UTC(), answer.ExpiresAt)
			assert.ElementsMatch(t, d.written(), d.slots())
			assert.Empty(t, d.reserve(request).Error, "a repeat")
		} else {
			warnings := strings.Join(answer.Warnings, "\n")
			assert.Contains(t, warnings, "the reservation is one in memory, and ends with this server: it")
			assert.Contains(t, warnings, tc.why)
			assert.Contains(t, d.Logs.LastEntry().Data["notDurable"], tc.why)
		}
		assert.Len(t, d.slots(), len(request.Pods))
		assert.Empty(t, d.unreserve(body{SchedulerName: request.SchedulerName, Pods: request.Pods}).Error)
		assert.Empty(t, d.Store.All())
		assert.Empty(t, d.slots())
		request.Name = "job"
		code, named := d.ask("/reserve", request)
		assert.Equal(t, tc.why == "", code == http.StatusOK, named.Error)
		request.Name, request.Durable = "", new(true)
		code, answer = d.ask("/reserve", request)
		assert.Equal(t, tc.why == "", code == http.StatusOK, answer.Error)
		for _, said := range []string{named.Error, answer.Error} {
			assert.Contains(t, said, tc.why)
		}
	})
}
