package kubectl

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Amounts on the wire are integers: milli-CPU for cpu, bytes for memory, storage and huge pages, a
// count for the rest.

// isBytes tells whether a resource is counted in bytes.
func isBytes(name string) bool {
	switch corev1.ResourceName(name) {
	case corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage:
		return true
	default:
		return strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
	}
}

// humanAmount writes an amount of the wire for people: cores, binary units, plain counts. Cores are
// exact; bytes are rounded to a tenth of their unit.
func humanAmount(name string, value int64) string {
	switch {
	case name == string(corev1.ResourceCPU):
		return humanCores(value)
	case isBytes(name):
		return humanBytes(value)
	default:
		return strconv.FormatInt(value, 10)
	}
}

// amount writes an amount as it is on the wire where raw, else for people.
func amount(name string, value int64, raw bool) string {
	if !raw {
		return humanAmount(name, value)
	}
	if name == string(corev1.ResourceCPU) {
		return strconv.FormatInt(value, 10) + "m"
	}
	return strconv.FormatInt(value, 10)
}

// humanCores writes milli-CPU as cores, without zeros at the end: 1500 is "1.5".
func humanCores(milli int64) string {
	text := strconv.FormatFloat(float64(milli)/1000, 'f', 3, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// humanBytes writes bytes in the largest binary unit that leaves at least one.
func humanBytes(bytes int64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	value, unit := float64(bytes), 0
	// The bound is below 1024 so that rounding to a tenth never gives "1024Mi".
	for (value >= 1023.95 || value <= -1023.95) && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	return strings.TrimSuffix(strconv.FormatFloat(value, 'f', 1, 64), ".0") + units[unit]
}

// compareResources orders resource names: cpu, memory, extended resources, and then what nearly every
// node has and few look for.
func compareResources(a, b string) int {
	return cmp.Or(cmp.Compare(resourceRank(a), resourceRank(b)), cmp.Compare(a, b))
}

func resourceRank(name string) int {
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU:
		return 0
	case corev1.ResourceMemory:
		return 1
	case corev1.ResourceEphemeralStorage:
		return 3
	case corev1.ResourcePods:
		return 4
	default:
		return 2
	}
}

// amountList writes several amounts on one line: "cpu 2, memory 4Gi". The pod count, which is one
// wherever there is a pod, is for those who look for raw amounts.
func amountList(amounts map[string]int64, raw bool) string {
	names := make([]string, 0, len(amounts))
	for name := range amounts {
		if raw || name != string(corev1.ResourcePods) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, compareResources)
	for i, name := range names {
		names[i] = name + " " + amount(name, amounts[name], raw)
	}
	return orNone(strings.Join(names, ", "))
}

// quantityList writes the requests of a slot on one line, as they were written in the object.
func quantityList(requests corev1.ResourceList) string {
	names := make([]string, 0, len(requests))
	for name := range requests {
		names = append(names, string(name))
	}
	slices.SortFunc(names, compareResources)
	for i, name := range names {
		quantity := requests[corev1.ResourceName(name)]
		names[i] = name + " " + humanQuantity(name, quantity)
	}
	return orNone(strings.Join(names, ", "))
}

// humanQuantity writes cpu in cores, so that a list shows one unit, and anything else as it is.
func humanQuantity(name string, quantity resource.Quantity) string {
	if name == string(corev1.ResourceCPU) {
		return humanCores(quantity.MilliValue())
	}
	return quantity.String()
}

// none stands for an empty cell.
const none = "<none>"

func orNone(text string) string { return cmp.Or(text, none) }
