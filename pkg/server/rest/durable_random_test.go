package rest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// request is one step of a scenario: after pause, by one of several clients.
type randomRequest struct {
	pause     time.Duration
	reserve   bool
	pods      []int
	nodes     []int
	mode      string
	name      string
	requestID string
	whole     string // of an /unreserve
	restart   bool
}

type randomScenario struct {
	requests               []randomRequest
	creates, gets, deletes []fate
}

func drawFate(t *rapid.T) fate {
	f := fate{}
	if rapid.IntRange(0, 2).Draw(t, "good") == 0 {
		return f
	}
	f.Delay = time.Duration(rapid.IntRange(0, 4_000).Draw(t, "delay")) * time.Millisecond
	f.Err = rapid.SampledFrom([]error{errForbidden, errTooMany, errLost, errLost, errInternal, nil}).Draw(t, "error")
	switch {
	case errors.Is(f.Err, errForbidden) || errors.Is(f.Err, errTooMany):
		f.Never = true // a definite answer is true
	case f.Err != nil:
		f.Never = rapid.Bool().Draw(t, "never")
		f.Commit = time.Duration(rapid.IntRange(0, 5_000).Draw(t, "commit")) * time.Millisecond
	}
	return f
}

func drawRequest(t *rapid.T) randomRequest {
	r := randomRequest{
		pause:   time.Duration(rapid.IntRange(0, 6_000).Draw(t, "pause")) * time.Millisecond,
		reserve: rapid.IntRange(0, 3).Draw(t, "verb") > 0,
		pods:    rapid.SliceOfNDistinct(rapid.IntRange(0, 7), 1, 4, rapid.ID[int]).Draw(t, "pods"),
		mode:    rapid.SampledFrom([]string{"AllOrNothing", "Partial"}).Draw(t, "mode"),
		name:    rapid.SampledFrom([]string{"", "", "x", "y"}).Draw(t, "name"),
		whole:   rapid.SampledFrom([]string{"", "", "team-a/x", "team-a/y"}).Draw(t, "whole"),
		restart: rapid.IntRange(0, 9).Draw(t, "restart") == 0,
	}
	r.requestID = rapid.SampledFrom([]string{"", "", "1", "2"}).Draw(t, "requestID")
	for range r.pods {
		r.nodes = append(r.nodes, rapid.IntRange(1, 2).Draw(t, "node"))
	}
	return r
}

// Whatever becomes of the writes, and in whatever order requests come: what is
// granted is written, and in the end the ledger holds what the objects say, and
// there is no object but of a granted request.
func TestRandomWrites(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fates := rapid.SliceOfN(rapid.Custom(drawFate), 0, 8)
		s := randomScenario{
			requests: rapid.SliceOfN(rapid.Custom(drawRequest), 1, 8).Draw(rt, "requests"),
			creates:  fates.Draw(rt, "creates"), gets: fates.Draw(rt, "gets"), deletes: fates.Draw(rt, "deletes"),
		}
		var err error
		synctest.Test(t, func(t *testing.T) { err = s.play(newDurable(t)) })
		if err != nil {
			rt.Fatalf("%v in %+v", err, s)
		}
	})
}

func (s *randomScenario) play(d *fixture) error {
	d.Store.Creates, d.Store.Gets, d.Store.Deletes = s.creates, s.gets, s.deletes
	var wg sync.WaitGroup
	var mu sync.Mutex
	promised := map[string]bool{} // names of reservations that were granted
	for i := range s.requests {
		r := &s.requests[i]
		<-time.After(r.pause)
		if r.restart {
			wg.Wait()
			d.restart() // what is not settled then is left to its TTL
			d.Store.Late.Wait()
			d.forget()
			for _, object := range d.Store.All() {
				promised[object.Namespace+"/"+object.Name] = true
			}
		}
		wg.Go(func() {
			answer := r.send(d)
			if answer.Reservation != "" {
				mu.Lock()
				defer mu.Unlock()
				promised[answer.Reservation] = true
			}
		})
	}
	wg.Wait()
	<-time.After(10 * time.Minute) // for what is settled after the answer
	synctest.Wait()
	d.Store.Late.Wait()
	return d.agrees(promised)
}

func (r *randomRequest) send(d *fixture) reserver.Answer {
	request := body{SchedulerName: testScheduler, RequestID: r.requestID}
	if !r.reserve && r.whole != "" {
		request.Reservation = r.whole
		_, answer := d.ask("/unreserve", request)
		answer.Reservation = ""
		return answer
	}
	for k, pod := range r.pods {
		request.Pods = append(request.Pods, aPod(fmt.Sprint("p", pod), "1", "1Gi"))
		request.Nodes = append(request.Nodes, fmt.Sprint("node-", r.nodes[k]))
	}
	if !r.reserve {
		_, answer := d.ask("/unreserve", request)
		answer.Reservation = ""
		return answer
	}
	request.Mode, request.Name, request.TTLSeconds = r.mode, r.name, 86_400
	_, answer := d.ask("/reserve", request)
	return answer
}

// agrees compares what is held with what is written.
func (d *fixture) agrees(promised map[string]bool) error {
	slots, written := d.slots(), d.written()
	for _, object := range d.Store.All() {
		if !promised[object.Namespace+"/"+object.Name] {
			return fmt.Errorf("object %s is of no granted request", object.Name)
		}
	}
	if !slices.Equal(slots, written) {
		return fmt.Errorf("held %v, written %v", slots, written)
	}
	views, _ := d.ledger.Slots()
	for i := range views {
		if views[i].Deadline.IsZero() {
			return fmt.Errorf("hold %s never expires", views[i].Ref)
		}
	}
	d.Store.Heal()
	for _, object := range d.Store.All() {
		again := body{SchedulerName: testScheduler, Reservation: object.Namespace + "/" + object.Name}
		if answer := d.unreserve(again); answer.Error != "" {
			return fmt.Errorf("a write is open: %s", answer.Error)
		}
	}
	return nil
}
