package cluster

import (
	"maps"
	"slices"
)

// claimants are the pods that name claims of devices, by namespace, kept in step with the pods by Pods.list. A server
// that takes over receives every claim there is, so no claim may cost a walk over the claimants of others.
type claimants map[string]*namespaceClaimants

type namespaceClaimants struct {
	byName  map[string]*Pod
	byClaim map[string]map[*Pod]struct{}
}

// set records the state of the pod of a name; r is nil where it is gone.
func (c claimants) set(k podKey, r *Pod) {
	of := c[k.namespace]
	if of != nil {
		of.remove(k.name)
	}
	switch {
	case r != nil && r.Devices != nil && len(r.Devices.Claims) > 0:
		if of == nil {
			of = &namespaceClaimants{byName: map[string]*Pod{}, byClaim: map[string]map[*Pod]struct{}{}}
			c[k.namespace] = of
		}
		of.add(k.name, r)
	case of != nil && len(of.byName) == 0:
		delete(c, k.namespace)
	}
}

func (n *namespaceClaimants) add(name string, r *Pod) {
	n.byName[name] = r
	for _, claim := range r.Devices.Claims {
		if n.byClaim[claim] == nil {
			n.byClaim[claim] = map[*Pod]struct{}{}
		}
		n.byClaim[claim][r] = struct{}{}
	}
}

// remove drops what was held under a name, if anything was.
func (n *namespaceClaimants) remove(name string) {
	held := n.byName[name]
	if held == nil {
		return
	}
	delete(n.byName, name)
	for _, claim := range held.Devices.Claims {
		if delete(n.byClaim[claim], held); len(n.byClaim[claim]) == 0 {
			delete(n.byClaim, claim)
		}
	}
}

// ClaimantsOf returns the pods that name a claim of devices, in no order.
func (s *Pods) ClaimantsOf(namespace, claim string) []*Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	of := s.claimants[namespace]
	if of == nil {
		return nil
	}
	return slices.Collect(maps.Keys(of.byClaim[claim]))
}

// Claimants returns, in no order, the pods of a namespace, or of all where that is empty, that name claims of devices.
func (s *Pods) Claimants(namespace string) (pods []*Pod) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if namespace == "" {
		for _, of := range s.claimants {
			pods = slices.AppendSeq(pods, maps.Values(of.byName))
		}
	} else if of := s.claimants[namespace]; of != nil {
		pods = slices.AppendSeq(pods, maps.Values(of.byName))
	}
	return pods
}
