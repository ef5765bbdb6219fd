package deviceclaims

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Devices returns what the claims that a pod names ask for, nil for a pod that names none. Where one of them
// cannot be used the result says why, in words for people.
func (c *Controller) Devices(pod *cluster.Pod) *ledger.DeviceRequest {
	if pod.Devices == nil {
		return nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return resolve(pod, c.claims, c.unserved)
}

// resolve puts together what the claims of a pod ask for. unserved says that the cluster knows no claims.
func resolve(pod *cluster.Pod, claims map[types.NamespacedName]*claim, unserved bool) *ledger.DeviceRequest {
	marks := pod.Devices
	request := &ledger.DeviceRequest{}
	if pod.Node != "" {
		request.Given = marks.Given
	}
	if marks.Err != "" {
		request.Err = marks.Err
		return request
	}
	for _, name := range marks.Claims {
		ref := ledger.DeviceClaimRef{Namespace: pod.Ref.Namespace, Name: name}
		claim := claims[types.NamespacedName{Namespace: pod.Ref.Namespace, Name: name}]
		if claim == nil && unserved && request.Err == "" {
			request.Err = "the cluster has no definition of ExtendedResourceClaims: install manifests/crd"
		}
		compiled, uid, why := claimOf(pod, name, claim)
		if ref.UID = uid; why != "" && request.Err == "" {
			request.Err = why
		}
		request.Claims = append(request.Claims, ref)
		request.Requests = append(request.Requests, compiled)
	}
	if request.Err != "" {
		request.Requests = nil
	}
	return request
}

// claimOf returns what a claim of a pod asks for, or why it cannot be used.
func claimOf(pod *cluster.Pod, name string, claim *claim) (compiled *devices.Request, uid types.UID, why string) {
	switch {
	case claim == nil:
		return nil, "", fmt.Sprintf("there is no ExtendedResourceClaim %s in namespace %s: create it there; claims of other namespaces cannot be used",
			name, pod.Ref.Namespace)
	case claim.err != nil:
		return nil, claim.obj.UID, fmt.Sprintf("ExtendedResourceClaim %s cannot be used: %s", name, claim.err)
	case claim.obj.DeletionTimestamp != nil && pod.Node == "":
		return nil, claim.obj.UID, fmt.Sprintf("ExtendedResourceClaim %s is being deleted", name)
	default:
		return claim.request, claim.obj.UID, ""
	}
}
