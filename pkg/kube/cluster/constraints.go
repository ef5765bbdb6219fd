package cluster

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Constraints are what a pod without a node asks of one, beside capacity.
type Constraints struct {
	nodeSelector map[string]string
	affinity     *v1.NodeSelector // what the node must be
	tolerations  []v1.Toleration
	// others is what the pod asks for that a node's own labels and taints do not show, or that is not kept, if anything.
	others string
}

func constraintsOf(pod *v1.Pod) *Constraints {
	c := &Constraints{nodeSelector: pod.Spec.NodeSelector, tolerations: pod.Spec.Tolerations, others: asksOthers(pod)}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		c.affinity = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if c.size() > maxChoice {
		return &Constraints{others: "more selectors and tolerations than are kept"}
	}
	return c
}

// asksOthers says what makes the possible nodes of a pod depend on other pods, except those that count in the ledger
// (resources.Apart), on volumes or on devices of DRA; "" for most pods.
func asksOthers(pod *v1.Pod) string {
	spec := &pod.Spec
	if a := spec.Affinity; a != nil && a.PodAffinity != nil &&
		len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
		return "required affinity to pods"
	}
	if _, all := resources.Apart(pod); !all {
		return "required anti-affinity to other pods than its own kind, or by more than nodes"
	}
	for i := range spec.TopologySpreadConstraints {
		if spec.TopologySpreadConstraints[i].WhenUnsatisfiable == v1.DoNotSchedule {
			return "a spread constraint with DoNotSchedule"
		}
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return "volumes of its own"
		}
		if v.GCEPersistentDisk != nil || v.AWSElasticBlockStore != nil || v.ISCSI != nil || v.RBD != nil ||
			v.AzureDisk != nil || v.Cinder != nil || v.VsphereVolume != nil || v.PortworxVolume != nil {
			return "disks" // a node may have each once, or only so many (VolumeRestrictions, NodeVolumeLimits)
		}
	}
	switch {
	case len(spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil:
		return "ResourceClaims"
	case asksFeatures(spec):
		return "features that not all kubelets have"
	case spec.SchedulingGroup != nil:
		return "spec.schedulingGroup"
	case sizeOf(pod.Labels) > maxChoice: // by which others may keep it away
		return "more labels than are kept"
	default:
		return ""
	}
}

// asksFeatures reports whether nodes have to declare a feature for a pod, by kube-scheduler's NodeDeclaredFeatures.
func asksFeatures(spec *v1.PodSpec) bool {
	asks := &nodedeclaredfeatures.PodInfo{Spec: spec}
	return slices.ContainsFunc(features.AllFeatures, func(f nodedeclaredfeatures.Feature) bool {
		return f.InferForScheduling(asks)
	})
}

// Accepts returns a function that reports whether the pod may be on a node, by the node's labels and taints alone. The
// ledger judges the taint of a cordoned node. With nil, of a pod that has its node, it accepts no node.
func (c *Constraints) Accepts() func(node *Node) bool {
	if c == nil {
		return func(*Node) bool { return false }
	}
	asked := &v1.Pod{Spec: v1.PodSpec{NodeSelector: c.nodeSelector}}
	if c.affinity != nil {
		asked.Spec.Affinity = &v1.Affinity{
			NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: c.affinity},
		}
	}
	required := nodeaffinity.GetRequiredNodeAffinity(asked)
	return func(node *Node) bool {
		match, err := required.Match(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels}})
		return err == nil && match && c.tolerates(node.Taints)
	}
}

func (c *Constraints) tolerates(taints []v1.Taint) bool {
	_, found := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), taints, c.tolerations,
		func(t *v1.Taint) bool {
			return t.Key != v1.TaintNodeUnschedulable && (t.Effect == v1.TaintEffectNoSchedule ||
				t.Effect == v1.TaintEffectNoExecute)
		}, true)
	return !found
}

// Same reports whether the same nodes suit both pods.
func (c *Constraints) Same(o *Constraints) bool {
	if c == nil || o == nil {
		return c == o
	}
	return c.others == o.others && maps.Equal(c.nodeSelector, o.nodeSelector) &&
		(c.affinity == o.affinity || apiequality.Semantic.DeepEqual(c.affinity, o.affinity)) &&
		slices.EqualFunc(c.tolerations, o.tolerations, func(a, b v1.Toleration) bool {
			a.TolerationSeconds, b.TolerationSeconds = nil, nil // which says how long, not where
			return a == b
		})
}

// NodesDecide reports whether a node is judged by nothing but its labels, taints and capacity, and the anti-affinity of
// other pods there.
func (c *Constraints) NodesDecide() bool { return c != nil && c.others == "" }

// Others says what of a pod that has no node makes it depend on more than that; "" for most pods.
func (c *Constraints) Others() string { return c.others }
