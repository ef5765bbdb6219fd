//go:build chaos

package linear

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// tooLong is longer than a Lease lasts that nobody renews, and than another server takes to become the one that
// decides.
const tooLong = 5 * time.Second

// nemesis does things to servers, one after another.
type nemesis struct {
	*fleet
	dice   *rand.Rand
	ctx    context.Context // ends when the histories are over
	counts map[string]int
	// terms are those of the servers that were there.
	terms map[float64]bool
}

// haunt has a nemesis go on until stop is called. What it did can be read then.
func (f *fleet) haunt(seed uint64) (stop func(), n *nemesis) {
	ctx, cancel := context.WithCancel(f.T.Context())
	n = &nemesis{
		fleet: f, dice: rand.New(rand.NewPCG(seed, 0)), ctx: ctx, counts: map[string]int{}, terms: map[float64]bool{},
	}
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			n.strike()
			n.revive()
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	f.T.Cleanup(stop)
	return stop, n
}

// wait waits for a time, or until the histories are over.
func (n *nemesis) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-n.ctx.Done():
	}
}

// between is a time chosen by the seed.
func (n *nemesis) between(least, most time.Duration) time.Duration {
	return least + time.Duration(n.dice.Int64N(int64(most-least)))
}

// strike does one thing to one server: mostly to the one that decides.
func (n *nemesis) strike() {
	n.wait(n.between(300*time.Millisecond, 1500*time.Millisecond))
	all := faults()
	one, ofLeader, target := all[n.dice.IntN(len(all))], n.dice.IntN(4) > 0, n.servers[n.dice.IntN(replicas)]
	moment, while := n.between(100*time.Millisecond, time.Second), n.between(time.Second, 2*time.Second)
	leader := n.leader()
	if ofLeader && leader != nil {
		target = leader
	}
	if target == leader {
		while = tooLong
	}
	if n.ctx.Err() != nil {
		return
	}
	n.note(target)
	n.counts[one.name]++
	one.strike(n, target, moment, while)
}

// fault is one thing that may happen to a server. It gets a time below that of a Lease, and one that is above it if
// the server decides.
type fault struct {
	name   string
	strike func(n *nemesis, r *replica, moment, while time.Duration)
}

func faults() []fault {
	type span = time.Duration
	return []fault{
		{"kill", func(n *nemesis, r *replica, moment, _ span) { n.kill(r, moment) }},
		{"kill with late writes", func(n *nemesis, r *replica, moment, _ span) {
			n.holdWrites(r, moment/8)
			n.kill(r, moment)
		}},
		{"stop", func(n *nemesis, r *replica, moment, _ span) { n.stop(r, moment) }},
		{"suspend", func(n *nemesis, r *replica, _, while span) { n.suspend(r, while) }},
		{"suspend with late writes", func(n *nemesis, r *replica, moment, while span) {
			n.holdWrites(r, moment/8)
			n.suspend(r, while)
		}},
		{"suspend for a moment", func(n *nemesis, r *replica, moment, _ span) { n.suspend(r, moment) }},
		{"cut off from the API server", func(n *nemesis, r *replica, _, while span) {
			n.spoil(r, while, func(*http.Request) controlplane.Fault { return controlplane.Fault{DropRequest: true} })
		}},
		{"lose answers to writes", func(n *nemesis, r *replica, moment, _ span) {
			n.spoil(r, moment, writes(controlplane.Fault{DropAnswer: true}))
		}},
		{"cut off from servers", func(n *nemesis, r *replica, moment, _ span) { n.cutOff(r, 2*moment) }},
		{"cut connections", func(n *nemesis, r *replica, _, _ span) { n.cutOff(r, 0) }},
	}
}

// note takes down the term of a server that decides.
func (n *nemesis) note(r *replica) {
	if term, err := r.Metric(n.ctx, "globalreserve_term"); err == nil && term > 0 {
		n.terms[term] = true
	}
}

// holdWrites has the API server get what a server writes from now on long after the server has gone.
func (n *nemesis) holdWrites(r *replica, d time.Duration) {
	r.api.SetFault(writes(controlplane.Fault{Before: tooLong, DropAnswer: true}))
	n.wait(d)
}

func (n *nemesis) kill(r *replica, away time.Duration) {
	assert.NoError(n.T, r.Kill())
	r.api.SetFault(nil)
	n.wait(away)
}

func (n *nemesis) stop(r *replica, away time.Duration) {
	_, err := r.Stop()
	assert.NoError(n.T, err)
	n.wait(away)
}

// suspend has a server do nothing for a while, without its noticing.
func (n *nemesis) suspend(r *replica, d time.Duration) {
	if r.Signal(syscall.SIGSTOP) == nil { // else it has ended itself
		n.wait(d)
		if err := r.Signal(syscall.SIGCONT); r.Running() { // one that was ending itself has ended
			assert.NoError(n.T, err)
		}
	}
	r.api.SetFault(nil)
}

// spoil has what a server asks the API server go wrong for a while.
func (n *nemesis) spoil(r *replica, d time.Duration, fault controlplane.FaultFunc) {
	r.api.SetFault(fault)
	n.wait(d)
	r.api.SetFault(nil)
}

// cutOff ends the connections of other servers, and has them make none for a while.
func (n *nemesis) cutOff(r *replica, d time.Duration) {
	r.peers.cut(true)
	n.wait(d)
	r.peers.cut(false)
}

// writes is a fault of those writes that tell what was decided.
func writes(f controlplane.Fault) controlplane.FaultFunc {
	return func(r *http.Request) controlplane.Fault {
		if r.Method != http.MethodGet && (controlplane.IsBinding(r) || strings.Contains(r.URL.Path, "/reservations")) {
			return f
		}
		return controlplane.Fault{}
	}
}

// revive starts the servers that were killed, or have ended themselves, and waits for one that decides.
func (n *nemesis) revive() {
	for end := time.Now().Add(time.Minute); ; {
		for _, r := range n.servers {
			if !r.Running() {
				assert.NoError(n.T, r.Start(n.T.Context()))
			}
		}
		if n.leader() != nil {
			return
		}
		if time.Now().After(end) {
			assert.Fail(n.T, fmt.Sprintf("no server decides a minute after %v", n.counts))
			return
		}
		<-time.After(50 * time.Millisecond)
	}
}
