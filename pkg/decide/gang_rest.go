package decide

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// bindWith starts the bind of a member that may be refused because of the slots of others, and makes slots for the rest
// in the same step. dropped are the members whose slots ended and that got no other slot. g.mu is held.
func (g *gangKeeper) bindWith(pod *cluster.Pod, p *ledger.Placement, rest []*cluster.Pod, to string) (
	grant ledger.Grant, dropped []ledger.PodRef, err error,
) {
	grant, err = g.exchange(p, nil, rest, nil)
	if s := g.of[pod.Gang.Key(pod.Ref.Namespace)]; s != nil && reasonOf(err).OfCapacity() {
		grant, dropped, err = g.changePlaces(s, pod, p, rest, err)
	}
	if home, ok := g.bindHome(pod, p, rest, to, err); ok {
		return home, nil, nil
	}
	return grant, dropped, err
}

// changePlaces starts the bind of a member that was refused because slots of other members keep the capacity of the
// node. These make way, as a gang's scheduler decides itself which member goes where. They get slots in the place of
// the member's own slot, on the same node, or on any other. Where that is impossible the first refusal stays: it says
// where the member's own slot is. g.mu is held.
func (g *gangKeeper) changePlaces(
	s *startingGang, pod *cluster.Pod, p *ledger.Placement, rest []*cluster.Pod, refused error,
) (grant ledger.Grant, dropped []ledger.PodRef, err error) {
	first, giveUp := []string{p.Node}, []ledger.PodRef{pod.Ref}
	home, hasOwn := g.o.Ledger.HomeOf(pod.Ref)
	if hasOwn {
		first = []string{home, p.Node}
	}
	var moved []*cluster.Pod
	for ref, mate := range s.kept {
		if ref != pod.Ref && g.isKeptOn(ref, p.Node) {
			moved, giveUp = append(moved, mate), append(giveUp, ref)
		}
	}
	if len(moved) == 0 {
		return ledger.Grant{}, nil, refused
	}
	if !hasOwn && len(rest) == 0 { // the pod stands in for one of them
		k := slices.IndexFunc(moved, func(mate *cluster.Pod) bool {
			return len(s.Tasks) == 0 || mate.Gang.Task == pod.Gang.Task
		})
		if k >= 0 {
			dropped = []ledger.PodRef{moved[k].Ref}
			moved = slices.Delete(moved, k, k+1)
		}
	}
	grant, err = g.exchange(p, giveUp, append(moved, rest...), first)
	if err != nil {
		return ledger.Grant{}, nil, refused
	}
	return grant, dropped, nil
}

// exchange starts a bind, gives up slots and makes some for other members, on the nodes named first or any.
func (g *gangKeeper) exchange(p *ledger.Placement, giveUp []ledger.PodRef, keep []*cluster.Pod,
	first []string,
) (ledger.Grant, error) {
	if len(giveUp)+len(keep) == 0 {
		return g.o.Ledger.StartBind(p)
	}
	p.Slots = g.o.Ledger.ExactFirst(p.Slots, p.Request)
	choices, more := g.choices(keep, p.Caller, first, false)
	grant, err := g.o.Ledger.StartBindWith(p, &ledger.Exchange{GiveUp: giveUp, Keep: choices})
	if reasonOf(err) != ledger.GangUnplaced {
		return grant, err
	}
	if len(choices) > 1 && len(keep) <= maxPacked {
		packed := g.pack(p, giveUp, keep)
		grant, err = g.o.Ledger.StartBindWith(p, &ledger.Exchange{GiveUp: giveUp, Keep: packed})
	}
	if !more || reasonOf(err) != ledger.GangUnplaced {
		return grant, err
	}
	choices, _ = g.choices(keep, p.Caller, first, true)
	return g.o.Ledger.StartBindWith(p, &ledger.Exchange{GiveUp: giveUp, Keep: choices})
}

// maxPacked is for how many members pack looks for the best node one by one, which costs a look at all nodes for each.
const maxPacked = 100

