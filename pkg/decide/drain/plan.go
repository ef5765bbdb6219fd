// Package drain plans where the pods of nodes would go, if the nodes were drained: a place on another node for each pod
// that has to go, next to those of the others. It changes nothing. Who drains keeps the places by Reservations, and
// evicts no pod before it has one (pkg/drain).
//
//   - plan.go  chooses the places on a copy of one revision of the ledger, beside the slots that are kept already
//   - pods.go  which pods have to go, as the API server lists them
//
// A place has the capacity that the pod's owner asks for another pod, on a node that the pod's selectors, tolerations
// and anti-affinity accept. What else may keep a pod off a node, such as its volumes, is said as a warning.
package drain

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// ErrUnknownNode refuses a plan for a node that does not exist.
var ErrUnknownNode = errors.New("unknown node")

// Options are what a Planner works with. All fields are required.
type Options struct {
	Ledger   *gates.GatedLedger
	Question *placement.Builder
	Nodes    *cluster.Nodes
	Pods     *cluster.Pods
	// Client lists whole pods.
	Client kubernetes.Interface
}

// Planner plans drains.
type Planner struct{ o Options }

// New returns a Planner.
func New(o Options) *Planner { return &Planner{o} }

// Plan says what becomes of the pods, by node, namespace and name. It is of one revision of the ledger.
type Plan struct {
	Revision uint64
	Pods     []*Pod
}

// Pod is one pod of a node that is to be drained, without what the pod asks for that is made for it.
type Pod struct {
	reserver.DrainPod

	// Next is the pod that is made for it.
	Next *cluster.Pod
}

func (p *Pod) ref() ledger.PodRef { return ledger.PodRef{Namespace: p.Namespace, Name: p.Pod} }

// placed reports whether a pod needs no place any more.
func (p *Pod) placed() bool { return p.Action != reserver.DrainMove || p.To != "" || p.Why != "" }

// Plan reads what it has to from the API server, and returns choose, which only computes. The errors are a *gates.Error
// while nothing can be decided, ErrUnknownNode, and those of the API server.
func (p *Planner) Plan(ctx context.Context, q *reserver.DrainPlanRequest) (choose func() *Plan, err error) {
	if err := p.o.Ledger.Ready(); err != nil {
		return nil, err
	}
	pods, err := p.list(ctx, q)
	if err != nil {
		return nil, err
	}
	apart, err := p.apart(ctx, pods)
	if err != nil {
		return nil, err
	}
	return func() *Plan { return p.choose(q, pods, apart) }, nil
}

// apart returns the nodes on which there are pods that a pod must not be with, going by its own anti-affinity. Pods
// that have to go count on the nodes that they are on.
func (p *Planner) apart(ctx context.Context, pods []*Pod) (map[*Pod]sets.Set[string], error) {
	type question struct{ namespace, selector string }
	answers, apart := map[question]sets.Set[string]{}, map[*Pod]sets.Set[string]{}
	for _, pod := range pods {
		if pod.placed() {
			continue
		}
		for namespace, selector := range pod.Next.Clashes() {
			asked := question{namespace, selector.String()}
			if answers[asked] == nil {
				nodes, err := p.nodesWith(ctx, namespace, selector)
				if err != nil {
					return nil, err
				}
				answers[asked] = nodes
			}
			apart[pod] = answers[asked].Union(apart[pod])
		}
	}
	return apart, nil
}

func (p *Planner) nodesWith(ctx context.Context, namespace string, selector labels.Selector) (sets.Set[string], error) {
	nodes, pods := sets.New[string](), p.o.Client.CoreV1().Pods(namespace)
	list := func(ctx context.Context, o metav1.ListOptions) (*v1.PodList, error) {
		o.LabelSelector = selector.String()
		return pods.List(ctx, o)
	}
	err := cluster.EachListed(ctx, "pods by their labels", list, func(pod *v1.Pod) { nodes.Insert(pod.Spec.NodeName) })
	return nodes, err
}

// choice is where places are chosen.
type choice struct {
	*Planner
	free     *ledger.Survey
	draining sets.Set[string]
	prefix   string
	apart    map[*Pod]sets.Set[string]
	taken    sets.Set[ledger.SlotRef]
	kept     map[string][]ledger.Slot // by namespace: what the plan would keep there
}

