package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Kind is how the ledger and the cluster differ. It is a label of the metric globalreserve_ledger_drift.
type Kind string

// The kinds of differences.
const (
	MissingAllocation     Kind = "missing_allocation"     // a bound pod has no allocation
	StaleAllocation       Kind = "stale_allocation"       // an allocation whose pod is gone, has finished or is not bound
	WrongNode             Kind = "wrong_node"             // the pod is bound elsewhere than its allocation is
	WrongAmount           Kind = "wrong_amount"           // the pod counts for something else
	UnconfirmedAllocation Kind = "unconfirmed_allocation" // the pod is bound, its allocation is not Bound
	MissingNode           Kind = "missing_node"           // a node the ledger does not know
	StaleNode             Kind = "stale_node"             // a node in the ledger that does not exist
	WrongNodeAmount       Kind = "wrong_node_amount"      // allocatable differs
	WrongNodeState        Kind = "wrong_node_state"       // the node's UID or whether it is cordoned differs
)

// allKinds lists every Kind.
var allKinds = []Kind{
	MissingAllocation, StaleAllocation, WrongNode, WrongAmount, UnconfirmedAllocation,
	MissingNode, StaleNode, WrongNodeAmount, WrongNodeState,
}

// Difference is one thing in which the ledger differed from the cluster.
type Difference struct {
	Kind Kind
	Pod  ledger.PodRef // empty for differences of nodes
	Node string        // the allocation's node, or where there is no allocation the pod's
	// Ledger and Cluster say in words what each side had.
	Ledger, Cluster string
	// Live says that the cluster's side was read from the API server, not from the cache.
	Live bool
	// Repaired says that the ledger agrees now.
	Repaired bool
}

// diagnosePod says how an allocation differs from what is known of its pod; "" is not at all. Either may be nil. An
// allocation made by name for a pod nobody has seen is no difference: nothing can be observed of it. Nor is what a
// resize was granted that may not be written yet. Devices that a pod was given count for it, too.
func diagnosePod(t *resources.Table, allocation *ledger.AllocationView, pod *Pod) Kind {
	bound := pod.Bound()
	switch {
	case allocation == nil && bound:
		return MissingAllocation
	case allocation == nil:
		return ""
	case pod != nil && pod.Finished:
		return StaleAllocation
	case !bound && allocation.Pod.UID == "":
		return ""
	case !bound:
		return StaleAllocation
	case allocation.Node != pod.Node:
		return WrongNode
	case allocation.State != ledger.Bound:
		return UnconfirmedAllocation
	case !allocation.Growing && !allocation.Request.Equal(ledger.WithGiven(t, pod.Request, allocation.Given)):
		return WrongAmount
	default:
		return ""
	}
}

// needsLive reports whether a difference found in the cache proves nothing yet:
// a cache that is behind shows pods unbound, or not at all, that are bound.
func needsLive(kind Kind, pod *Pod) bool {
	return kind == StaleAllocation && (pod == nil || !pod.Finished)
}

// diagnoseNode says how the ledger's node differs from the cluster's; "" is not
// at all. Either is nil where there is none.
func diagnoseNode(known, node *ledger.NodeObservation) Kind {
	switch {
	case node == nil && known != nil:
		return StaleNode
	case node == nil:
		return ""
	case known == nil:
		return MissingNode
	case !slices.Equal(known.Allocatable, node.Allocatable):
		return WrongNodeAmount
	case known.UID != node.UID || known.Unschedulable != node.Unschedulable:
		return WrongNodeState
	default:
		return ""
	}
}

// observed returns the observation that the ledger has of a node it shows; nil where the node does not exist.
func observed(t *resources.Table, view *ledger.NodeView) *ledger.NodeObservation {
	if !view.Exists {
		return nil
	}
	o := &ledger.NodeObservation{Name: view.Name, UID: view.UID, Unschedulable: view.Unschedulable}
	for _, a := range view.Amounts {
		if col, ok := t.Lookup(a.Resource); ok && a.Allocatable != 0 {
			o.Allocatable = append(o.Allocatable, resources.Amount{Column: col, Value: a.Allocatable})
		}
	}
	slices.SortFunc(o.Allocatable, func(a, b resources.Amount) int { return cmp.Compare(a.Column, b.Column) })
	return o
}

func describeAllocation(t *resources.Table, allocation *ledger.AllocationView) string {
	if allocation == nil {
		return "no allocation"
	}
	return fmt.Sprintf("an allocation in state %s on node %s (%s)", allocation.State, allocation.Node,
		DescribeRequest(t, allocation.Request))
}

func describePod(t *resources.Table, pod *Pod) string {
	switch {
	case pod == nil:
		return "no such pod"
	case pod.Finished:
		return "the pod finished"
	case pod.Node == "":
		return "the pod not bound"
	default:
		return fmt.Sprintf("the pod on node %s (%s)", pod.Node, DescribeRequest(t, pod.Request))
	}
}

func describeNode(t *resources.Table, node *ledger.NodeObservation) string {
	if node == nil {
		return "no such node"
	}
	state := "schedulable"
	if node.Unschedulable {
		state = "cordoned"
	}
	return fmt.Sprintf("a %s node with UID %s (%s)", state, node.UID,
		DescribeRequest(t, &resources.Request{Amounts: node.Allocatable}))
}

// DescribeRequest lists amounts as name=value, cpu in milli-CPU, and host ports.
func DescribeRequest(t *resources.Table, r *resources.Request) string {
	var words []string
	for _, a := range r.Amounts {
		words = append(words, fmt.Sprintf("%s=%d", t.Name(a.Column), a.Value))
	}
	for _, a := range r.Unlisted {
		words = append(words, fmt.Sprintf("%s=%d", a.Name, a.Value))
	}
	for _, p := range r.Ports {
		words = append(words, fmt.Sprintf("%s/%s:%d", p.Protocol, p.IP, p.Port))
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}
