package decide

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/gangs"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// gangKeeper keeps gangs whole. The first member of a gang is bound only where there is capacity for as many others as
// the gang needs: movable slots are made for these in the same step. From then on each member that is bound takes its
// slot along, until the minimum is bound.
//
//	waits      no member is bound; the last try was refused, as there was no capacity for all that have to be there
//	starts     some are bound, and slots are kept for the rest
//	falls short  some are bound, and the slots ended: at their deadline, or because pods are missing
//	whole      the minimum is bound. Nothing is kept and nothing remembered; more members are bound like other pods
//
// Only gangs that are not whole are remembered. What is bound, and what is kept, is not remembered: the ledger is asked
// each time.
type gangKeeper struct {
	o       *Options
	arbiter *Arbiter // binds what is left
	// others counts changes that may let pods fit and that the ledger has no event for.
	others atomic.Uint64

	// mu is held over each decision about members, so that two members of gangs that wait for each other's capacity
	// do not get half of it each.
	mu       sync.Mutex
	of       map[kinds.Key]*startingGang
	searches int // how many watch may still make
	// nextSearch is the moment until which no search for capacity is made for members that ask for very different things.
	nextSearch time.Time
	// halfTime is how long gangs have been half, all together.
	halfTime time.Duration
}

// startingGang is what is remembered of a gang that is not whole.
type startingGang struct {
	gangs.Gang
	caller   string // the one that asked last: the slots count in its budget
	priority int32

	kept     map[ledger.PodRef]*cluster.Pod // the pods that movable slots were made for
	reserved []ledger.PodRef                // those that somebody else keeps capacity for, for as long
	deadline time.Time                      // of what is kept
	// firstBind is the member with whose bind the slots were made, until one was seen bound. They end when that bind, and
	// all others that have started since, have failed.
	firstBind ledger.PodRef
	trial     time.Time // when the bind of firstBind started
	failures  int       // how often that came to nothing
	retryAt   time.Time // until when it is not tried again
	lent      bool      // the slots last longer than their time, as a bind had started shortly before that ended
	moved     time.Time // when a bind of a member started last, or members were sent to what is kept for them

	finishing bool          // the server has just bound a member on its own account, and goes on
	again     time.Time     // until when it binds none, after such a bind has failed
	backoff   time.Duration // the last pause of these
	bound     int           // how many members were seen bound; a change ends again and backoff
	last      ledger.PodRef // whose bind has started last: the watch may not have brought it yet

	half    time.Time // since when some members are bound but not enough; zero while none is
	counted time.Time // until when that time was added to halfTime
	enough  bool      // the minimum is being bound, which may fail
	short   bool      // nothing is kept for the rest any more, and that was reported

	since, asked time.Time // when the gang was refused first, and last, while none of it is bound
	why          string    // the reason of the last refusal
	called       time.Time // when the gang was woken as it comes first and could start; zero if it was not
	judged       time.Time // when filter last asked whether another gang comes first; zero once this gang has started
	behind       string    // which gang does, in words
	// waiting are members that filter refused on all nodes for the gang's sake. They are woken when it may start, but
	// not before notBefore.
	waiting   map[types.UID]*cluster.Pod
	pause     time.Duration
	notBefore time.Time
	looked    moment // of the last search, which found no capacity for it
	// closed are nodes with pods that members must not be with, as far as that was noticed since the gang started, or
	// since there was no capacity elsewhere.
	closed map[string]bool
}

// moment is compared with a later one to see whether anything has changed since the last search for capacity.
type moment struct {
	revision uint64 // of the ledger
	others   uint64 // changes that the ledger has no event for
}

func (g *gangKeeper) moment() moment { return moment{g.o.Ledger.Revision(), g.others.Load()} }

func newGangKeeper(a *Arbiter) *gangKeeper {
	return &gangKeeper{o: &a.o, arbiter: a, of: map[kinds.Key]*startingGang{}}
}

// startBind starts the bind of any pod. For a member of a gang it also keeps what the gang needs. The bind may be
// redirected to another node; p is for that node then. Where to is p's own node, the server has chosen it.
func (g *gangKeeper) startBind(pod *cluster.Pod, p *ledger.Placement, to string) (ledger.Grant, error) {
	gang, ok := g.o.Gangs.Of(pod)
	if !ok {
		grant, err := g.o.Ledger.StartBind(p)
		if home, ok := g.bindHome(pod, p, nil, to, err); ok {
			return home, nil
		}
		return grant, err
	}
	pod = pod.WithCaller(p.Caller)
	g.mu.Lock()
	defer g.mu.Unlock()
	if to == p.Node && !g.mayBeOn(pod, p.Node) {
		return ledger.Grant{}, gangError(p, ledger.GangWaits, "the node that the server has chosen will not do any more")
	}
	s := g.of[gang.Key]
	if s != nil && (gang.Problem != "" && !gang.Missing || s.isStartedWithout(&gang)) {
		gang = s.Gang // what was known of it before
	}
	if s != nil && s.kept[pod.Ref] != nil && s.Minimum == gang.Minimum {
		if _, kept := g.o.Ledger.Standing(pod.Ref); kept {
			return g.bindKept(s, pod, p, to)
		}
	}
	return g.startMember(pod, &gang, p, to)
}

