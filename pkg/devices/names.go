package devices

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// ClaimNames reads a pod's annotation globalreserve.io/extended-resource-claims: names of claims,
// separated by commas, with spaces around them if need be. An absent or empty annotation names none.
func ClaimNames(annotation string) ([]string, error) {
	if strings.TrimSpace(annotation) == "" {
		return nil, nil
	}
	if strings.Count(annotation, ",") >= v1alpha1.MaxPodClaims {
		return nil, fmt.Errorf("annotation %s names more than %d claims: claim several devices by one claim's count",
			v1alpha1.ExtendedResourceClaimsAnnotation, v1alpha1.MaxPodClaims)
	}
	names := strings.Split(annotation, ",")
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
		if bad := validation.IsDNS1123Subdomain(names[i]); len(bad) > 0 {
			return nil, fmt.Errorf("annotation %s: %q is no claim's name: write names of claims of the pod's namespace, separated by commas",
				v1alpha1.ExtendedResourceClaimsAnnotation, names[i])
		}
		if slices.Contains(names[:i], names[i]) {
			return nil, fmt.Errorf("annotation %s names claim %s twice: write it once, and claim more devices by its count",
				v1alpha1.ExtendedResourceClaimsAnnotation, names[i])
		}
	}
	return names, nil
}

// IDs writes the value of a pod's annotation globalreserve.io/extended-resources for a choice.
func (p *Pool) IDs(choice [][]int) string {
	var ids []string
	for _, chosen := range choice {
		for _, i := range chosen {
			ids = append(ids, p.devices[i].ID)
		}
	}
	return strings.Join(ids, ",")
}

// Given reads what IDs wrote, for a pod found bound: for each request the numbers of its devices, in
// order. Missing are the IDs of devices that the pool has no more. It fails where the annotation has
// not as many IDs as the requests have devices: then they are not the requests it was written for.
func (p *Pool) Given(annotation string, requests []*Request) (choice [][]int, missing []string, err error) {
	var ids []string
	if annotation != "" {
		ids = strings.Split(annotation, ",")
	}
	wanted := 0
	for _, r := range requests {
		wanted += r.count
	}
	if len(ids) != wanted {
		return nil, nil, fmt.Errorf("annotation %s has %d devices, but the pod's claims are for %d",
			v1alpha1.ExtendedResourcesAnnotation, len(ids), wanted)
	}
	for _, r := range requests {
		chosen := make([]int, 0, r.count)
		for _, id := range ids[:r.count] {
			if i, ok := p.Find(r.resource, id); ok {
				chosen = append(chosen, i)
			} else {
				missing = append(missing, id)
			}
		}
		ids = ids[r.count:]
		slices.Sort(chosen)
		choice = append(choice, chosen)
	}
	return choice, missing, nil
}
