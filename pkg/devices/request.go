package devices

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// Request is what one claim asks for. Make one with Compile; it is never changed and may be used by
// several goroutines at a time.
type Request struct {
	spec     *v1alpha1.ExtendedResourceClaimSpec
	resource string
	count    int
	names    []string // sorted
	selector selector
	// shape is the same for requests of the same resource and selector: what pools remember goes by it.
	shape unique.Handle[string]
	hash  uint64 // of the shape
}

// shaped returns the request with its shape, which a text describes.
func (r *Request) shaped(text string) *Request {
	r.shape, r.hash = unique.Make(text), maphash.String(shapeSeed, text)
	return r
}

// Compile makes a Request of a claim's spec. It accepts all that the API server admits, as long as that has the schema
// of this release. An error names every bad field, below path, and what to write there.
func Compile(path *field.Path, spec *v1alpha1.ExtendedResourceClaimSpec) (*Request, error) {
	return compile(path, path.Child("selector"), spec)
}

// CompileSlot makes a Request of devices that a Reservation's slot keeps. Conditions that make no sense
// are found here first: the API server admits them.
func CompileSlot(path *field.Path, slot *v1alpha1.SlotDevices) (*Request, error) {
	spec := v1alpha1.ExtendedResourceClaimSpec{
		ResourceName: slot.ResourceName, Count: slot.Count, ExtendedResourceNames: slot.ExtendedResourceNames,
	}
	if len(slot.MatchProperties)+len(slot.MatchExpressions) > 0 {
		spec.Selector = &v1alpha1.DeviceSelector{MatchProperties: slot.MatchProperties}
	}
	for _, e := range slot.MatchExpressions {
		spec.Selector.MatchExpressions = append(spec.Selector.MatchExpressions, v1alpha1.PropertyRequirement(e))
	}
	return compile(path, path, &spec)
}

// Any returns a request for any devices of a resource. Count is at least 1, and may be more than a claim may ask for.
func Any(resource string, count int) *Request {
	spec := v1alpha1.ExtendedResourceClaimSpec{ResourceName: resource}
	spec.Count = int32(count) //nolint:gosec // of devices there are
	r := &Request{spec: &spec, resource: resource, count: count}
	return r.shaped(quoteIfNeeded(resource) + " ")
}

func compile(path, selectorPath *field.Path, spec *v1alpha1.ExtendedResourceClaimSpec) (*Request, error) {
	var errs field.ErrorList
	if spec.ResourceName == "" {
		errs = append(errs, field.Required(path.Child("resourceName"), "name a resource, such as nvidia.com/gpu"))
	}
	if spec.Count < 1 || spec.Count > v1alpha1.MaxClaimedDevices {
		errs = append(errs, field.Invalid(path.Child("count"), spec.Count,
			fmt.Sprintf("write a number from 1 to %d", v1alpha1.MaxClaimedDevices)))
	}
	names := slices.Sorted(slices.Values(spec.ExtendedResourceNames))
	if len(names) > int(max(spec.Count, 0)) {
		errs = append(errs, field.Invalid(path.Child("extendedResourceNames"), spec.ExtendedResourceNames,
			"names more devices than count asks for"))
	}
	if len(slices.Compact(slices.Clone(names))) < len(names) {
		errs = append(errs, field.Invalid(path.Child("extendedResourceNames"), spec.ExtendedResourceNames,
			"names a device twice"))
	}
	selector, bad := compileSelector(selectorPath, spec.Selector)
	if errs = append(errs, bad...); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	r := &Request{
		spec: spec.DeepCopy(), resource: spec.ResourceName, count: int(spec.Count), names: names,
		selector: selector,
	}
	prefix := quoteIfNeeded(spec.ResourceName) + " "
	r.shaped(prefix + selector.text)
	r.selector.text = r.shape.Value()[len(prefix):] // one of the two texts is enough
	return r, nil
}

// Spec returns what the request was compiled from. It must not be changed.
func (r *Request) Spec() *v1alpha1.ExtendedResourceClaimSpec { return r.spec }

// Resource returns the resource the devices are of.
func (r *Request) Resource() string { return r.resource }

// Count returns how many devices are wanted.
func (r *Request) Count() int { return r.count }

// String says what is wanted, for people: "2 nvidia.com/gpu (memory Gt 8Gi; model In L4) with gpu-0".
func (r *Request) String() string {
	text := fmt.Sprintf("%d %s", r.count, r.resource)
	if s := r.selector.String(); s != "" {
		text += " (" + s + ")"
	}
	if len(r.names) > 0 {
		text += " with " + strings.Join(r.names, ", ")
	}
	return text
}
