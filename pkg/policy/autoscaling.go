package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// defaultRequestAfter is how long a reservation that fits no node waits until nodes are requested, where the file does
	// not say.
	defaultRequestAfter = 30 * time.Second
	// maxRequestAfter is the most that the file may say.
	maxRequestAfter = 24 * time.Hour
	// Of the API of ProvisioningRequests: how many parameters one has, and how long their values are.
	maxParameters, maxParameter = 100, 255
)

// Autoscaling is what the server writes for cluster autoscalers.
type Autoscaling struct {
	// ProtectNodes has nodes annotated, against being removed, that reservations keep capacity on which no pod uses.
	// Default: true.
	ProtectNodes bool `json:"protectNodes"`
	// HoldBackPods has pods that a limit keeps waiting say so in their condition PodScheduled, so that no nodes are made
	// for them. Default: true.
	HoldBackPods bool `json:"holdBackPods"`
	// ProvisioningRequests is the rules for asking for nodes.
	ProvisioningRequests ProvisioningRequests `json:"provisioningRequests"`
}

// ProvisioningRequests is the rules for the ProvisioningRequests that are made for reservations that fit no node.
type ProvisioningRequests struct {
	// ClassName is their spec.provisioningClassName. Empty: none are made.
	ClassName string `json:"className,omitempty"`
	// After is how long a reservation has to have fitted no node. Default: 30s; at most 24h.
	After metav1.Duration `json:"after"`
	// Parameters are their spec.parameters, which the class gives a meaning to.
	Parameters map[string]string `json:"parameters,omitempty"`
}

func defaultAutoscaling() Autoscaling {
	return Autoscaling{
		ProtectNodes: true, HoldBackPods: true,
		ProvisioningRequests: ProvisioningRequests{After: metav1.Duration{Duration: defaultRequestAfter}},
	}
}

func validateAutoscaling(a *Autoscaling, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	r, path := &a.ProvisioningRequests, path.Child("provisioningRequests")
	if problems := validation.IsDNS1123Subdomain(r.ClassName); r.ClassName != "" && len(problems) > 0 {
		errs = append(errs, field.Invalid(path.Child("className"), r.ClassName, strings.Join(problems, "; ")))
	}
	if after := r.After.Duration; after < 0 || after > maxRequestAfter {
		errs = append(errs, field.Invalid(path.Child("after"), after.String(),
			fmt.Sprintf("must not be negative, and not longer than %v", maxRequestAfter)))
	}
	if len(r.Parameters) > maxParameters {
		errs = append(errs, field.TooMany(path.Child("parameters"), len(r.Parameters), maxParameters))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Parameters)) {
		if value := r.Parameters[name]; len(value) > maxParameter {
			errs = append(errs, field.TooLong(path.Child("parameters").Key(name), value, maxParameter))
		}
	}
	return errs
}
