package devices

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// selector is a compiled DeviceSelector: requirements that a device has to meet all of.
type selector struct {
	requirements []requirement // in the order of their texts, each once
	keys         []string      // that the requirements name, each once
	text         string        // see String; it can have half a million characters
}

type requirement struct {
	key      string
	operator v1alpha1.PropertyOperator
	values   []string          // sorted
	bound    resource.Quantity // of Gt and Lt
}

// amountPattern is what counts as a number or a quantity. resource.ParseQuantity reads all of it, and the
// exponents that take forever are left out. The schema has the same pattern.
var amountPattern = regexp.MustCompile(
	`^[+-]?([0-9]{1,18}([.][0-9]{0,9})?|[.][0-9]{1,9})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`,
)

func parseAmount(text string) (resource.Quantity, bool) {
	if !amountPattern.MatchString(text) {
		return resource.Quantity{}, false
	}
	amount, err := resource.ParseQuantity(text)
	return amount, err == nil
}

// compileSelector compiles a selector; nil selects everything. The errors name the fields below path.
func compileSelector(path *field.Path, from *v1alpha1.DeviceSelector) (selector, field.ErrorList) {
	var s selector
	var errs field.ErrorList
	if from == nil {
		return s, nil
	}
	type written struct {
		requirement
		text string
	}
	var all []written
	for _, key := range slices.Sorted(maps.Keys(from.MatchProperties)) {
		if key == "" {
			errs = append(errs, field.Required(path.Child("matchProperties"), "a property has a name"))
		}
		r := requirement{key: key, operator: v1alpha1.PropertyIn, values: []string{from.MatchProperties[key]}}
		all = append(all, written{r, r.String()})
	}
	for i := range from.MatchExpressions {
		r, bad := compileRequirement(path.Child("matchExpressions").Index(i), &from.MatchExpressions[i])
		errs = append(errs, bad...)
		all = append(all, written{r, r.String()})
	}
	// What is written twice counts once, in costs as in the text that pools remember matches by.
	slices.SortFunc(all, func(a, b written) int { return strings.Compare(a.text, b.text) })
	all = slices.CompactFunc(all, func(a, b written) bool { return a.text == b.text })
	texts := make([]string, len(all))
	for i := range all {
		s.requirements, texts[i] = append(s.requirements, all[i].requirement), all[i].text
	}
	s.text = strings.Join(texts, "; ")
	for _, r := range s.requirements {
		s.keys = append(s.keys, r.key)
	}
	slices.Sort(s.keys)
	s.keys = slices.Compact(s.keys)
	return s, errs
}

func compileRequirement(path *field.Path, from *v1alpha1.PropertyRequirement) (requirement, field.ErrorList) {
	var errs field.ErrorList
	r := requirement{key: from.Key, operator: from.Operator, values: slices.Sorted(slices.Values(from.Values))}
	if r.key == "" {
		errs = append(errs, field.Required(path.Child("key"), "name the property"))
	}
	values := path.Child("values")
	switch from.Operator {
	case v1alpha1.PropertyIn, v1alpha1.PropertyNotIn:
		if len(r.values) == 0 {
			errs = append(errs, field.Required(values, string(r.operator)+" needs at least one value"))
		}
	case v1alpha1.PropertyExists, v1alpha1.PropertyDoesNotExist:
		if len(r.values) != 0 {
			errs = append(errs, field.Invalid(values, from.Values, string(r.operator)+" takes no values"))
		}
	case v1alpha1.PropertyGt, v1alpha1.PropertyLt:
		if len(r.values) != 1 {
			errs = append(errs, field.Invalid(values, from.Values, string(r.operator)+" needs exactly one value"))
			break
		}
		var ok bool
		if r.bound, ok = parseAmount(r.values[0]); !ok {
			errs = append(errs, field.Invalid(values.Index(0), r.values[0], "write a number or a quantity, such as 12 or 12Gi"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("operator"), r.operator, []v1alpha1.PropertyOperator{
			v1alpha1.PropertyIn, v1alpha1.PropertyNotIn, v1alpha1.PropertyExists, v1alpha1.PropertyDoesNotExist,
			v1alpha1.PropertyGt, v1alpha1.PropertyLt,
		}))
	}
	return r, errs
}

// selects reports whether a device has the properties that are asked for; amounts are those of them that are amounts.
func (s *selector) selects(properties map[string]string, amounts map[string]resource.Quantity) bool {
	for i := range s.requirements {
		if !s.requirements[i].meets(properties, amounts) {
			return false
		}
	}
	return true
}

func (r *requirement) meets(properties map[string]string, amounts map[string]resource.Quantity) bool {
	value, has := properties[r.key]
	switch r.operator {
	case v1alpha1.PropertyIn, v1alpha1.PropertyNotIn:
		_, listed := slices.BinarySearch(r.values, value)
		return has && listed == (r.operator == v1alpha1.PropertyIn) || !has && r.operator == v1alpha1.PropertyNotIn
	case v1alpha1.PropertyExists:
		return has
	case v1alpha1.PropertyDoesNotExist:
		return !has
	default:
		amount, ok := amounts[r.key]
		if r.operator == v1alpha1.PropertyGt {
			return ok && amount.Cmp(r.bound) > 0
		}
		return ok && amount.Cmp(r.bound) < 0
	}
}

// wasted returns how many properties the selector does not name.
func (s *selector) wasted(properties map[string]string) int {
	n := len(properties)
	for _, key := range s.keys {
		if _, has := properties[key]; has {
			n--
		}
	}
	return n
}

// String returns what the selector asks for, the same text for selectors that differ only in
// the order they were written in.
func (s *selector) String() string { return s.text }

// String returns what the requirement asks for.
func (r *requirement) String() string {
	var text strings.Builder
	text.WriteString(quoteIfNeeded(r.key) + " " + string(r.operator))
	for i, value := range r.values {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(" " + quoteIfNeeded(value))
	}
	return text.String()
}

var plain = regexp.MustCompile(`^[-A-Za-z0-9_./:+@=]+$`)

// quoteIfNeeded quotes what would make the text of a selector ambiguous.
func quoteIfNeeded(text string) string {
	if plain.MatchString(text) {
		return text
	}
	return strconv.Quote(text)
}
