package steering

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
)

const (
	// MinSample is how many feasible nodes kube-scheduler looks for at least
	// (minFeasibleNodesToFind): where it offers fewer, there are no more.
	MinSample = 100
	// maxEffort is what is spent on a pod before it has its choice again: 1 for
	// an attempt narrowed down to one node, elsewhereEffort for one refused.
	maxEffort       = 4
	elsewhereEffort = 2
	// patience is for how long attempts that do not know of the pod's nomination cost no effort: some began before it was
	// written, and kube-scheduler clears what is nominated when an attempt fails. Other schedulers never look at it.
	patience = 5 * time.Second
	// planLife is for how long a plan keeps other pods away from its slot after
	// it was last asked for. kube-scheduler's own back-off is at most 10 s.
	planLife = 15 * time.Second
	// maxPlans bounds the memory of plans; those beyond it are not steered.
	maxPlans = 50_000
	// settle is how long after an attempt was refused the pod is nominated.
	settle = 100 * time.Millisecond
	// sweepDelay collects changes of the ledger before nominations are looked at.
	sweepDelay = 100 * time.Millisecond
)

// Nominator writes status.nominatedNodeName of pods. Both writes must apply only
// to the pod with the given UID.
type Nominator interface {
	Nominate(ctx context.Context, pod ledger.PodRef, node string) error
	// Clear takes the nomination away if it is still this node.
	Clear(ctx context.Context, pod ledger.PodRef, node string) error
}

// Options configures Steering. All fields are required.
type Options struct {
	Ledger    ledger.Reader
	Question  *placement.Builder
	Nominator Nominator
	// Node is what is known of a node; ok is false where it does not exist.
	Node func(name string) (node cluster.Node, ok bool)
	Log  logrus.FieldLogger
	// OnGivenUp is told of a pod that waits for a nomination that does not come, or
	// may be no change: it has to be woken some other way.
	OnGivenUp func(pod *cluster.Pod)
}

// Steering plans pods for nodes; see the package comment. Make one with New.
type Steering struct {
	Options

	limiter   *rate.Limiter // of searches
	searching sync.Mutex    // held until what a search found is taken, so that two pods do not find the same; taken before mu

	// mu guards what follows. A search takes it with the ledger's lock held, so that nobody may ask the ledger with mu held.
	mu     sync.Mutex
	queue  workqueue.TypedRateLimitingInterface[types.UID] // nil before Run
	plans  map[types.UID]*plan
	bySlot map[ledger.SlotRef]types.UID   // of slots for one pod only
	byNode map[string]map[types.UID]*plan // of free capacity
}

// plan is the node a pod is meant for: that of a slot, or one with free capacity.
type plan struct {
	pod *cluster.Pod
	// slot is what the pod is to use there. Of free capacity it has the node and no name.
	slot   ledger.UsableSlot
	effort int       // see maxEffort
	since  time.Time // of the first attempt that cost some
	asked  time.Time
	search // of free capacity
	// wanted is the node to nominate, nominated the one that has been; "" means
	// none.
	wanted, nominated string
	// again: the node had been nominated before. The pod may have it still, and to
	// write what is there already wakes nobody.
	again   bool
	givenUp bool // nominating has failed for good
}

// nominate has the plan's node nominated.
func (p *plan) nominate() {
	p.again = p.nominated == p.slot.Node
	p.wanted, p.nominated = p.slot.Node, ""
}

// spend counts an attempt.
func (p *plan) spend(effort int) {
	if p.effort == 0 {
		p.since = p.asked
	}
	p.effort += effort
}

// New returns Steering that is not running.
func New(o Options) *Steering {
	return &Steering{
		Options: o, limiter: rate.NewLimiter(searchesPerSecond, searchesPerSecond),
		plans: map[types.UID]*plan{}, bySlot: map[ledger.SlotRef]types.UID{}, byNode: map[string]map[types.UID]*plan{},
	}
}

// Plan chooses one of the slots a pod could be bound with for it, and returns
// the slot's node. Slots on an offered node are preferred. ok is false where all
// are meant for other pods, or none is on a node that is offered or may merely
// not have been looked at.
func (s *Steering) Plan(pod *cluster.Pod, usable []ledger.UsableSlot, offered []string) (node string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, _ := s.plan(pod, usable, offered)
	if p == nil {
		return "", false
	}
	return p.slot.Node, true
}

