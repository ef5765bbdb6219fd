package extendeddevices

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// claimSet is the claims that there are.
type claimSet struct {
	mu    sync.RWMutex // guards what follows
	byKey map[types.NamespacedName]*claim
	byPod map[types.UID][]types.NamespacedName // claims by the pod of their status, with devices or without
	// templates are what claims are made from.
	templates map[types.NamespacedName]*v1alpha1.ExtendedResourceClaimTemplate
}

func newClaimSet() claimSet {
	return claimSet{
		byKey: map[types.NamespacedName]*claim{}, byPod: map[types.UID][]types.NamespacedName{},
		templates: map[types.NamespacedName]*v1alpha1.ExtendedResourceClaimTemplate{},
	}
}

// set takes in a state of an object and reports whether it is news: another status alone is not.
func (s *claimSet) set(obj *v1alpha1.ExtendedResourceClaim) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(obj)
	known := s.byKey[key]
	if known == nil {
		s.move(key, "", podOf(obj))
	} else {
		s.move(key, podOf(known.obj), podOf(obj))
	}
	if known != nil && known.sameAs(obj) {
		next := *known
		next.obj = obj
		s.byKey[key] = &next
		return false
	}
	next := newClaim(obj)
	if known != nil && known.obj.UID == obj.UID && !known.deleted.IsZero() {
		next.deleted = known.deleted // a change does not keep a deleted claim for longer
	}
	s.byKey[key] = next
	return true
}

// remove drops an object and reports whether it was the one known.
func (s *claimSet) remove(obj *v1alpha1.ExtendedResourceClaim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.byKey[keyOf(obj)]
	if known == nil || known.obj.UID != obj.UID {
		return false
	}
	s.move(keyOf(obj), podOf(known.obj), "")
	delete(s.byKey, keyOf(obj))
	return true
}

func (s *claimSet) get(key types.NamespacedName) *claim {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byKey[key]
}

// keys returns the claims whose status names a pod, all of them where that is empty.
func (s *claimSet) keys(pod types.UID) []types.NamespacedName {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if pod == "" {
		return slices.AppendSeq(make([]types.NamespacedName, 0, len(s.byKey)), maps.Keys(s.byKey))
	}
	return slices.Clone(s.byPod[pod]) // events ask, with Controller.mu held: a walk over all would keep others waiting
}

// Devices returns what the claims that a pod names ask for, nil for a pod that names none; where one of them cannot be
// used the result says why, in words for people. Of a bound pod it says which devices it has, once that is known.
func (c *Controller) Devices(pod *cluster.Pod) *ledger.DeviceRequest {
	if pod.Node != "" {
		return c.believed(pod)
	}
	return c.resolve(pod, pod.Devices)
}

// resolve puts together what the claims that a pod names, by marks, ask for.
func (c *Controller) resolve(pod *cluster.Pod, marks *cluster.DeviceAnnotations) *ledger.DeviceRequest {
	if marks == nil || (!marks.Asks() && pod.Node == "") {
		return nil // as of nearly all pods: that costs nothing
	}
	request := &ledger.DeviceRequest{Asked: marks.Asked, Err: marks.Err}
	for k, name := range marks.Claims {
		ref := ledger.DeviceClaimRef{Namespace: pod.Ref.Namespace, Name: name}
		claim := c.claims.get(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})
		if claim == nil && !c.Kind.Installed() && request.Err == "" {
			request.Err = "the cluster has no definition of ExtendedResourceClaims: install manifests/crd"
		}
		compiled, uid, why := c.claims.claimOf(pod, name, marks.Template(k), claim)
		if ref.UID = uid; why != "" && request.Err == "" {
			request.Err = why
		}
		request.Claims = append(request.Claims, ref)
		request.Requests = append(request.Requests, compiled)
	}
	if request.Err != "" {
		request.Requests = nil
	}
	if pod.Node != "" {
		request.Given = marks.GivenIDs(counts(request.Requests))
	}
	return request
}

// counts returns how many devices each claim is for.
func counts(requests []*devices.Request) []int {
	list := make([]int, len(requests))
	for k, r := range requests {
		list[k] = r.Count()
	}
	return list
}

// claimOf returns what a claim of a pod asks for, which may be made from a template, or why it cannot be used.
func (s *claimSet) claimOf(pod *cluster.Pod, name, template string,
	claim *claim,
) (compiled *devices.Request, uid types.UID, why string) {
	switch {
	case claim == nil && template != "":
		return nil, "", s.whyNotMade(pod, template)
	case claim == nil:
		return nil, "",
			fmt.Sprintf("there is no ExtendedResourceClaim %s in namespace %s: create it there; claims of other namespaces "+
				"cannot be used",
				name, pod.Ref.Namespace)
	case claim.err != nil:
		return nil, claim.obj.UID, fmt.Sprintf("ExtendedResourceClaim %s cannot be used: %s", name, claim.err)
	case claim.obj.DeletionTimestamp != nil && pod.Node == "":
		return nil, claim.obj.UID, fmt.Sprintf("ExtendedResourceClaim %s is being deleted", name)
	case template != "" && pod.Node == "" && ownerOf(claim.obj) != pod.Ref.UID:
		return nil, claim.obj.UID,
			fmt.Sprintf("ExtendedResourceClaim %s is not the pod's own: delete it, and the pod gets one from "+
				"ExtendedResourceClaimTemplate %s",
				name, template)
	default:
		return claim.request, claim.obj.UID, ""
	}
}
