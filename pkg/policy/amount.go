package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Amount is how much of a resource, as the file has it: a quantity, or a percentage of what all nodes offer.
type Amount string

// UnmarshalJSON takes a number as well as text: cpu: 4.
func (a *Amount) UnmarshalJSON(data []byte) error {
	if !bytes.HasPrefix(data, []byte(`"`)) {
		*a = Amount(data)
		return nil
	}
	return json.Unmarshal(data, (*string)(a))
}

// Percent returns the percentage, and whether the amount is one.
func (a Amount) Percent() (percent int64, ok bool) {
	text, ok := strings.CutSuffix(string(a), "%")
	if !ok {
		return 0, false
	}
	percent, err := strconv.ParseInt(text, 10, 64)
	return percent, err == nil && percent >= 0 && percent <= 100
}

// Quantity returns the amount where all nodes offer so much; total is in the resource's own unit, milli-CPU for cpu.
func (a Amount) Quantity(name corev1.ResourceName, total int64) resource.Quantity {
	percent, ok := a.Percent()
	if !ok {
		q, _ := resources.ParseQuantity(string(a)) // the policy is valid
		return q
	}
	share := new(big.Int).Mul(big.NewInt(total), big.NewInt(percent))
	value := share.Div(share, big.NewInt(100)).Int64()
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(value, resource.DecimalSI)
	}
	return *resource.NewQuantity(value, resource.DecimalSI)
}

// validateAmounts checks amounts by resource.
func validateAmounts(amounts map[corev1.ResourceName]Amount, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name, a := range amounts {
		if problem := resourceNameProblem(string(name)); problem != "" {
			errs = append(errs, field.Invalid(path.Key(string(name)), name, problem))
		}
		if problem := a.problem(); problem != "" {
			errs = append(errs, field.Invalid(path.Key(string(name)), string(a), problem))
		}
	}
	return errs
}

func (a Amount) problem() string {
	if _, ok := a.Percent(); ok {
		return ""
	}
	q, err := resources.ParseQuantity(string(a))
	switch {
	case strings.HasSuffix(string(a), "%"):
		return "must be a whole percentage from 0% to 100%, or a quantity such as 10 or 64Gi"
	case err != nil:
		return fmt.Sprintf("must be a quantity such as 10 or 64Gi, or a percentage such as 20%%: %v", err)
	case q.Sign() < 0:
		return "must not be negative"
	default:
		return ""
	}
}

// HasPercentages reports whether some limit depends on what the nodes offer.
func (p *Policy) HasPercentages() bool {
	for _, n := range p.Namespaces {
		if hasPercentages(n.MaxReserved) {
			return true
		}
	}
	return slices.ContainsFunc(p.Schedulers, func(s Scheduler) bool { return hasPercentages(s.Limits) })
}

func hasPercentages(amounts map[corev1.ResourceName]Amount) bool {
	for _, a := range amounts {
		if _, percent := a.Percent(); percent {
			return true
		}
	}
	return false
}
