package requeue

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// refusal is the k-th of a pod. It has holders, more than are remembered.
func refusal(k int) *Refusal {
	ref := func(what string, k int) ledger.PodRef {
		name := fmt.Sprintf("%s-of-a-deployment-5d8f7c9b6d-%06d", what, k)
		return ledger.PodRef{Namespace: "team-with-a-name", Name: name, UID: types.UID("6f1c0a52-3a1f-4c56-9f3b-" + name)}
	}
	r := &Refusal{
		At: time.Unix(int64(k), 0), Path: Filter, Caller: "system:kube-scheduler", Scheduler: "default-scheduler",
		Reason: "InsufficientResource",
		Rejection: ledger.Rejection{
			Pod: ref("pod", k), Node: fmt.Sprint("node-", k%5000), Reason: ledger.InsufficientResource, Resource: "cpu",
			Requested: 2000, Free: 100,
		},
		Reasons: []Count{{ledger.InsufficientResource, 400}, {ledger.HostPortConflict, 100}},
	}
	for h := range 5 {
		r.Rejection.Holders = append(r.Rejection.Holders, ledger.Holder{
			Pod:       ref("holder", 10*k+h),
			Scheduler: "default-scheduler", Amount: 1000,
		})
	}
	return r
}

// quiet are Pods that nobody wakes.
func quiet() *Pods { return New(Options{Ledger: ledger.New(ledger.Options{}).Reader}) }

// waiters are the pods that were refused.
func (w *Pods) waiters() (list []Waiter) {
	for _, r := range w.byUID {
		if r.Times > 0 {
			list = append(list, r.Waiter)
		}
	}
	return list
}

func numbers(w *Pods, after uint64) (first, last uint64, count int, newest uint64) {
	list, newest := w.RefusalsAfter(after)
	if len(list) == 0 {
		return 0, 0, 0, newest
	}
	for k := range list {
		if list[k].Number != list[0].Number+uint64(k) {
			panic("out of order")
		}
	}
	return list[0].Number, list[len(list)-1].Number, len(list), newest
}

func TestTheLatestAreRemembered(t *testing.T) {
	w := quiet()
	check := func(after uint64, want ...uint64) {
		t.Helper()
		first, last, count, newest := numbers(w, after)
		assert.Equal(t, want, []uint64{first, last, uint64(count), newest})
	}
	check(0, 0, 0, 0, 0)
	for k := range 3 {
		w.Refused(refusal(k))
	}
	check(0, 1, 3, 3, 3)
	check(2, 3, 3, 1, 3)
	check(3, 0, 0, 0, 3)
	check(1<<60, 0, 0, 0, 3)
	for k := 3; k < maxLatest+5; k++ {
		w.Refused(refusal(k))
	}
	check(0, 6, maxLatest+5, maxLatest, maxLatest+5)
	check(maxLatest, maxLatest+1, maxLatest+5, 5, maxLatest+5)
	list, _ := w.RefusalsAfter(maxLatest + 4)
	assert.Len(t, list[0].Rejection.Holders, maxHolders)
	assert.Equal(t, time.Unix(maxLatest+4, 0), list[0].At)
}

func TestWhoWaits(t *testing.T) {
	w := quiet()
	for times := range 3 {
		for k := range 2 {
			before, waits := w.Refused(refusal(k))
			assert.True(t, waits)
			assert.Equal(t, times > 0, before != nil)
			assert.True(t, before == nil || before.Rejection.Pod == refusal(k).Rejection.Pod)
		}
	}
	podToCome, grows := refusal(2), refusal(3)
	podToCome.Rejection.Pod.UID, grows.Path = "", Resize
	for _, r := range []*Refusal{podToCome, grows} {
		_, waits := w.Refused(r)
		assert.False(t, waits)
	}
	require.Len(t, w.waiters(), 2, "one that does not exist yet, and one that has its node, do not wait")
	w.Settled(refusal(0).Rejection.Pod.UID)
	waiting := w.waiters()
	require.Len(t, waiting, 1)
	assert.Equal(t, 3, waiting[0].Times)
	assert.Equal(t, time.Unix(1, 0), waiting[0].Since)
	assert.EqualValues(t, 6, waiting[0].Last.Number)
}

