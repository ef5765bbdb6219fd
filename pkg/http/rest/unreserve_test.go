package rest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/reserve"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// aGang reserves a and b on node-1 and c on node-2 as team-a/job.
func aGang(d *fixture) (a, b, c *v1.Pod) {
	a, b, c = aPod("a", "1", "1Gi"), aPod("b", "1", "1Gi"), aPod("c", "1", "1Gi")
	request := gangOf("node-1 node-1 node-2", a, b, c)
	request.Name = "job"
	require.Empty(d.t, d.reserve(request).Error)
	return a, b, c
}

func back(pods ...*v1.Pod) body { return body{SchedulerName: testScheduler, Pods: pods} }

func TestUnreserveDurable(t *testing.T) {
	whole := body{SchedulerName: testScheduler, Reservation: "team-a/job"}
	theirs := func(b body) body {
		b.SchedulerName = "theirs"
		return b
	}
	byHand := func(d *fixture) {
		for _, object := range d.Store.Objects {
			delete(object.Labels, convert.MadeByLabel)
		}
	}
	a, b, c := aPod("a", "1", "1Gi"), aPod("b", "1", "1Gi"), aPod("c", "1", "1Gi")
	bound := func(d *fixture) { d.bind(a, "node-1") }
	gone := func(d *fixture) { clear(d.Store.Objects) }
	ghost := body{SchedulerName: testScheduler, Reservation: "team-a/ghost"}
	deletes := func(fates ...fate) func(d *fixture) { return func(d *fixture) { d.Store.Deletes = fates } }
	const all, handmade = "a b c", "delete the object instead"
	type testCase struct {
		before  func(d *fixture)
		request body
		left    string // slots
		failed  string // pods
		reason  string
		want    string // part of Error
	}
	each(t, map[string]testCase{
		"by name":                     {request: whole},
		"all pods":                    {request: back(a, b, c)},
		"all pods, by name only":      {request: back(nameOnly(a), nameOnly(b), nameOnly(c))},
		"one pod":                     {request: back(b), left: "a c"},
		"one pod on its node":         {request: gangOf("node-2", c), left: "a b"},
		"a pod without capacity, too": {request: back(b, aPod("z", "1", "1Gi")), left: "a c"},
		"one pod on another node": {
			nil, gangOf("node-2", a), all, "a", "AllocatedElsewhere", "1 of 1 pods were not given back",
		},
		"one reserved in its slot, too": {before: func(d *fixture) {
			require.Empty(d.t, d.reserve(memoryOnly("node-1", a)).Error)
			require.Equal(d.t, "Reserved", d.state(a))
		}, request: back(a), left: "b c"},
		"of another scheduler":     {nil, theirs(back(a, b)), all, "a b", "NotOwner", "belongs to another scheduler"},
		"whole, of another one":    {nil, theirs(whole), all, "", "", `belongs to scheduler "batch-scheduler"`},
		"one that is not there":    {request: ghost, left: all},
		"the object is gone":       {before: gone, request: whole},
		"pods, the object is gone": {before: gone, request: back(b)},
		"made by hand":             {byHand, whole, all, "", "", handmade},
		"pods of one made by hand": {byHand, back(a), all, "a", "NotOwner", handmade},
		"one is bound":             {bound, back(a, b), "c", "a", "BindInFlight", "1 of 2 pods"},
		"the rest of a gang":       {before: bound, request: back(b, c)},
		"whole, with one bound":    {before: bound, request: whole},
		"unreadable": {
			func(d *fixture) { d.Store.Gets = []fate{{Never: true, Err: errLost}} },
			back(a), all, "a", "WriteFailed", "could not be read: try again",
		},
		"forbidden": {deletes(fate{Never: true, Err: errForbidden}), whole, all, "", "", "could not be changed"},
		"slots not written": {
			func(d *fixture) { d.Store.Release = errors.New("storage") },
			back(a), all, "a", "WriteFailed", "could not be changed: try again",
		},
		"answer lost": {before: deletes(fate{Err: errLost}), request: whole},
		"not carried out": {
			before: deletes(fate{Never: true, Err: errTooMany}, fate{Never: true, Err: errInternal}), request: whole,
		},
		"API server gone": {
			deletes(repeat(30, fate{Never: true, Err: errLost})...), whole, all, "", "", "could not be changed: try again",
		},
		"without the kind": {func(d *fixture) { d.NoKind = true }, whole, all, "", "", "install manifests/crd"},
	}, func(t *testing.T, d *fixture, tc testCase) {
		aGang(d)
		if tc.before != nil {
			tc.before(d)
		}
		answer := d.unreserve(tc.request)
		assert.NotNil(t, answer.FailedPods)
		assert.Equal(t, tc.failed, strings.Join(answer.FailedPods, " "))
		assert.True(t, answer.Durable)
		assert.Contains(t, answer.Error, tc.want)
		assert.Equal(t, tc.want == "", answer.Error == "", answer.Error)
		if tc.reason != "" {
			assert.Equal(t, tc.reason, answer.Rejections[0].Reason)
		}
		var left []string
		for _, slot := range d.slots() {
			slot, _, _ := strings.Cut(strings.TrimPrefix(slot, "team-a/job/"), "@")
			left = append(left, slot)
		}
		assert.Equal(t, tc.left, strings.Join(left, " "))
		assert.Equal(t, tc.left != "", len(d.Store.All()) == 1)
	})
}