// pack chooses nodes for members that ask for different things, the largest first. A member gets the node of a slot of
// a reservation, or else the node where least is left over.
func (g *gangKeeper) pack(p *ledger.Placement, giveUp []ledger.PodRef, members []*cluster.Pod) (
	choices []ledger.Choice,
) {
	uids := make([]types.UID, 0, len(giveUp))
	for _, ref := range giveUp {
		uids = append(uids, ref.UID)
	}
	survey := g.o.Ledger.Survey(uids...)
	taken := map[ledger.SlotRef]bool{}
	reserved := func(usable []ledger.UsableSlot, allowed func(node string) bool) (node string) {
		for _, slot := range usable {
			if !taken[slot.Ref] && allowed(slot.Node) {
				taken[slot.Ref] = !slot.Shared
				return slot.Node
			}
		}
		return ""
	}
	if reserved(g.o.Ledger.UsableSlots(p), func(node string) bool { return node == p.Node }) == "" {
		survey.Take(p)
	}
	groups := g.group(members, p.Caller, g.deadlineFor(members))
	slices.SortStableFunc(groups, (*alike).compare)
	for _, a := range groups {
		suits, usable := g.open(a.pod), g.o.Ledger.UsableSlots(&a.placement)
		for _, slot := range a.slots {
			at := a.placement
			at.Pod, at.Node = slot.Pod, reserved(usable, suits)
			if at.Node == "" {
				at.Node = survey.BestFit(&a.placement, suits)
				survey.Take(&at)
			}
			slot.Node = at.Node
			choices = append(choices, ledger.Choice{Slots: []ledger.Slot{slot}, Nodes: []string{at.Node}})
		}
	}
	return choices
}

// restPerNode is how long the server pauses after a search for members that ask for very different things, for each
// member and each node. It is some times as long as the search takes, in which nothing else is decided.
const restPerNode = time.Microsecond

// mayLook reports whether capacity may be looked for now for some members. g.mu is held.
func (g *gangKeeper) mayLook(members []*cluster.Pod) bool {
	if !g.isDiverse(members) {
		return true
	}
	now := g.o.Ledger.Clock.Now()
	if now.Before(g.nextSearch) {
		return false
	}
	g.nextSearch = now.Add(time.Duration(len(members)*g.o.Ledger.Stats().Nodes) * restPerNode)
	return true
}

// isDiverse reports whether members ask for so many different things that a search for all of them takes long.
func (g *gangKeeper) isDiverse(members []*cluster.Pod) bool {
	if len(members) <= maxPacked {
		return false
	}
	var found []*alike
	for _, member := range members {
		p := g.o.Question.For(member, "")
		p.Request = p.Request.Kept()
		as := g.o.Pods.RepelledAs(member)
		switch {
		case slices.ContainsFunc(found, func(a *alike) bool { return a.isLike(member, as, &p) }):
		case len(found) == maxPacked:
			return true
		default:
			found = append(found, &alike{pod: member, repelledAs: as, placement: p, matched: p.Slots})
		}
	}
	return false
}

// suits returns whether a pod may be on a node, going by what the pod says of nodes, and by what pods there say of it.
func (g *gangKeeper) suits(pod *cluster.Pod) func(node string) bool {
	accepts, repelled := pod.Constraints.Accepts(), g.o.Pods.Repelled(pod, g.o.Nodes)
	return func(name string) bool {
		node, ok := g.o.Nodes.Node(name)
		return ok && accepts(node) && !repelled(node)
	}
}

// open is suits without the nodes where members were found to clash. g.mu is held.
func (g *gangKeeper) open(pod *cluster.Pod) func(node string) bool {
	suits := g.suits(pod)
	s := g.of[pod.Gang.Key(pod.Ref.Namespace)]
	if s == nil || len(s.closed) == 0 || !pod.HasClashes() {
		return suits
	}
	return func(name string) bool { return !s.closed[name] && suits(name) }
}

// alike are members that ask for the same.
type alike struct {
	pod        *cluster.Pod
	repelledAs string // see Pods.RepelledAs
	placement  ledger.Placement
	matched    []ledger.SlotRef // the slots of reservations that they may use, as they were found
	slots      []ledger.Slot
	// nodes are where the slots may be, and room is how many pods like these they have capacity for.
	nodes []string
	room  int64
}

