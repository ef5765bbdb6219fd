package resources

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// What a quantity may look like. Kubernetes' own parser and arithmetic take seconds of CPU on an exponent of a few
// million, and read some exponents beyond 32 bits as others.
const (
	maxQuantityLength   = 64
	maxQuantityExponent = 24
)

var errQuantity = errors.New("the quantity is not usable: write it like 2, 500m, 1.5, 4Gi or 1e3")

// ParseQuantity reads a quantity that a client sent. It refuses what is longer or
// has a larger exponent than any amount of a resource needs.
func ParseQuantity(s string) (resource.Quantity, error) {
	if len(s) > maxQuantityLength {
		return resource.Quantity{}, fmt.Errorf("the quantity is longer than %d characters", maxQuantityLength)
	}
	// A trailing E is the suffix for 10^18; one with digits behind it starts an exponent.
	if at := strings.IndexAny(s, "eE"); at >= 0 && at+1 < len(s) && s[at+1] != 'i' {
		exponent, err := strconv.Atoi(s[at+1:])
		if errors.Is(err, strconv.ErrSyntax) {
			return resource.Quantity{}, errQuantity
		}
		if err != nil || exponent > maxQuantityExponent || exponent < -maxQuantityExponent {
			return resource.Quantity{}, fmt.Errorf("the exponent of the quantity is beyond %d", maxQuantityExponent)
		}
	}
	quantity, err := resource.ParseQuantity(s)
	if err != nil {
		return resource.Quantity{}, errQuantity
	}
	return quantity, nil
}
