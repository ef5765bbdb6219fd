package cluster

import "k8s.io/client-go/tools/cache"

// byClaim is the index of the pods that name a claim of devices, by its namespace, a slash and its name. A server that
// takes over receives every claim there is, so no claim may cost a walk over the claimants of others.
const byClaim = "claim"

// newClaimants returns a store of the pods that name claims of devices, kept in step with the pods by Pods.list.
func newClaimants() cache.ThreadSafeStore {
	return cache.NewThreadSafeStore(cache.Indexers{
		byClaim: func(pod any) (keys []string, err error) {
			of := pod.(*Pod)
			for _, claim := range of.Devices.Claims {
				keys = append(keys, of.Ref.Namespace+"/"+claim)
			}
			return keys, nil
		},
		cache.NamespaceIndex: func(pod any) ([]string, error) { return []string{pod.(*Pod).Ref.Namespace}, nil },
	}, cache.Indices{})
}

// setClaimant records the state of the pod of a name; r is nil where it is gone.
func (s *Pods) setClaimant(k podKey, r *Pod) {
	key := k.namespace + "/" + k.name
	if r != nil && r.Devices != nil && len(r.Devices.Claims) > 0 {
		s.claimants.Update(key, r)
	} else {
		s.claimants.Delete(key)
	}
}

// ClaimantsOf returns the pods that name a claim of devices, in no order.
func (s *Pods) ClaimantsOf(namespace, claim string) []*Pod {
	list, _ := s.claimants.ByIndex(byClaim, namespace+"/"+claim) // the index is there
	return podsOf(list)
}

// Claimants returns, in no order, the pods of a namespace, or of all where that is empty, that name claims of devices.
func (s *Pods) Claimants(namespace string) []*Pod {
	if namespace == "" {
		return podsOf(s.claimants.List())
	}
	list, _ := s.claimants.ByIndex(cache.NamespaceIndex, namespace)
	return podsOf(list)
}

func podsOf(list []any) []*Pod {
	pods := make([]*Pod, len(list))
	for i := range list {
		pods[i] = list[i].(*Pod)
	}
	return pods
}
