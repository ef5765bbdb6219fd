package cluster

import (
	"fmt"
	"math"
	"strconv"
	"unique"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Uncountable is the resource that a pod asks for whose real request cannot be
// counted. No node offers it, so every decision on such a pod is a refusal that
// names it.
const Uncountable v1.ResourceName = "globalreserve.io/uncountable-request"

// nodeRecord is what is kept of one node. It is not changed once it is in a store.
type nodeRecord struct {
	ledger.NodeObservation
	labels  map[string]string
	taints  []v1.Taint
	version uint64 // resourceVersion
}

// observation is what the ledger is told of the node; nil where there is no record.
func (r *nodeRecord) observation() *ledger.NodeObservation {
	if r == nil {
		return nil
	}
	return &r.NodeObservation
}

// Records are runtime.Objects, so that pages of them can stand for pages of API
// objects where lists are put together. As nobody changes them, a copy is the
// record itself.

// GetObjectKind implements runtime.Object.
func (r *Pod) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (r *Pod) DeepCopyObject() runtime.Object          { return r }
func (r *nodeRecord) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }
func (r *nodeRecord) DeepCopyObject() runtime.Object   { return r }

// Compact makes the form of a pod that is kept. A pod whose request cannot be counted is
// kept too: it exists, and whoever asks about it deserves an answer.
func Compact(t *resources.Table, pod *v1.Pod) *Pod {
	r, err := NewPod(t, pod)
	if err != nil {
		r = uncountable(t, pod)
		r.err = err
	}
	// The same few strings come with every pod, each time in memory of their own.
	r.Ref.Namespace = unique.Make(r.Ref.Namespace).Value()
	r.Node = unique.Make(r.Node).Value()
	r.Caller = unique.Make(r.Caller).Value()
	r.Scheduler = unique.Make(r.Scheduler).Value()
	r.Controller.Kind = unique.Make(r.Controller.Kind).Value()
	r.Controller.Name = unique.Make(r.Controller.Name).Value()
	return r
}

// uncountable makes the compact form of an unbound pod without looking at what
// its containers ask for.
func uncountable(t *resources.Table, pod *v1.Pod) *Pod {
	bare := &v1.Pod{
		ObjectMeta: pod.ObjectMeta,
		Spec:       v1.PodSpec{SchedulerName: pod.Spec.SchedulerName, Priority: pod.Spec.Priority},
		Status:     v1.PodStatus{Phase: pod.Status.Phase},
	}
	info, err := NewPod(t, bare)
	if err != nil {
		panic(fmt.Sprintf("cluster: a pod without containers cannot be counted: %v", err))
	}
	info.Request.Unlisted = []resources.NamedAmount{{Name: Uncountable, Value: math.MaxInt64}}
	return info
}

func newNodeRecord(t *resources.Table, node *v1.Node) *nodeRecord {
	return &nodeRecord{
		NodeObservation: ledger.NodeObservation{
			Name: node.Name, UID: node.UID,
			Allocatable: resources.Allocatable(t, node), Unschedulable: node.Spec.Unschedulable,
		},
		labels: node.Labels, taints: node.Spec.Taints,
		version: ParseVersion(node.ResourceVersion),
	}
}

// ParseVersion returns a resource version as the decimal number that grows which it is for
// built-in resources; 0, which tells no order, where it is none.
func ParseVersion(s string) uint64 {
	version, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return version
}

// bound reports whether there is a record, of a pod that uses capacity on a node.
func (r *Pod) bound() bool { return r != nil && r.Bound() }

// older reports whether version a is known to be of an older state than b.
func older(a, b uint64) bool { return a != 0 && b != 0 && a < b }
