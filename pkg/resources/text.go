package resources

import (
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Text writes an amount for people: "1.5 CPU", "4Gi", "3". CPU is exact; bytes are rounded to a tenth of their unit.
func Text(name v1.ResourceName, value int64) string {
	if name == v1.ResourceCPU {
		return Number(name, value) + " CPU"
	}
	return Number(name, value)
}

// Number is Text without the word CPU, for where that is said beside it.
func Number(name v1.ResourceName, value int64) string {
	switch {
	case name == v1.ResourceCPU:
		return strconv.FormatFloat(float64(value)/1000, 'f', -1, 64)
	case isBytes(name):
		return bytesText(value)
	default:
		return strconv.FormatInt(value, 10)
	}
}

// Shortage writes what is asked for beside what there is of it: "4 CPU", "0". Where rounding would make both look
// equal they are exact.
func Shortage(name v1.ResourceName, asked, free int64) (askedText, freeText string) {
	askedText, freeText = Text(name, asked), Number(name, free)
	if asked != free && askedText == freeText {
		return exactBytes(asked), exactBytes(free)
	}
	return askedText, freeText
}

// Text writes all that a request asks for: "4 CPU, 2Gi memory, 1 nvidia.com/gpu".
func (r *Request) Text(t *Table) string {
	var texts []string
	add := func(name v1.ResourceName, value int64) {
		switch name {
		case v1.ResourcePods: // each is one
		case v1.ResourceCPU:
			texts = append(texts, Text(name, value))
		default:
			texts = append(texts, Text(name, value)+" "+string(name))
		}
	}
	for _, a := range r.Amounts {
		add(t.Name(a.Column), a.Value)
	}
	for _, a := range r.Unlisted {
		add(a.Name, a.Value)
	}
	if len(texts) == 0 {
		return "no amounts"
	}
	return strings.Join(texts, ", ")
}

// isBytes reports whether a resource is counted in bytes.
func isBytes(name v1.ResourceName) bool {
	switch name {
	case v1.ResourceMemory, v1.ResourceStorage, v1.ResourceEphemeralStorage:
		return true
	default:
		return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
	}
}

// bytesText writes bytes in the largest binary unit that leaves at least one.
func bytesText(bytes int64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	value, unit := float64(bytes), 0
	// The bound is below 1024 so that rounding to a tenth never gives "1024Mi".
	for (value >= 1023.95 || value <= -1023.95) && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	return strings.TrimSuffix(strconv.FormatFloat(value, 'f', 1, 64), ".0") + units[unit]
}

func exactBytes(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }
