package deviceclaims

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// Devices returns what the claims that a pod names ask for, nil for a pod that names none. Where one of them
// cannot be used the result says why, in words for people.
func (c *Controller) Devices(pod *podinfo.Info) *ledger.DeviceRequest {
	marks := pod.Devices
	if marks == nil {
		return nil
	}
	request := &ledger.DeviceRequest{}
	if pod.Node != "" {
		request.Given = marks.Given
	}
	if marks.Err != "" {
		request.Err = marks.Err
		return request
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, name := range marks.Claims {
		ref := ledger.DeviceClaimRef{Namespace: pod.Ref.Namespace, Name: name}
		compiled, uid, why := c.claimOf(pod, name)
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

// claimOf returns what a claim of a pod asks for, or why it cannot be used. c.mu is held.
func (c *Controller) claimOf(pod *podinfo.Info, name string) (compiled *devices.Request, uid types.UID, why string) {
	claim := c.claims[types.NamespacedName{Namespace: pod.Ref.Namespace, Name: name}]
	switch {
	case claim == nil && c.unserved:
		return nil, "", "the cluster has no definition of ExtendedResourceClaims: install manifests/crd"
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
