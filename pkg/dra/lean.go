package dra

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/dra/account"
)

// tooLarge is an annotation on the lean form of a claim of more than MaxClaimSize in JSON, whoever measures it. No
// claim can have it in the API server, which refuses names with spaces.
const tooLarge = "too large"

// blanks is by how much a claim without devices may be larger in etcd and in a list, which are protobuf, than in JSON:
// the parameters of its requests, 32 times 10 KiB, keep blanks there, and empty fields take two bytes.
const blanks = 384 << 10

func isTooLarge(lean *resourcev1.ResourceClaim) bool {
	_, is := lean.Annotations[tooLarge]
	return is
}

// leanClaim is a cache.TransformFunc. What a claim asks for is not kept: the allocator has looked at that.
func leanClaim(obj any) (any, error) {
	full, ok := obj.(*resourcev1.ResourceClaim)
	if !ok {
		return obj, nil
	}
	kept := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: full.Namespace, Name: full.Name, UID: full.UID, ResourceVersion: full.ResourceVersion,
		},
		Status: resourcev1.ResourceClaimStatus{ReservedFor: full.Status.ReservedFor},
	}
	if isTooLarge(full) || full.Size() > account.MaxClaimSize+blanks { // a claim may come here again when it is lean
		kept.Annotations = map[string]string{tooLarge: ""}
	}
	if a := full.Status.Allocation; a != nil {
		kept.Status.Allocation = &resourcev1.AllocationResult{
			Devices:             resourcev1.DeviceAllocationResult{Results: a.Devices.Results},
			AllocationTimestamp: a.AllocationTimestamp,
		}
	}
	return kept, nil
}

// leanSlice is a cache.TransformFunc. It keeps the attributes of devices: DeviceClasses select by them.
func leanSlice(obj any) (any, error) {
	full, ok := obj.(*resourcev1.ResourceSlice)
	if !ok {
		return obj, nil
	}
	kept := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: full.Name, UID: full.UID, ResourceVersion: full.ResourceVersion},
		Spec:       full.Spec,
	}
	kept.Spec.Devices = slices.Clone(full.Spec.Devices)
	for i := range kept.Spec.Devices {
		kept.Spec.Devices[i].Taints = nil
	}
	return kept, nil
}
