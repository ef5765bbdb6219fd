package refused

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// refusal is the k-th of a pod. It has holders, more than are remembered.
func refusal(k int) *Refusal {
	ref := func(what string, k int) ledger.PodRef {
		name := fmt.Sprintf("%s-of-a-deployment-5d8f7c9b6d-%06d", what, k)
		return ledger.PodRef{Namespace: "team-with-a-name", Name: name, UID: types.UID("6f1c0a52-3a1f-4c56-9f3b-" + name)}
	}
	r := &Refusal{
		At: time.Unix(int64(k), 0), Path: Filter, Caller: "system:kube-scheduler", Scheduler: "default-scheduler", Reason: "InsufficientResource",
		Rejection: ledger.Rejection{
			Pod: ref("pod", k), Node: fmt.Sprint("node-", k%5000), Reason: ledger.InsufficientResource, Resource: "cpu", Requested: 2000, Free: 100,
		},
		Reasons: []Count{{ledger.InsufficientResource, 400}, {ledger.HostPortConflict, 100}},
	}
	for h := range 5 {
		r.Rejection.Holders = append(r.Rejection.Holders, ledger.Holder{Pod: ref("holder", 10*k+h), Scheduler: "default-scheduler", Amount: 1000})
	}
	return r
}

func numbers(l *Log, after uint64) (first, last uint64, count int, newest uint64) {
	list, newest := l.After(after)
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
	var l Log
	check := func(after uint64, want ...uint64) {
		t.Helper()
		first, last, count, newest := numbers(&l, after)
		assert.Equal(t, want, []uint64{first, last, uint64(count), newest})
	}
	check(0, 0, 0, 0, 0)
	for k := range 3 {
		l.Add(refusal(k))
	}
	check(0, 1, 3, 3, 3)
	check(2, 3, 3, 1, 3)
	check(3, 0, 0, 0, 3)
	check(1<<60, 0, 0, 0, 3)
	for k := 3; k < MaxRefusals+5; k++ {
		l.Add(refusal(k))
	}
	check(0, 6, MaxRefusals+5, MaxRefusals, MaxRefusals+5)
	check(MaxRefusals, MaxRefusals+1, MaxRefusals+5, 5, MaxRefusals+5)
	list, _ := l.After(MaxRefusals + 4)
	assert.Len(t, list[0].Rejection.Holders, maxHolders)
	assert.Equal(t, time.Unix(MaxRefusals+4, 0), list[0].At)
}

func TestWaiting(t *testing.T) {
	var l Log
	for range 3 {
		for k := range 2 {
			l.Add(refusal(k))
		}
	}
	unborn, grows := refusal(2), refusal(3)
	unborn.Rejection.Pod.UID, grows.Path = "", Resize
	l.Add(unborn)
	l.Add(grows)
	require.Len(t, l.Waiting(), 2, "one that does not exist yet, and one that has its node, do not wait")
	l.Settled(refusal(0).Rejection.Pod.UID)
	waiting := l.Waiting()
	require.Len(t, waiting, 1)
	assert.Equal(t, 3, waiting[0].Times)
	assert.Equal(t, time.Unix(1, 0), waiting[0].Since)
	assert.EqualValues(t, 6, waiting[0].Last.Number)
	for k := range maxWaiting + 1 {
		l.Add(&Refusal{Rejection: ledger.Rejection{Pod: ledger.PodRef{UID: types.UID(fmt.Sprint("many-", k))}}})
	}
	assert.Len(t, l.Waiting(), maxWaiting-maxWaiting/10+2, "those that were refused longest ago are forgotten")
	l.Settled("many-0")
	assert.Len(t, l.Waiting(), maxWaiting-maxWaiting/10+2)
}

// Refusals that are more of the same do not drive others out of the latest; the pod waits all the same.
func TestAgain(t *testing.T) {
	var l Log
	l.Add(refusal(0))
	wake, cancel := l.Subscribe()
	defer cancel()
	for range MaxRefusals {
		l.Again(refusal(1))
	}
	assert.Empty(t, wake)
	list, last := l.After(0)
	require.Len(t, list, 1)
	assert.EqualValues(t, 1, last)
	require.Len(t, l.Waiting(), 2)
	for _, w := range l.Waiting() {
		if w.Last.Rejection.Pod == refusal(1).Rejection.Pod {
			assert.Equal(t, MaxRefusals, w.Times)
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