// Of too many pods those are forgotten that callers may have made up, and then those that were not touched for longest.
func TestPodsAreBounded(t *testing.T) {
	w := makeWorld(t, "a")
	const actual = 100
	pods := make([]*cluster.Pod, actual)
	for k := range pods {
		pods[k] = w.pod(fmt.Sprint("real-", k), "1", 0)
		w.refuse(pods[k])
		w.SearchLater(pods[k], "", MinSample)
		w.put(pods[k]) // the watch may be late
	}
	many := func(k int) *Refusal {
		return &Refusal{Rejection: ledger.Rejection{Pod: ledger.PodRef{
			Name: fmt.Sprint("many-", k),
			UID:  types.UID(fmt.Sprint("many-", k)),
		}}}
	}
	for k := range 2 * maxPods {
		w.Refused(many(k))
	}
	assert.Len(t, w.byUID, maxPods)
	assert.NotContains(t, w.byUID, many(maxPods).Rejection.Pod.UID, "it was forgotten")
	assert.Contains(t, w.byUID, many(2*maxPods-1).Rejection.Pod.UID)
	for _, p := range pods {
		require.NotNil(t, w.attemptOf(p.Ref.UID))
		require.NotNil(t, w.plan(p.Ref.UID))
	}
	w.refuse(pods[0])
	for k := range maxPods - 1 { // the watch brings them, too
		p := many(k).Rejection.Pod
		w.put(&cluster.Pod{Ref: p})
		w.Refused(many(k))
	}
	assert.Len(t, w.byUID, maxPods)
	assert.NotNil(t, w.attemptOf(pods[0].Ref.UID), "it was heard of last of the first")
	for _, p := range pods[1:] {
		require.Nil(t, w.attemptOf(p.Ref.UID))
	}
	assert.Len(t, w.plans, 1)
}

// A caller that gives a pod a wrong name changes nothing of what is known of the pod.
func TestWrongName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := makeWorld(t, "a")
		p := w.pod("p", "1", 0)
		wrong := &Refusal{Rejection: ledger.Rejection{Pod: ledger.PodRef{
			Namespace: "other", Name: "made-up",
			UID: p.Ref.UID,
		}}}
		w.Refused(wrong)
		w.put(p)
		w.refuse(p)
		assert.Empty(t, w.Waiters(func(string) bool { return true }), "it was not refused all nodes")
		r := refusal(0)
		r.Rejection.Pod = p.Ref
		w.Refused(r)
		w.Refused(wrong)
		advance(2 * forgetAfter)
		list := w.Waiters(func(string) bool { return true })
		require.Len(t, list, 1)
		assert.Equal(t, p.Ref, list[0].Last.Rejection.Pod)
		assert.NotNil(t, w.attemptOf(p.Ref.UID))
	})
}

// Nothing is left of a pod that is settled, or of which there is nothing to remember any more.
func TestNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := makeWorld(t, "a")
		p := w.pod("p", "1", 0)
		all := func() {
			w.refuse(p)
			w.tell(w.attemptOf(p.Ref.UID), news{sure: true}, time.Now())
			w.Remind(p, "a")
			w.CountLook(p.Ref)
			w.AllowPreempting(p.Ref)
		}
		left := func() int {
			return len(w.byUID) + w.heard[0].Len() + w.heard[1].Len() + len(w.plans) + len(w.byNode) + len(w.bySlot) +
				w.later.Len() + w.Pods.ready.Len()
		}
		all()
		w.Settled(p.Ref.UID)
		assert.Zero(t, left())
		all()
		a, _, _ := w.take()
		w.woken(a, false)
		assert.True(t, w.MayPreempt(p.Ref.UID))
		w.ForbidPreempting(p.Ref.UID)
		assert.False(t, w.MayPreempt(p.Ref.UID))
		assert.Equal(t, 4, left(), "its plan is")
		w.drop(w.plan(p.Ref.UID))
		assert.Zero(t, left())
		w.ForbidPreempting(p.Ref.UID)
		w.Settled(p.Ref.UID)
		assert.Zero(t, left())
	})
}

