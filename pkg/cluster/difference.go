package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Kind is how the ledger and the cluster differ. It is a label of the metric
// globalreserve_ledger_drift.
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

// Kinds lists every Kind.
var Kinds = []Kind{
	MissingAllocation, StaleAllocation, WrongNode, WrongAmount, UnconfirmedAllocation,
	MissingNode, StaleNode, WrongNodeAmount, WrongNodeState,
}

// Difference is one thing the ledger had otherwise than the cluster.
type Difference struct {
	Kind Kind
	Pod  ledger.PodRef // empty for differences of nodes
	Node string        // the allocation's node, or where there is no allocation the pod's
	// Ledger and Cluster say in words what each side had.
	Ledger, Cluster string
	// Live tells that the cluster's side was read from the API server, not from
	// the cache.
	Live bool
	// Repaired tells that the ledger agrees now.
	Repaired bool
}

// diagnosePod says how an allocation differs from what is known of its pod; "" is not
// at all. Either may be nil. An allocation made by name for a pod nobody has seen is no
// difference: nothing can be observed of it.
func diagnosePod(allocation *ledger.AllocationView, pod *Pod) Kind {
	bound := pod != nil && pod.Bound()
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
	case !allocation.Request.Equal(pod.Request):
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
// at all. view is nil where the ledger has none, node where the cluster has none.
func diagnoseNode(t *resources.Table, view *ledger.NodeView, node *nodeRecord) Kind {
	exists := view != nil && view.Exists
	switch {
	case node == nil && exists:
		return StaleNode
	case node == nil:
		return ""
	case !exists:
		return MissingNode
	case !sameAllocatable(t, view.Amounts, node.Allocatable):
		return WrongNodeAmount
	case view.UID != node.UID || view.Unschedulable != node.Unschedulable:
		return WrongNodeState
	default:
		return ""
	}
}

func sameAllocatable(t *resources.Table, views []ledger.AmountView, amounts []resources.Amount) bool {
	offered := 0
	for _, v := range views {
		if v.Allocatable == 0 {
			continue
		}
		offered++
		col, ok := t.Lookup(v.Resource)
		if !ok || !slices.Contains(amounts, resources.Amount{Column: col, Value: v.Allocatable}) {
			return false
		}
	}
	return offered == len(amounts)
}

func describeAllocation(t *resources.Table, allocation *ledger.AllocationView) string {
	if allocation == nil {
		return "no allocation"
	}
	return fmt.Sprintf("an allocation in state %s on node %s (%s)", allocation.State, allocation.Node, describeAmounts(t, allocation.Request.Amounts))
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
		return fmt.Sprintf("the pod on node %s (%s)", pod.Node, describeAmounts(t, pod.Request.Amounts))
	}
}

func describeView(t *resources.Table, view *ledger.NodeView) string {
	if view == nil || !view.Exists {
		return "no such node"
	}
	var amounts []resources.Amount
	for _, a := range view.Amounts {
		if col, ok := t.Lookup(a.Resource); ok && a.Allocatable != 0 {
			amounts = append(amounts, resources.Amount{Column: col, Value: a.Allocatable})
		}
	}
	return describeOffer(t, string(view.UID), view.Unschedulable, amounts)
}

func describeNode(t *resources.Table, node *nodeRecord) string {
	if node == nil {
		return "no such node"
	}
	return describeOffer(t, string(node.UID), node.Unschedulable, node.Allocatable)
}

func describeOffer(t *resources.Table, uid string, cordoned bool, amounts []resources.Amount) string {
	state := "schedulable"
	if cordoned {
		state = "cordoned"
	}
	return fmt.Sprintf("a %s node with UID %s (%s)", state, uid, describeAmounts(t, amounts))
}

// describeAmounts lists amounts as name=value, cpu in milli-CPU.
func describeAmounts(t *resources.Table, amounts []resources.Amount) string {
	words := make([]string, len(amounts))
	for i, a := range amounts {
		words[i] = fmt.Sprintf("%s=%d", t.Name(a.Column), a.Value)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}