func (p *Planner) choose(q *reserver.DrainPlanRequest, pods []*Pod, apart map[*Pod]sets.Set[string]) *Plan {
	c := &choice{
		Planner: p, free: p.o.Ledger.Survey(), draining: sets.New(q.Nodes...), prefix: q.Drain + "-", apart: apart,
		taken: sets.New[ledger.SlotRef](), kept: map[string][]ledger.Slot{},
	}
	var open []*Pod
	for _, pod := range pods {
		if !pod.placed() && !c.hasSlot(pod, q.Drain) {
			open = append(open, pod)
		}
	}
	slices.SortStableFunc(open, func(a, b *Pod) int { // the largest first, as for the slots of a Reservation
		return cmp.Or(cmp.Compare(b.Next.Request.Value(resources.CPU), a.Next.Request.Value(resources.CPU)),
			cmp.Compare(b.Next.Request.Value(resources.Memory), a.Next.Request.Value(resources.Memory)))
	})
	for _, pod := range open {
		c.place(pod)
	}
	slices.SortFunc(pods, func(a, b *Pod) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	return &Plan{Revision: c.free.Revision, Pods: pods}
}

// hasSlot gives a pod a slot that is kept for it already by a Reservation of the drain, if there is one left.
func (c *choice) hasSlot(pod *Pod, drain string) bool {
	if drain == "" {
		return false
	}
	asked := c.o.Question.For(pod.Next, "")
	asked.Slots = c.o.Ledger.ExactFirst(asked.Slots, asked.Request)
	for _, slot := range c.o.Ledger.UsableSlots(&asked) {
		if strings.HasPrefix(slot.Ref.Name, c.prefix) && !c.taken.Has(slot.Ref) && c.takesPods(slot.Node) &&
			c.holds(slot.Ref, asked.Request) {
			c.taken.Insert(slot.Ref)
			pod.To, pod.Slot = slot.Node, slot.Ref.String()
			return true
		}
	}
	return false
}

// takesPods reports whether pods may go to a node.
func (c *choice) takesPods(name string) bool {
	node, ok := c.o.Nodes.Node(name)
	return ok && !node.Unschedulable && !c.draining.Has(name)
}

// holds reports whether a slot has all of a request, so that nothing of it depends on what is free beside.
func (c *choice) holds(ref ledger.SlotRef, request *resources.Request) bool {
	return slices.ContainsFunc(c.o.Ledger.ReservationSlots(ref.Namespace, ref.Name), func(slot ledger.SlotView) bool {
		return slot.Ref == ref && len(request.Unlisted) == 0 &&
			!slices.ContainsFunc(request.Amounts, func(a resources.Amount) bool { return a.Value > slot.Rest.Value(a.Column) })
	})
}

// place gives a pod a place next to those before it, or says why there is none.
func (c *choice) place(pod *Pod) {
	asked := c.o.Question.WithoutSlots(pod.Next, "")
	asked.NoDRA = true // as for every slot of a Reservation
	asked.Request = asked.Request.Kept()
	if pod.Why = c.overLimit(pod, &asked); pod.Why != "" {
		return
	}
	avoids := c.avoids(pod)
	asked.Node = c.free.BestFit(&asked, func(node string) bool { return avoids(node) == "" })
	if asked.Node == "" {
		pod.Why = placement.WhyNowhere(c.o.Ledger.Table(), c.free, &asked, avoids) + c.inTheWay(pod, &asked, avoids)
		if kept := c.kept[pod.Namespace]; len(kept) > 0 { // overLimit counted it
			c.kept[pod.Namespace] = kept[:len(kept)-1]
		}
		return
	}
	pod.To = asked.Node
	c.free.Take(&asked)
}

// inTheWay says what a pod lacks on the node where it lacks least of those that it may go to, and who has that; ""
// where it may go to none.
func (c *choice) inTheWay(pod *Pod, asked *ledger.Placement, avoids func(node string) string) string {
	nodes := slices.DeleteFunc(c.o.Ledger.NodeNames(), func(name string) bool { return avoids(name) != "" })
	if len(nodes) == 0 {
		return ""
	}
	nearest := c.o.Ledger.Nearest(asked, nodes)
	if nearest == nil {
		return "; it would fit if fewer pods went with it"
	}
	nearest.Pod = pod.ref()
	return "; on the closest, " + nearest.Message()
}

// overLimit says why no more may be kept in the namespace of a pod, while the pod is there still.
func (c *choice) overLimit(pod *Pod, asked *ledger.Placement) string {
	if !c.o.Ledger.Limited() {
		return ""
	}
	namespace := pod.Namespace
	c.kept[namespace] = append(c.kept[namespace], ledger.Slot{
		Ref: ledger.SlotRef{Namespace: namespace, Name: c.prefix}, Request: asked.Request, Scheduler: pod.Next.Scheduler,
	})
	over := c.o.Ledger.KeptOverLimit(c.kept[namespace])
	if over == nil {
		return ""
	}
	c.kept[namespace] = c.kept[namespace][:len(c.kept[namespace])-1]
	over.Pod = pod.ref()
	return "a place for it cannot be kept beside it: " + over.Message()
}

// avoids returns a function that says why a pod does not go to a node, whatever is free there; "" if it may. A cordoned
// node is no place, whatever the pod tolerates: somebody is about to drain it.
func (c *choice) avoids(pod *Pod) func(node string) string {
	accepts, repelled := pod.Next.Constraints.Accepts(), c.o.Pods.Repelled(pod.Next, c.o.Nodes)
	return func(name string) string {
		node, ok := c.o.Nodes.Node(name)
		switch {
		case !ok:
			return "just deleted"
		case c.draining.Has(name):
			return "being drained"
		case node.Unschedulable:
			return "cordoned"
		case !accepts(node):
			return "that it does not select, or with a taint that it does not tolerate"
		case c.apart[pod].Has(name) || repelled(node):
			return "with a pod that it must not be with"
		default:
			return ""
		}
	}
}