// startCreated is startBind for a pod that is being created with a node. Such a pod starts no gang: it may never come,
// and then the capacity would be kept for the others for nothing.
func (g *gangKeeper) startCreated(pod *cluster.Pod, p *ledger.Placement) (ledger.Grant, error) {
	if gang, ok := g.o.Gangs.Of(pod); ok {
		g.mu.Lock()
		m := g.headcount(&gang, pod.Ref)
		g.mu.Unlock()
		if !m.isStarted() && m.lacks(pod) > 0 {
			return ledger.Grant{}, gangError(p, ledger.GangIncomplete, fmt.Sprintf(
				"%s has not started: its first member must be created without a node, and bound by a scheduler", gang.Key))
		}
	}
	return g.startBind(pod, p, nowhere)
}

// bindKept starts the bind of a member that a slot was made for when its gang was decided on. g.mu is held.
func (g *gangKeeper) bindKept(s *startingGang, pod *cluster.Pod, p *ledger.Placement, to string) (
	ledger.Grant, error,
) {
	grant, _, err := g.bindWith(pod, p, nil, to)
	if err == nil {
		delete(s.kept, pod.Ref)
		s.last, s.moved = pod.Ref, g.o.Ledger.Clock.Now()
		g.lend(s)
		if len(s.kept) == 0 {
			m := g.headcount(&s.Gang, ledger.PodRef{})
			g.granted(s, m.short() <= 0)
		}
	}
	return grant, err
}

// granted records whether a gang's minimum is bound, or being bound. If so the gang is not half. g.mu is held.
func (g *gangKeeper) granted(s *startingGang, is bool) {
	g.countHalf(s)
	s.enough = is
}

func (g *gangKeeper) isKeptOn(pod ledger.PodRef, node string) bool {
	home, ok := g.o.Ledger.HomeOf(pod)
	return ok && home == node
}

