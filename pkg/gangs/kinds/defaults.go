package kinds

import (
	"slices"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// Default are the kinds that are known without any file. Ours comes first: a pod that names it means this server.
func Default() []Kind {
	annotation := func(key string) string { return ".metadata.annotations['" + key + "']" }
	label := func(key string) string { return ".metadata.labels['" + key + "']" }
	podGroups := func(group, minimum string, versions ...string) *Object {
		return &Object{Group: group, Versions: versions, Resource: "podgroups", Minimum: minimum}
	}
	const minMember = ".spec.minMember"
	return []Kind{
		{Name: "globalreserve", Pods: []Way{{
			Name:    annotation(v1alpha1.GangAnnotation),
			Minimum: annotation(v1alpha1.GangMinAnnotation),
		}}},
		{
			Name: "kubernetes", Pods: []Way{{Name: schedulingGroup}},
			Object: podGroups("scheduling.k8s.io", ".spec.schedulingPolicy.gang.minCount", "v1beta1", "v1alpha3", "v1alpha2"),
		},
		{
			Name: "volcano", Pods: []Way{{
				Name: annotation("scheduling.k8s.io/group-name"), Task: annotation("volcano.sh/task-spec"),
			}},
			Object: &Object{
				Group: "scheduling.volcano.sh", Versions: []string{"v1beta1"}, Resource: "podgroups",
				Minimum: minMember, Tasks: ".spec.minTaskMember",
			},
		},
		{
			Name: "scheduler-plugins", Pods: []Way{{Name: label("scheduling.x-k8s.io/pod-group")}},
			Object: podGroups("scheduling.x-k8s.io", minMember, "v1alpha1"),
		},
		{
			Name: "koordinator", Pods: []Way{
				{Name: label("pod-group.scheduling.sigs.k8s.io")},
				{
					Name:    label("pod-group.scheduling.sigs.k8s.io/name"),
					Minimum: label("pod-group.scheduling.sigs.k8s.io/min-available"),
				},
				{
					Name:    annotation("gang.scheduling.koordinator.sh/name"),
					Minimum: annotation("gang.scheduling.koordinator.sh/min-available"),
				},
			},
			Object: podGroups("scheduling.sigs.k8s.io", minMember, "v1alpha1"),
		},
		{
			Name: "godel", Pods: []Way{{Name: annotation("godel.bytedance.com/pod-group-name")}},
			Object: podGroups("scheduling.godel.kubewharf.io", minMember, "v1alpha1"),
		},
	}
}

// Merge returns the kinds of a file, which is looked through first, and after them those defaults that it does
// not name.
func Merge(file []Kind) []Kind {
	named := func(k Kind) bool { return slices.ContainsFunc(file, func(own Kind) bool { return own.Name == k.Name }) }
	return append(slices.Clone(file), slices.DeleteFunc(Default(), named)...)
}
