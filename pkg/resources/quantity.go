package resources

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// What a quantity may look like. Kubernetes' own parser and arithmetic take
// seconds of CPU on an exponent of a few million, and read some exponents beyond
// 32 bits as others.
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
		exponent, ok := parseExponent(s[at+1:])
		if !ok {
			return resource.Quantity{}, errQuantity
		}
		if exponent > maxQuantityExponent || exponent < -maxQuantityExponent {
			return resource.Quantity{}, fmt.Errorf("the exponent of the quantity is beyond %d", maxQuantityExponent)
		}
	}
	quantity, err := resource.ParseQuantity(s)
	if err != nil {
		return resource.Quantity{}, errQuantity
	}
	return quantity, nil
}

// parseExponent reads a signed decimal number; what has no int64 is taken for
// the largest.
func parseExponent(s string) (int64, bool) {
	negative := s[0] == '-'
	if s[0] == '-' || s[0] == '+' {
		s = s[1:]
	}
	if s == "" {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		digit := int64(s[i]) - '0'
		if digit < 0 || digit > 9 {
			return 0, false
		}
		if n > (math.MaxInt64-digit)/10 {
			n = math.MaxInt64
			break
		}
		n = n*10 + digit
	}
	if negative {
		n = -n
	}
	return n, true
}
