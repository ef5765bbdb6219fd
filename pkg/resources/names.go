package resources

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// isCounted reports whether kube-scheduler counts a resource of this name: the core ones, and what it calls scalar
// resources (extended, hugepages-*, kubernetes.io-prefixed native ones, attachable-volumes-*). Any other name is
// ignored by it and so by us. Source: kubernetes pkg/scheduler/util.IsScalarResourceName and pkg/apis/core/v1/helper.
func isCounted(name v1.ResourceName) bool {
	switch name {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods:
		return true
	}
	s := string(name)
	return isExtended(s) ||
		strings.HasPrefix(s, v1.ResourceHugePagesPrefix) ||
		strings.Contains(s, v1.ResourceDefaultNamespacePrefix) ||
		strings.HasPrefix(s, v1.ResourceAttachableVolumesPrefix)
}

// isExtended reports whether name is fully qualified and outside the kubernetes.io namespace. The quota prefix is part
// of the test because an extended resource must also be usable in a quota.
func isExtended(name string) bool {
	native := !strings.Contains(name, "/") || strings.Contains(name, v1.ResourceDefaultNamespacePrefix)
	if native || strings.HasPrefix(name, v1.DefaultResourceRequestsPrefix) {
		return false
	}
	return len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+name)) == 0
}
