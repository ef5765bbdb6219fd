package fakekube

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// Decode returns an object of Kubernetes itself, as etcd stores it, in the version that clients see.
func Decode(stored []byte) (runtime.Object, error) {
	versions := legacyscheme.Scheme.PrioritizedVersionsAllGroups()
	return runtime.Decode(legacyscheme.Codecs.UniversalDecoder(versions...), stored)
}