// What has no place any more since a server took over is given back, too.
func TestUnreserveUnplaced(t *testing.T) {
	durable(t, func(t *testing.T, d *fixture) {
		a, b, c := aGang(d)
		for key, object := range d.Store.Objects {
			object.Status.Phase = v1alpha1.ReservationPending
			d.Ledger.ReleaseSlots(key.Namespace, key.Name)
		}
		theirs := back(a)
		theirs.SchedulerName = "theirs"
		assert.False(t, d.unreserve(theirs).Durable, "it is not theirs")
		assert.Empty(t, d.Store.All()[0].Status.Slots)

		d.Store.Release = errors.New("storage")
		assert.Equal(t, "node-1", d.unreserve(gangOf("node-1", a)).Rejections[0].Node)
		d.Store.Release = nil

		// One pod of them has what it was given since, elsewhere.
		require.Empty(t, d.reserve(memoryOnly("node-2", a)).Error)
		answer := d.unreserve(gangOf("node-2 node-1", a, b))
		assert.Empty(t, answer.Error)
		assert.True(t, answer.Durable)
		assert.Len(t, d.Store.All()[0].Status.Slots, 2)
		assert.Equal(t, "None", d.state(a))
		d.bind(c, "node-2")
		assert.Equal(t, "BindInFlight", d.unreserve(back(c)).Rejections[0].Reason)
		assert.Len(t, d.Store.All()[0].Status.Slots, 2)
	})
}

// Giving back is repeated safely, and what failed is not kept as the answer.
func TestUnreserveAgain(t *testing.T) {
	durable(t, func(t *testing.T, d *fixture) {
		a, b, _ := aGang(d)
		d.Store.Release = errors.New("storage")
		request := back(a, b)
		request.RequestID = "1"
		assert.Contains(t, d.unreserve(request).Error, "2 of 2 pods were not given back")
		d.Store.Release = nil
		assert.Empty(t, d.unreserve(request).Error)
		assert.Len(t, d.slots(), 1)
		writes := d.Store.Writes
		assert.Empty(t, d.unreserve(request).Error)
		assert.Empty(t, d.unreserve(back(a, b)).Error)
		assert.Equal(t, writes, d.Store.Writes)

		whole := body{SchedulerName: testScheduler, Reservation: "team-a/job"}
		assert.Equal(t, "team-a/job", d.unreserve(whole).Reservation)
		assert.Empty(t, d.unreserve(whole).Error)
		assert.Empty(t, d.slots())
		assert.Empty(t, d.Store.All())
	})
}

// One request gives back what is in memory and what is in several objects.
func TestUnreserveOfAllKinds(t *testing.T) {
	durable(t, func(t *testing.T, d *fixture) {
		a, b, c := aGang(d)
		e, m := aPod("e", "1", "1Gi"), aPod("m", "1", "1Gi")
		require.Empty(t, d.reserve(gangOf("node-2", e)).Error)
		require.Empty(t, d.reserve(memoryOnly("node-2", m)).Error)
		d.Store.Deletes = []fate{{Never: true, Err: errForbidden}}
		answer := d.unreserve(back(m, a, e, b, c))
		assert.Equal(t, []string{"a", "b", "c"}, answer.FailedPods, "job is deleted first, and cannot be")
		assert.Equal(t, []string{"team-a/job/a@node-1", "team-a/job/b@node-1", "team-a/job/c@node-2"}, d.slots())
		assert.Equal(t, ledger.NoAllocation.String(), d.state(m))
		assert.Empty(t, d.unreserve(back(m, a, e, b, c)).Error)
		assert.Empty(t, d.slots())
		assert.Empty(t, d.Store.All())
	})
}

