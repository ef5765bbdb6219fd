package decide

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/globalreserve/globalreserve/pkg/gangs"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// putOff puts off the end of a gang's slots when a member is bound: from then on they are kept for the time of the
// policy at least. To go through all of them takes long. So they are given half as much again, and are left alone while
// that suffices. A bind that has only started puts off nothing: it may fail, and be tried again for ever. g.mu is held.
func (g *gangKeeper) putOff(s *startingGang) {
	now, ttl := g.o.Ledger.Clock.Now(), g.ttl()
	if s.deadline.Sub(now) >= ttl {
		return
	}
	s.lent = false
	g.endAt(s, now.Add(g.longest()))
}

// lentFor is for how long a bind is waited for, at most: before it was seen, or has failed, the slots do not end.
const lentFor = 15 * time.Second

// lend puts off the end of a gang's slots until the bind that has just started can be seen, once. g.mu is held.
func (g *gangKeeper) lend(s *startingGang) {
	now, least := g.o.Ledger.Clock.Now(), min(lentFor, g.ttl()/2)
	if !s.lent && now.Before(s.deadline) && s.deadline.Sub(now) < least {
		s.lent = true
		g.endAt(s, now.Add(least))
	}
}

// endAt puts off the end of a gang's slots to a later moment than before. g.mu is held.
func (g *gangKeeper) endAt(s *startingGang, at time.Time) {
	s.deadline = at
	pods := append(make([]ledger.PodRef, 0, len(s.reserved)+len(s.kept)), s.reserved...)
	g.o.Ledger.PutOff(slices.AppendSeq(pods, maps.Keys(s.kept)), at)
}

// ttl is how long slots are kept for the rest of a gang after a member was bound. longest is how long they are given.
func (g *gangKeeper) ttl() time.Duration     { return g.o.Policy.Current().Gangs.Deadline.Duration }
func (g *gangKeeper) longest() time.Duration { return g.ttl() * 3 / 2 }

// deadlineFor returns when slots end that are made now for members of one gang: together with its others. g.mu is held.
func (g *gangKeeper) deadlineFor(members []*cluster.Pod) time.Time {
	now := g.o.Ledger.Clock.Now()
	if len(members) > 0 {
		s := g.of[members[0].Gang.Key(members[0].Ref.Namespace)]
		if s != nil && !s.half.IsZero() && now.Before(s.deadline) {
			return s.deadline
		}
	}
	return now.Add(g.longest())
}

// outlast makes what somebody has reserved for members last as long as the gang counts on it, whatever its own
// deadline. For members with a slot of a Reservation object it makes slots in memory within that, as for other members.
// g.mu is held.
func (g *gangKeeper) outlast(s *startingGang, members []*cluster.Pod) {
	var choices []ledger.Choice
	within := map[ledger.PodRef]*cluster.Pod{}
	for _, member := range members {
		if s.kept[member.Ref] != nil {
			continue
		}
		if _, inMemory := g.o.Ledger.HomeOf(member.Ref); inMemory {
			s.reserved = append(s.reserved, member.Ref)
		} else if durable, ok := g.o.Ledger.SlotFor(member.Ref); ok {
			p := g.o.Question.For(member.WithCaller(s.caller), "")
			p.Request = p.Request.Kept()
			slot := p.Slot(s.deadline)
			slot.Movable, slot.Slots = true, p.Slots
			choices = append(choices, ledger.Choice{Slots: []ledger.Slot{slot}, Nodes: []string{durable.Node}})
			within[member.Ref] = member
		}
	}
	g.o.Ledger.PutOff(s.reserved, s.deadline)
	if len(choices) > 0 && g.o.Ledger.Exchange(&ledger.Exchange{Keep: choices}) == nil {
		maps.Copy(s.kept, within)
	}
}

// resting refuses a member of a gang whose last binds have failed, for a while: each such bind keeps capacity for the
// rest. g.mu is held.
func (g *gangKeeper) resting(gang *gangs.Gang, p *ledger.Placement) error {
	s := g.of[gang.Key]
	now := g.o.Ledger.Clock.Now()
	if s == nil || now.Before(s.deadline) {
		return nil
	}
	if s.firstBind != (ledger.PodRef{}) && !g.isBound(s.firstBind) {
		g.failed(s)
	}
	if !now.Before(s.retryAt) {
		return nil
	}
	return gangError(p, ledger.GangWaits, fmt.Sprintf(
		"%d times a pod of %s was to be bound, and was not (does a policy, a quota or a webhook refuse it?); it may be "+
			"tried again at %s", s.failures, gang.Key, g.o.Ledger.Clock.WallAt(s.retryAt).UTC().Format(time.RFC3339)))
}

// failed ends the slots of a gang that were made with a bind that came to nothing. From the second time on no others
// are made for a while. g.mu is held.
func (g *gangKeeper) failed(s *startingGang) {
	now := g.o.Ledger.Clock.Now()
	s.firstBind, s.deadline = ledger.PodRef{}, now
	if s.failures++; s.failures > 1 {
		s.retryAt = now.Add(pauseAfter(s.failures, now.Sub(s.trial)))
	}
	g.giveUp(s, len(s.kept))
}