// bindFailed gives back the capacity of a bind that has failed. A member of a gang that is not whole keeps the
// capacity, as others would take it before the member is bound again.
func (g *gangKeeper) bindFailed(ref ledger.PodRef, node string) bool {
	pod, ok := g.o.Pods.Pod(ref.Namespace, ref.Name)
	if !ok || pod.Gang == nil || pod.Ref.UID != ref.UID || pod.Deleting || pod.Finished || pod.Node != "" {
		return g.o.Ledger.BindFailed(ref, node)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.of[pod.Gang.Key(ref.Namespace)]
	if s == nil || !g.o.Ledger.Clock.Now().Before(s.deadline) {
		return g.o.Ledger.BindFailed(ref, node)
	}
	if m := g.headcount(&s.Gang, ref); s.firstBind == ref && m.binding == 0 {
		g.o.Ledger.BindFailed(ref, node)
		g.failed(s)
		return true
	}
	if !g.o.Ledger.BindFailedKeeping(ref, node, s.deadline) {
		return false
	}
	s.kept[ref] = pod
	g.granted(s, false)
	return true
}

// isStartedWithout reports whether a gang has started with another minimum than the one that its newest pod says: the
// watch may not have brought the member yet that was bound.
func (s *startingGang) isStartedWithout(gang *gangs.Gang) bool {
	return gang.Unsettled && !s.half.IsZero()
}

// startMember starts the bind of a member that no slot of its own is used for. g.mu is held.
func (g *gangKeeper) startMember(pod *cluster.Pod, gang *gangs.Gang, p *ledger.Placement, to string) (
	ledger.Grant, error,
) {
	if state, _ := g.o.Ledger.Standing(pod.Ref); state != ledger.NoAllocation {
		return g.o.Ledger.StartBind(p)
	}
	m := g.headcount(gang, pod.Ref)
	if err := m.incomplete(pod, p); err != nil {
		return ledger.Grant{}, g.refused(pod, gang, err)
	}
	if err := g.resting(gang, p); err != nil {
		return ledger.Grant{}, g.refused(pod, gang, err)
	}
	// Once a gang has started, its members may be made anew one by one. Capacity is kept for those that are there.
	rest := m.rest(pod)
	if gang.Unread {
		rest = nil // how many it needs is not known: what is kept for its mates is enough
	}
	if !g.mayLook(rest) {
		return ledger.Grant{}, g.refused(pod, gang, gangError(p, ledger.GangWaits, fmt.Sprintf(
			"%s has pods that ask for many different things; the server looks for capacity for one such gang at a time, with "+
				"pauses", gang.Key)))
	}
	if !m.isStarted() {
		if err := g.comesLater(pod, gang, p, rest); err != nil {
			return ledger.Grant{}, g.refused(pod, gang, err)
		}
	}
	grant, dropped, err := g.bindWith(pod, p, rest, to)
	if err != nil {
		return ledger.Grant{}, g.refused(pod, gang, err)
	}
	g.started(pod, gang, &m, rest, dropped)
	return grant, nil
}

func gangError(p *ledger.Placement, reason ledger.Reason, detail string) *gates.Error {
	return &gates.Error{Outcome: gates.Refused, Pod: p.Pod, Node: p.Node, Rejection: &ledger.Rejection{
		Pod: p.Pod, Node: p.Node,
		Reason: reason, Detail: detail,
	}}
}

// reasonOf returns why the ledger, or a gang, refuses; Fits where something else does.
func reasonOf(err error) ledger.Reason {
	var e *gates.Error
	if errors.As(err, &e) && e.Rejection != nil {
		return e.Rejection.Reason
	}
	return ledger.Fits
}

// refused remembers that a member was refused, and reports it if that was for its gang's sake. g.mu is held.
func (g *gangKeeper) refused(pod *cluster.Pod, gang *gangs.Gang, err error) error {
	s := g.state(pod, gang)
	now := g.o.Ledger.Clock.Now()
	if s.since.IsZero() {
		s.since = now
	}
	s.asked, s.why = now, err.Error()
	reason := reasonOf(err)
	if reason != ledger.GangWaits {
		s.judged, s.behind = time.Time{}, "" // it could not start: whether another one comes first is asked anew
	}
	if reason.OfGang() {
		g.o.Metrics.ObserveGangRefusal(reason.String())
		g.o.Waiting.TellGangRefused(pod, reason, s.why)
	}
	return err
}

// state returns what is remembered of a gang. g.mu is held.
func (g *gangKeeper) state(pod *cluster.Pod, gang *gangs.Gang) *startingGang {
	s := g.of[gang.Key]
	if s == nil {
		s = &startingGang{kept: map[ledger.PodRef]*cluster.Pod{}, waiting: map[types.UID]*cluster.Pod{}}
		g.of[gang.Key] = s
	}
	s.Gang, s.caller, s.priority = *gang, cmp.Or(pod.Caller, s.caller), pod.Priority
	return s
}

// started remembers a member whose bind has started, and what was kept for the rest. It gives up what is kept beyond
// the gang's need. g.mu is held.
func (g *gangKeeper) started(pod *cluster.Pod, gang *gangs.Gang, m *headcount, rest []*cluster.Pod,
	dropped []ledger.PodRef,
) {
	s := g.state(pod, gang)
	now := g.o.Ledger.Clock.Now()
	delete(s.kept, pod.Ref)
	s.last, s.moved = pod.Ref, now
	for _, ref := range dropped {
		delete(s.kept, ref)
	}
	for _, member := range rest {
		s.kept[member.Ref] = member
	}
	s.since, s.asked, s.called, s.why = time.Time{}, time.Time{}, time.Time{}, ""
	s.judged, s.behind = time.Time{}, ""
	whole := m.short([]*cluster.Pod{pod}) <= 0
	g.granted(s, whole)
	if m.grows() || s.half.IsZero() {
		s.half, s.bound, s.short = now, m.bound-m.binding, false
	}
	if m.grows() { // it has started to grow, and goes on like others
		g.o.Gangs.Settle(s.Key)
		s.Former = 0
	}
	g.wake(s)
	g.giveUp(s, -m.short(m.kept, rest, []*cluster.Pod{pod})-len(dropped))
	if !m.isStarted() || !now.Before(s.deadline) {
		s.firstBind, s.trial = pod.Ref, now
		g.putOff(s)
	}
	g.lend(s)
	if s.reserved = nil; !whole && !s.short {
		g.outlast(s, m.kept)
	}
}

// countHalf adds up for how long a gang has been half, until now. It is called before half, or enough, changes. g.mu is
// held.
func (g *gangKeeper) countHalf(s *startingGang) {
	now := g.o.Ledger.Clock.Now()
	if !s.half.IsZero() && !s.enough {
		g.halfTime += now.Sub(s.counted)
	}
	s.counted = now
}

// giveUp ends so many of the slots that were made for a gang. g.mu is held.
func (g *gangKeeper) giveUp(s *startingGang, count int) {
	var pods []ledger.PodRef
	for ref := range s.kept {
		if len(pods) >= count {
			break
		}
		pods = append(pods, ref)
		delete(s.kept, ref)
	}
	g.end(pods)
}

// end ends the slots of some pods, but for what somebody has reserved for them since.
func (g *gangKeeper) end(pods []ledger.PodRef) {
	if len(pods) > 0 {
		_ = g.o.Ledger.Exchange(&ledger.Exchange{GiveUp: pods}) // it asks for nothing that could be refused
	}
}
