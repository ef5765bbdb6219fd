package sim

import (
	"cmp"
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// What follows happens to the servers, and to the network between them and the API server.

func (c *Cluster) changeTrouble(context.Context) {
	c.setTrouble([]int{0, 2, 5, 10, 20, 30}[c.random.IntN(6)])
}

func (c *Cluster) setTrouble(percent int) {
	c.trouble = percent
	c.note("network", "something happens to %d%% of the requests", percent)
	if !c.options.Unfenced { // or what is late would be later than others wait for
		c.others.setTrouble(min(10*percent, 50))
	}
	for _, s := range c.servers {
		if s.alive() {
			s.running.link.setTrouble(percent)
			s.running.asked.setTrouble(percent)
			s.running.host.setTrouble(percent)
		}
	}
}

// disturbServer has one of the servers stop, die, pause, be cut off, or have another time.
func (c *Cluster) disturbServer(context.Context) {
	s := c.servers[c.random.IntN(len(c.servers))]
	kinds := 5
	if c.options.Jumps {
		kinds++
	}
	what := c.random.IntN(kinds)
	if !s.alive() {
		return
	}
	switch what {
	case 0:
		s.running.gate.open()
		s.end(false)
	case 1:
		if c.random.IntN(2) == 0 {
			s.running.link.doom()
			time.Sleep(milliseconds(c.random, longestDeath))
		}
		s.end(true)
	case 2:
		c.note(s.name, "is paused")
		s.shut(s.running.gate, milliseconds(c.random, longestPause))
	case 3:
		c.note(s.name, "is cut off from the API server")
		s.shut(s.running.link.cut, milliseconds(c.random, longestPause))
	case 4:
		c.note(s.name, "is cut off from the other servers")
		host := s.running.host
		host.cutOff(true)
		s.later(milliseconds(c.random, longestPause), func() { host.cutOff(false) })
	default:
		jump := milliseconds(c.random, 600000) - 5*time.Minute
		c.jumped.Store(true)
		s.running.jump.Store(int64(jump))
		c.note(s.name, "its clock is %s off", jump)
	}
}

// replaceLeader stops the server that decides, as an upgrade does.
func (c *Cluster) replaceLeader(ctx context.Context) {
	leader := c.leader()
	for _, s := range c.servers {
		if leader != nil && s.running == leader {
			s.running.gate.open()
			s.end(false)
		}
	}
	if c.random.IntN(2) == 0 {
		c.editAnnotations(ctx) // while nobody sees it
	}
	if c.random.IntN(2) == 0 {
		c.resizeNode(ctx)
	}
}

// cutPower has all servers end at once. What is edited until another one starts nobody sees.
func (c *Cluster) cutPower(ctx context.Context) {
	for _, s := range c.servers {
		if s.alive() {
			s.running.gate.open()
			s.end(c.random.IntN(2) == 0)
		}
	}
	c.editAnnotations(ctx)
	c.deletePods(ctx)
	c.resizeNode(ctx)
	if c.random.IntN(3) == 0 {
		c.removeNode(ctx)
	}
}

// longestDeath is how long before its death what a process sends arrives late, in milliseconds.
const longestDeath = 2000

// longestPause is in milliseconds, and longer than a Lease lasts.
const longestPause = 40000

// shut shuts a gate of the process that runs, for a while.
func (s *server) shut(g *gate, lasts time.Duration) {
	g.shut()
	s.later(lasts, g.open)
}

// later does something after a while, or when the process that runs has ended.
func (s *server) later(after time.Duration, do func()) {
	p := s.running
	s.ended.Go(func() {
		select {
		case <-time.After(after):
		case <-p.ended:
		}
		do()
		s.cluster.note(s.name, "goes on")
	})
}

// startServers starts those that do not run.
func (c *Cluster) startServers(context.Context) {
	for _, s := range c.servers {
		if !s.alive() && s.gone() {
			if err := s.start(); err != nil {
				c.fail("%v", err)
			}
		}
	}
}

func sortByName(pods []*v1.Pod) {
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return cmp.Compare(a.Name, b.Name) })
}
