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