// group sorts members by what they ask for. Their slots end at a moment.
func (g *gangKeeper) group(members []*cluster.Pod, caller string, end time.Time) (groups []*alike) {
	for _, member := range members {
		p := g.o.Question.For(member.WithCaller(caller), "")
		p.ToCome()
		p.Request = p.Request.Kept()
		slot := p.Slot(end)
		slot.Movable = true
		as := g.o.Pods.RepelledAs(member)
		k := slices.IndexFunc(groups, func(a *alike) bool { return a.isLike(member, as, &p) })
		if k < 0 {
			matched := p.Slots
			p.Slots = g.o.Ledger.ExactFirst(matched, p.Request)
			k, groups = len(groups), append(groups, &alike{
				pod: member, repelledAs: as, placement: p, matched: matched,
				slots: make([]ledger.Slot, 0, len(members)),
			})
		}
		if slot.Slots = groups[k].placement.Slots; len(slot.Slots) > 0 {
			slot.Node = g.o.Waiting.MeantFor(member.Ref.UID) // it may be on its way there
		}
		groups[k].slots = append(groups[k].slots, slot)
	}
	return groups
}

// isLike reports whether what suits the group suits a pod.
func (a *alike) isLike(pod *cluster.Pod, repelledAs string, p *ledger.Placement) bool {
	return p.Devices == nil && a.placement.Devices == nil && a.placement.Request.Equal(p.Request) &&
		sameSlots(a.matched, p.Slots) && a.pod.Constraints.Same(pod.Constraints) &&
		a.repelledAs == repelledAs
}

// sameSlots reports whether two pods match the same slots; mostly they are those of one reservation, and the very same
// list.
func sameSlots(a, b []ledger.SlotRef) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// choices says where slots for members may be: on the nodes named first, then where reservations keep capacity for
// them, then where there is free capacity. Members with the fewest places come first. Unless all nodes are asked for,
// only as many nodes are listed as should do; more says that there are others.
func (g *gangKeeper) choices(members []*cluster.Pod, caller string, first []string,
	all bool,
) (choices []ledger.Choice, more bool) {
	groups := g.group(members, caller, g.deadlineFor(members))
	for _, a := range groups {
		more = g.findNodes(a, first, 2*len(members)+8, all) || more
	}
	slices.SortStableFunc(groups, (*alike).compare)
	for _, a := range groups {
		choices = append(choices, ledger.Choice{Slots: a.slots, Nodes: a.nodes})
	}
	return choices, more
}

// compare puts the pods with the fewest places first, and of equals the largest.
func (a *alike) compare(b *alike) int {
	return cmp.Or(cmp.Compare(a.room, b.room), compareSizes(b.placement.Request, a.placement.Request))
}

// compareSizes puts what asks for less first: less CPU, then less memory.
func compareSizes(a, b *resources.Request) int {
	return cmp.Or(cmp.Compare(a.Value(resources.CPU), b.Value(resources.CPU)),
		cmp.Compare(a.Value(resources.Memory), b.Value(resources.Memory)))
}

// compareExtended puts what asks for less of extended resources first, and what no node has last.
func compareExtended(a, b *resources.Request) (order int) {
	last := func(r *resources.Request, i int) (amount resources.Amount) {
		if k := len(r.Amounts) - i; k >= 0 && r.Amounts[k].Column > resources.Pods {
			amount = r.Amounts[k]
		}
		return amount
	}
	order = cmp.Compare(len(a.Unlisted), len(b.Unlisted))
	for i := 1; order == 0; i++ {
		x, y := last(a, i), last(b, i)
		if order = cmp.Or(cmp.Compare(x.Column, y.Column), cmp.Compare(x.Value, y.Value)); x.Column == 0 {
			break
		}
	}
	return order
}

// findNodes looks for nodes for some members that are alike. It may stop once the nodes have capacity for enough pods.
func (g *gangKeeper) findNodes(a *alike, first []string, enough int, all bool) (cut bool) {
	a.nodes = slices.Clone(first)
	for _, usable := range g.o.Ledger.UsableSlots(&a.placement) {
		a.nodes = append(a.nodes, usable.Node)
	}
	suits := g.open(a.pod)
	a.nodes = slices.DeleteFunc(a.nodes, func(name string) bool { return !suits(name) })
	g.o.Ledger.Rooms(&a.placement, func(name string, count int64) bool {
		if suits(name) {
			a.nodes = append(a.nodes, name)
			a.room += min(count, int64(enough))
		}
		cut = !all && a.room >= int64(enough)
		return !cut
	})
	return cut
}
