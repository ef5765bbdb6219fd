package cluster

import (
	"fmt"
	"math"
	"strconv"
	"unique"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Uncountable is the resource that a pod is shown to ask for where its real request cannot be counted. No node offers
// it, so every decision on such a pod is a refusal that names it.
const Uncountable v1.ResourceName = "globalreserve.io/uncountable-request"

// Node is what is kept of one node. It is not changed once it is in a store.
type Node struct {
	Name   string
	UID    types.UID
	Labels map[string]string
	Taints []v1.Taint
	// Annotations are those that have to do with autoscalers; nil where there are none.
	Annotations map[string]string

	// Unschedulable says that the node is cordoned.
	Unschedulable bool

	allocatable []resources.Amount
	pluginAway  []v1.ResourceName
	version     uint64 // resourceVersion
}

// observation returns what the ledger records of the node, or nil.
func (r *Node) observation() *ledger.NodeObservation {
	if r == nil {
		return nil
	}
	return &ledger.NodeObservation{
		Name: r.Name, UID: r.UID, Allocatable: r.allocatable, Unschedulable: r.Unschedulable, Labels: r.Labels,
	}
}

// Records are runtime.Objects, so that pages of them can stand for pages of API objects where lists are put together.
// As nobody changes them, a copy is the record itself.

// GetObjectKind implements runtime.Object.
func (r *Pod) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (r *Pod) DeepCopyObject() runtime.Object { return r }

// GetObjectKind implements runtime.Object.
func (r *Node) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (r *Node) DeepCopyObject() runtime.Object { return r }

// Compact makes the form of a pod that is kept. A pod whose request cannot be counted is
// kept too: it exists, and requests about it need an answer.
func (r Reader) Compact(pod *v1.Pod) *Pod {
	info, err := r.NewPod(pod)
	if err != nil {
		info = r.uncountable(pod)
		info.err = err
	}
	// The same few strings come with every pod, each time in memory of their own.
	info.Ref.Namespace = unique.Make(info.Ref.Namespace).Value()
	info.Node = unique.Make(info.Node).Value()
	info.Nominated = unique.Make(info.Nominated).Value()
	info.Caller = unique.Make(info.Caller).Value()
	info.Scheduler = unique.Make(info.Scheduler).Value()
	info.Controller.Kind = unique.Make(info.Controller.Kind).Value()
	info.Controller.Name = unique.Make(info.Controller.Name).Value()
	if info.Gang != nil {
		info.Gang.Name = unique.Make(info.Gang.Name).Value()
	}
	return info
}

// uncountable makes the compact form of an unbound pod without looking at what its containers ask for.
func (r Reader) uncountable(pod *v1.Pod) *Pod {
	bare := &v1.Pod{
		ObjectMeta: pod.ObjectMeta,
		Spec:       v1.PodSpec{SchedulerName: pod.Spec.SchedulerName, Priority: pod.Spec.Priority},
		Status:     v1.PodStatus{Phase: pod.Status.Phase},
	}
	info, err := r.NewPod(bare)
	if err != nil {
		panic(fmt.Sprintf("cluster: a pod without containers cannot be counted: %v", err))
	}
	info.Request.Unlisted = []resources.NamedAmount{{Name: Uncountable, Value: math.MaxInt64}}
	return info
}

func compactNode(t *resources.Table, node *v1.Node) *Node {
	return &Node{
		Name: node.Name, UID: node.UID, Labels: node.Labels, Taints: node.Spec.Taints,
		Annotations: ofAutoscalers(node.Annotations),
		allocatable: resources.Allocatable(t, node), pluginAway: pluginAway(&node.Status),
		Unschedulable: node.Spec.Unschedulable, version: ParseVersion(node.ResourceVersion),
	}
}

// ofAutoscalers returns those of a node's annotations that are kept.
func ofAutoscalers(all map[string]string) (kept map[string]string) {
	for _, key := range []string{
		v1alpha1.KeepsCapacityAnnotation, v1alpha1.ScaleDownDisabledAnnotation,
		v1alpha1.DoNotDisruptAnnotation,
	} {
		if value, ok := all[key]; ok {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}

// ParseVersion returns a resource version as a number. Resource versions of built-in resources are decimal numbers that
// grow. It returns 0, which has no place in an order, for any other text.
func ParseVersion(s string) uint64 {
	version, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return version
}

// older reports whether version a is known to be of an older state than b.
func older(a, b uint64) bool { return a != 0 && b != 0 && a < b }