// Who gives back what is being written waits for it.
func TestUnreserveWaitsForTheWrite(t *testing.T) {
	durable(t, func(t *testing.T, d *fixture) {
		d.Store.Creates = []fate{{Delay: time.Second}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			aGang(d)
		}()
		for len(d.slots()) == 0 {
			<-time.After(time.Millisecond)
		}
		assert.Empty(t, d.unreserve(body{SchedulerName: testScheduler, Reservation: "team-a/job"}).Error)
		<-done
		assert.Empty(t, d.slots())
		assert.Empty(t, d.Store.All())
	})
}

// A client that goes away does not end a write that is under way.
func TestClientGone(t *testing.T) {
	durable(t, func(t *testing.T, d *fixture) {
		d.Store.Creates = []fate{{Delay: time.Second}}
		pod := d.Bring(aPod("a", "1", "1Gi"))
		ctx, cancel := context.WithCancel(t.Context())
		decisions := make(chan *reserve.Decision)
		go func() {
			d, err := d.gangs.Reserve(ctx, &reserve.Request{
				Scheduler: testScheduler, Mode: ledger.AllOrNothing, Durable: true,
				Pods: []reserve.Pod{{Ref: pod.Ref, Node: "node-1"}},
			})
			assert.NoError(t, err)
			decisions <- d
		}()
		synctest.Wait() // for the write
		cancel()
		decision := <-decisions
		require.NotNil(t, decision)
		assert.Empty(t, decision.Error)
		assert.Equal(t, d.written(), d.slots())
	})
}

func TestRequestIDAfterARestart(t *testing.T) {
	request := func() body {
		b := gangOf("node-1 node-2", aPod("a", "1", "1Gi"), aPod("b", "1", "1Gi"))
		b.RequestID = "job-1"
		return b
	}
	const ok, no, another = http.StatusOK, http.StatusConflict, "was used before for another request"
	const givenUp = "of the pods: it was given up since"
	type testCase struct {
		before func(d *fixture, first reserver.Answer)
		change func(*body)
		code   int
		same   bool
		want   string
		failed []string
	}
	each(t, map[string]testCase{
		"the same":    {code: ok, same: true},
		"another pod": {change: func(b *body) { b.Pods[0] = aPod("z", "1", "1Gi") }, code: no, want: another},
		"fewer pods":  {change: func(b *body) { b.Pods, b.Nodes = b.Pods[:1], b.Nodes[:1] }, code: no, want: another},
		"one pod was bound": {
			before: func(d *fixture, _ reserver.Answer) { d.bind(aPod("a", "1", "1Gi"), "node-1") }, code: ok, same: true,
		},
		"one was given back": {
			before: func(d *fixture, _ reserver.Answer) { d.unreserve(back(aPod("a", "1", "1Gi"))) },
			code:   ok, want: "has no capacity for 1 " + givenUp, failed: []string{"a"},
		},
		"all were given back": {
			before: func(d *fixture, first reserver.Answer) {
				d.unreserve(body{SchedulerName: testScheduler, Reservation: first.Reservation})
			},
			code: ok, // and so it is a new request
		},
		"it expired": {before: func(d *fixture, _ reserver.Answer) {
			<-time.After(2 * testTTL)
			d.ledger.Expire(time.Now())
		}, code: ok, want: "has no capacity for 2 " + givenUp, failed: []string{"a", "b"}},
	}, func(t *testing.T, d *fixture, tc testCase) {
		first := d.reserve(request())
		require.Empty(t, first.Error)
		if tc.before != nil {
			tc.before(d, first)
		}
		repeat := request()
		if tc.change != nil {
			tc.change(&repeat)
		}
		d.restart()
		d.forget()
		code, answer := d.ask("/reserve", repeat)
		assert.Equal(t, tc.code, code)
		assert.Contains(t, answer.Error, tc.want)
		assert.Equal(t, tc.want == "", answer.Error == "", answer.Error)
		if tc.failed != nil {
			assert.Equal(t, tc.failed, answer.FailedPods)
		}
		if tc.same {
			first.Revision = answer.Revision
			assert.Equal(t, first, answer)
		}
		assert.Len(t, d.Store.All(), 1)
	})
}