// Waiters are those that the watch knows to wait. What it does not bring for long is gone.
func TestWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := makeWorld(t, "a")
		for _, name := range []string{"second", "first", "bound", "unknown", "elsewhere", "not-refused"} {
			p := w.pod(name, "1", 0)
			if name == "elsewhere" {
				p.Ref.Namespace = "other"
			}
			if name != "not-refused" {
				r := refusal(len(name))
				r.Rejection.Pod = p.Ref
				w.Refused(r)
			}
			w.refuse(p)
			if name == "bound" {
				p.Node = "a"
			}
			if name != "unknown" {
				w.put(p)
			}
		}
		list := w.Waiters(func(namespace string) bool { return namespace == "default" })
		require.Len(t, list, 2)
		assert.Equal(t, "first", list[0].Last.Rejection.Pod.Name)
		assert.Equal(t, "second", list[1].Last.Rejection.Pod.Name)
		assert.Len(t, w.byUID, 6, "what the watch does not know it may bring soon")
		advance(forgetAfter + time.Second)
		w.Waiters(func(string) bool { return false })
		assert.Len(t, w.byUID, 4, "those that wait")
		seen := w.byUID["uid-second"].touched
		advance(time.Second)
		w.refuse(w.pod("second", "1", 0))
		w.forget("uid-second", seen)
		assert.Len(t, w.byUID, 4, "it was heard of since")
	})
}

// Refusals that are more of the same do not drive others out of the latest; the pod waits all the same.
func TestRefusedAgain(t *testing.T) {
	w := quiet()
	w.Refused(refusal(0))
	for range maxLatest {
		w.RefusedAgain(refusal(1))
	}
	list, last := w.RefusalsAfter(0)
	require.Len(t, list, 1)
	assert.EqualValues(t, 1, last)
	require.Len(t, w.waiters(), 2)
	for _, waiter := range w.waiters() {
		if waiter.Last.Rejection.Pod == refusal(1).Rejection.Pod {
			assert.Equal(t, maxLatest, waiter.Times)
		}
	}
}

func TestIsRound(t *testing.T) {
	var round []int
	for times := range 2001 {
		if IsRound(times) {
			round = append(round, times)
		}
	}
	assert.Equal(t, []int{0, 1, 10, 100, 1000}, round)
}

func TestCountReasons(t *testing.T) {
	of := func(reasons ...ledger.Reason) (verdicts []ledger.Verdict) {
		for _, r := range reasons {
			verdicts = append(verdicts, ledger.Verdict{Reason: r})
		}
		return verdicts
	}
	assert.Equal(t, []Count{{ledger.InsufficientResource, 2}, {ledger.NodeUnknown, 1}},
		CountReasons(of(ledger.NodeUnknown, ledger.InsufficientResource, ledger.Fits, ledger.InsufficientResource)))
	assert.Empty(t, CountReasons(of(ledger.Fits)))
}

func TestAskedBy(t *testing.T) {
	w := makeWorld(t)
	_, asks := w.AskedBy("s")
	assert.False(t, asks)
	w.Asks("s", "")
	caller, asks := w.AskedBy("s")
	assert.True(t, asks, "by nobody who has a name")
	assert.Empty(t, caller)
	for i := range 2 * maxAskers {
		w.Asks(fmt.Sprint("made-up-", i), "somebody")
		require.LessOrEqual(t, len(w.askers), maxAskers)
	}
	w.Asks("s", "second")
	caller, asks = w.AskedBy("s")
	assert.True(t, asks, "also where too many others have asked")
	assert.Equal(t, "second", caller, "the last counts")
}