// Direct plans a pod for an attempt to schedule it on one of the offered nodes.
// It returns the node that alone should be kept; elsewhere says that this node
// was not offered, and that the pod comes back with it if all others are refused
// now. Both are zero where the pod should have its choice. nominated is the node that the scheduler's copy of the pod has.
func (s *Steering) Direct(pod *cluster.Pod, nominated string, usable []ledger.UsableSlot, offered []string) (node string, elsewhere bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, isOffered := s.plan(pod, usable, offered)
	switch {
	case p == nil:
		return "", false
	case !isOffered && p.wanted == p.slot.Node:
		return "", true // something else woke the pod before its nomination did
	case p.effort >= maxEffort || (p.givenUp && !isOffered):
		return "", false
	case isOffered:
		p.spend(1)
		return p.slot.Node, false
	case p.effort == 0 || nominated == p.slot.Node || p.asked.Sub(p.since) >= patience:
		p.spend(elsewhereEffort)
	}
	p.nominate()
	s.enqueue(pod.Ref.UID, settle)
	return "", true
}

// Wake plans a waiting pod for one of its slots and nominates that node, which
// makes the scheduler try the pod again. It reports false where the pod could
// not be planned, and so is not woken.
func (s *Steering) Wake(pod *cluster.Pod) bool {
	placement := s.Question.For(pod, "")
	usable := s.Ledger.UsableSlots(&placement)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.choose(pod, usable, func(string) bool { return true })
	if p == nil || p.givenUp {
		return false
	}
	p.effort = 0
	p.nominate()
	s.enqueue(pod.Ref.UID, 0)
	return true
}

// Settled forgets a pod: it is bound, or gone.
func (s *Steering) Settled(pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.plans[pod]; p != nil {
		s.drop(p)
	}
}

// plan finds a slot for a pod, on an offered node if there is one.
func (s *Steering) plan(pod *cluster.Pod, usable []ledger.UsableSlot, offered []string) (p *plan, isOffered bool) {
	if p := s.choose(pod, usable, sets.New(offered...).Has); p != nil {
		return p, true
	}
	if len(offered) < MinSample {
		return nil, false
	}
	return s.choose(pod, usable, func(string) bool { return true }), false
}

// choose keeps the pod's plan if its slot is usable and on a node that will do,
// or finds another slot that is meant for nobody else.
func (s *Steering) choose(pod *cluster.Pod, usable []ledger.UsableSlot, willDo func(node string) bool) *plan {
	now := time.Now()
	p := s.plans[pod.Ref.UID]
	best := -1
	for k, h := range usable {
		switch {
		case !willDo(h.Node) || (!h.Shared && s.isTaken(h.Ref, pod.Ref.UID, now)):
		case p != nil && p.slot.Ref == h.Ref:
			p.pod, p.slot, p.asked = pod, h, now
			return p
		case best < 0:
			best = k
		}
	}
	if best < 0 || (p == nil && !s.mayPlan(now)) {
		return nil
	}
	next := &plan{pod: pod, slot: usable[best], asked: now}
	if p != nil {
		next.nominated, next.givenUp, next.effort, next.since = p.nominated, p.givenUp, p.effort, p.since
		if p.wanted != "" {
			next.wanted = next.slot.Node
			s.enqueue(pod.Ref.UID, settle) // what clears the other nomination may be on its way
		}
		s.drop(p)
	}
	s.plans[pod.Ref.UID] = next
	if !next.slot.Shared {
		s.bySlot[next.slot.Ref] = pod.Ref.UID
	}
	return next
}

// isTaken reports whether a slot is meant for another pod.
func (s *Steering) isTaken(slot ledger.SlotRef, pod types.UID, now time.Time) bool {
	other, ok := s.bySlot[slot]
	return ok && other != pod && now.Sub(s.plans[other].asked) < planLife
}

// drop forgets a plan. The slot may be another pod's by now.
func (s *Steering) drop(p *plan) {
	uid := p.pod.Ref.UID
	delete(s.plans, uid)
	s.leave(p)
}

// leave takes a plan off what others are kept away from.
func (s *Steering) leave(p *plan) {
	uid := p.pod.Ref.UID
	if s.bySlot[p.slot.Ref] == uid {
		delete(s.bySlot, p.slot.Ref)
	}
	if there := s.byNode[p.slot.Node]; there[uid] == p {
		if delete(there, uid); len(there) == 0 {
			delete(s.byNode, p.slot.Node)
		}
	}
}

// mayPlan reports whether another pod may be planned. Where there are too many, the plans nobody has
// asked for lately are dropped.
func (s *Steering) mayPlan(now time.Time) bool {
	if len(s.plans) < maxPlans {
		return true
	}
	for _, p := range s.plans {
		if now.Sub(p.asked) >= planLife && p.nominated == "" && p.wanted == "" {
			s.drop(p)
		}
	}
	return len(s.plans) < maxPlans
}

// byAge puts the plan asked for longest ago first.
func byAge(a, b *plan) int {
	return cmp.Or(a.asked.Compare(b.asked), cmp.Compare(a.pod.Ref.UID, b.pod.Ref.UID))
}
