package limits

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// resourceOf returns the resource that a name in a quota limits, and false where it limits none that is counted.
func resourceOf(name v1.ResourceName) (v1.ResourceName, bool) {
	switch name {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods:
		return name, true
	case "count/pods":
		return v1.ResourcePods, true
	case v1.ResourceRequestsStorage:
		return "", false
	}
	text := string(name)
	if requested, ok := strings.CutPrefix(text, v1.DefaultResourceRequestsPrefix); ok {
		return v1.ResourceName(requested), true
	}
	return name, strings.HasPrefix(text, v1.ResourceHugePagesPrefix)
}

// scopesOf returns the scopes of a quota.
func scopesOf(quota *v1.ResourceQuota) []v1.ResourceQuotaScope {
	scopes := slices.Clone(quota.Spec.Scopes)
	if s := quota.Spec.ScopeSelector; s != nil {
		for _, m := range s.MatchExpressions {
			scopes = append(scopes, m.ScopeName)
		}
	}
	return scopes
}

// limitsIn returns what a quota limits, by resource. whole is false where some of it is not counted here.
func limitsIn(quota *v1.ResourceQuota) (list v1.ResourceList, whole bool) {
	list, whole = v1.ResourceList{}, true
	scopes := scopesOf(quota)
	others := slices.ContainsFunc(scopes,
		func(s v1.ResourceQuotaScope) bool { return s != v1.ResourceQuotaScopeNotBestEffort })
	for name, hard := range quota.Spec.Hard {
		resource, counts := resourceOf(name)
		if !counts {
			continue
		}
		if others || (len(scopes) > 0 && resource != v1.ResourceCPU && resource != v1.ResourceMemory) {
			whole = false
			continue
		}
		addSmaller(list, v1.ResourceList{resource: hard})
	}
	return list, whole
}

// addSmaller adds limits to a list. Of two for a resource the smaller one counts.
func addSmaller(list, more v1.ResourceList) {
	for resource, hard := range more {
		if known, ok := list[resource]; !ok || hard.Cmp(known) < 0 {
			list[resource] = hard
		}
	}
}
