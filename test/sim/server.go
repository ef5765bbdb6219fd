package sim

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalreserve/globalreserve/pkg/app"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

// server is one GlobalReserve server of the cluster: a place where one process runs after the other.
type server struct {
	cluster *Cluster
	name    string
	address string
	random  *rand.Rand // of the driver

	running *process       // of the driver; nil where none is to run
	last    *process       // the one that was started last
	ended   sync.WaitGroup // processes that have been stopped
}

// process is one whole server, as the binary runs it.
type process struct {
	name string
	app  *app.App
	gate *gate
	host *host
	link *link // to the API server
	// asked is the network between the process and those who ask it.
	asked *link
	// jump is by how much the clock of its machine is ahead, in nanoseconds.
	jump  atomic.Int64
	stop  context.CancelFunc
	ended chan struct{}
}

// ownUser is who the servers are to the API server.
const ownUser = "system:serviceaccount:globalreserve-system:globalreserve"

// start runs a process, at once.
func (s *server) start() error {
	p := &process{name: s.name, gate: newGate(), ended: make(chan struct{})}
	p.host = &host{
		network: s.cluster.network, gate: p.gate, random: rand.New(rand.NewPCG(s.random.Uint64(), 0)),
		trouble: s.cluster.trouble,
	}
	note := func(format string, args ...any) { s.cluster.note(s.name, format, args...) }
	config := s.cluster.kube.config(ownUser)
	p.link = s.newLink(p, &route{
		to: s.cluster.kube, user: ownUser, at: s.random.IntN(2), random: rand.New(rand.NewPCG(s.random.Uint64(), 0)),
	}, 3, fates)
	p.asked = s.newLink(p, front{p}, 1, askedFates)
	config.Transport = p.link
	clients, err := app.NewClients(config)
	if err != nil {
		return fmt.Errorf("the clients of %s: %w", s.name, err)
	}
	o := app.DefaultOptions()
	o.Network, o.BindAddress, o.Peers.Address = p.host, s.address, s.address+":0"
	begun := time.Now()
	o.Clock = steady.New(func() time.Time { return time.Now().Add(time.Duration(p.jump.Load())) },
		func() time.Duration { return time.Since(begun) + time.Hour })
	if s.cluster.options.Uncompared {
		o.CompareInterval, o.FullCompareInterval = 24*time.Hour, 24*time.Hour
	}
	if s.cluster.policy != nil {
		o.PolicyFile = s.cluster.policy.path()
	}
	o.LogLevel = s.cluster.options.LogLevel
	if p.app, err = app.New(o, clients, &logWriter{s}); err != nil {
		return fmt.Errorf("making %s: %w", s.name, err)
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	s.running, s.last = p, p
	s.cluster.setLive(func(live []*process) []*process { return append(live, p) })
	s.ended.Go(func() {
		defer p.link.sending.Wait()
		defer p.asked.sending.Wait()
		defer close(p.ended)
		defer s.cluster.setLive(func(live []*process) []*process {
			return slices.DeleteFunc(live, func(one *process) bool { return one == p })
		})
		if err := p.app.Serve(ctx); err != nil {
			note("ends: %v", err)
		}
	})
	note("starts")
	return nil
}

// newLink returns the network between the process and what is at the other end.
func (s *server) newLink(p *process, to http.RoundTripper, writes int, fates []string) *link {
	l := &link{
		to: to, gate: p.gate, cut: newGate(), writes: writes, fates: fates, without: s.cluster.options.Without,
		late:   s.cluster.options.longestLate(),
		note:   func(format string, args ...any) { s.cluster.note(s.name, format, args...) },
		random: rand.New(rand.NewPCG(s.random.Uint64(), 0)),
	}
	l.setTrouble(s.cluster.trouble)
	return l
}

// end stops the process: with a kill nothing of what it does from now on reaches anybody.
func (s *server) end(kill bool) {
	if s.running == nil {
		return
	}
	if kill {
		s.running.gate.kill()
		s.running.host.vanish()
		s.cluster.note(s.name, "is killed")
	} else {
		s.cluster.note(s.name, "is stopped")
	}
	s.running.stop()
	s.running = nil
}

// alive reports whether the process runs. One that has ended by itself is no failure: it is started again.
func (s *server) alive() bool {
	if s.running == nil {
		return false
	}
	select {
	case <-s.running.ended:
		s.running = nil
		return false
	default:
		return true
	}
}

// gone reports whether the process before has ended, or is dead: its port is free.
func (s *server) gone() bool {
	select {
	case <-s.last.ended:
		return true
	case <-s.last.gate.dead:
		return true
	default:
		return false
	}
}

// logWriter has what a process logs noted.
type logWriter struct{ s *server }

func (w *logWriter) Write(p []byte) (int, error) {
	w.s.cluster.note(w.s.name, "logs %s", bytes.TrimSpace(p))
	return len(p), nil
}
