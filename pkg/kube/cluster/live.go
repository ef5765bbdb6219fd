package cluster

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// CompareLive compares any ledger's pods and nodes with consistent lists from the API server. listed is called with
// every pod, differs with every difference. Changes under way show up as well: only what is still there at
// a later look is a difference.
func CompareLive(ctx context.Context, l ledger.Reader, client kubernetes.Interface, listed func(*Pod),
	differs func(Difference),
) error {
	look := liveLook{Reader: l, client: client, allocated: map[ledger.PodRef]struct{}{}, listed: listed, differs: differs}
	allocations, _ := l.Allocations()
	for i := range allocations {
		if allocations[i].Pod.UID != "" {
			look.allocated[allocations[i].Pod] = struct{}{}
		}
	}
	return look.run(ctx)
}

// liveLook is one walk over what the API server lists, next to a ledger.
type liveLook struct {
	ledger.Reader
	client kubernetes.Interface
	// allocated are the pods that must be in the list.
	allocated map[ledger.PodRef]struct{}
	listed    func(*Pod)
	differs   func(Difference)
}

// EachListed calls visit for each object of a kind. They are fetched and forgotten page by page.
func EachListed[T, L runtime.Object](
	ctx context.Context, what string, list func(context.Context, metav1.ListOptions) (L, error), visit func(T),
) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) })
	err := pages.EachListItemWithAlloc(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		visit(o.(T))
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing %s: %w", what, err)
	}
	return nil
}

// run lists pods and nodes.
func (l *liveLook) run(ctx context.Context) error {
	uids := make(map[types.UID]struct{}, len(l.allocated))
	err := EachListed(ctx, "pods", l.client.CoreV1().Pods(metav1.NamespaceAll).List, func(pod *v1.Pod) {
		r := Reader{Table: l.Table()}.Compact(pod)
		uids[r.Ref.UID] = struct{}{}
		l.listed(r)
		l.pod(r.Ref, r)
	})
	if err != nil {
		return err
	}
	for ref := range l.allocated {
		if _, listed := uids[ref.UID]; !listed {
			l.pod(ref, nil)
		}
	}
	return l.nodes(ctx)
}

// pod compares a pod, nil where it is gone, with what it has in the ledger.
func (l *liveLook) pod(ref ledger.PodRef, pod *Pod) {
	allocation := allocationOf(l.Reader, ref)
	kind := diagnosePod(l.Table(), allocation, pod)
	if kind == "" || inFlight(kind, allocation, pod, false) {
		return
	}
	d := Difference{
		Kind: kind, Pod: ref, Live: true,
		Ledger: describeAllocation(l.Table(), allocation), Cluster: describePod(l.Table(), pod),
	}
	if allocation != nil {
		d.Node = allocation.Node
	} else {
		d.Node = pod.Node
	}
	l.differs(d)
}

func (l *liveLook) nodes(ctx context.Context) error {
	listed := map[string]struct{}{}
	err := EachListed(ctx, "nodes", l.client.CoreV1().Nodes().List, func(node *v1.Node) {
		r := compactNode(l.Table(), node)
		listed[r.Name] = struct{}{}
		l.node(r.Name, r.observation())
	})
	if err != nil {
		return err
	}
	for _, name := range l.NodeNames() {
		if _, ok := listed[name]; !ok {
			l.node(name, nil)
		}
	}
	return nil
}

// node compares a node, nil where it is gone, with the ledger's.
func (l *liveLook) node(name string, node *ledger.NodeObservation) {
	known := knownNode(l.Reader, name)
	if kind := diagnoseNode(known, node); kind != "" {
		l.differs(Difference{
			Kind: kind, Node: name, Live: true,
			Ledger: describeNode(l.Table(), known), Cluster: describeNode(l.Table(), node),
		})
	}
}

// allocationOf is what a pod has in a ledger, nil where that is nothing.
func allocationOf(l ledger.Reader, pod ledger.PodRef) *ledger.AllocationView {
	if allocation, ok := l.Allocation(pod); ok {
		return &allocation
	}
	return nil
}

// knownNode is what a ledger has of a node, nil where it has none.
func knownNode(l ledger.Reader, name string) *ledger.NodeObservation {
	view, _, _ := l.Node(name)
	return observed(l.Table(), &view)
}
