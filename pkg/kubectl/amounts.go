package kubectl

import (
	"cmp"
	"maps"
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

// amount writes an amount of the wire for people, in cores, binary units and plain counts, or as it is
// there where raw. Cores are exact; bytes are rounded to a tenth of their unit.
func amount(name string, value int64, raw bool) string {
	switch {
	case name == string(corev1.ResourceCPU) && raw:
		return strconv.FormatInt(value, 10) + "m"
	case name == string(corev1.ResourceCPU):
		return humanCores(value)
	case isBytes(name) && !raw:
		return humanBytes(value)
	default:
		return strconv.FormatInt(value, 10)
	}
}

// humanCores writes milli-CPU as cores: 1500 is "1.5".
func humanCores(milli int64) string { return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64) }

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
func compareResources[K ~string](a, b K) int {
	ranks := map[K]int{
		K(corev1.ResourceCPU): -2, K(corev1.ResourceMemory): -1, K(corev1.ResourceEphemeralStorage): 1, K(corev1.ResourcePods): 2,
	}
	return cmp.Or(cmp.Compare(ranks[a], ranks[b]), cmp.Compare(a, b))
}

// amountList writes all amounts but some on one line: "cpu 2, memory 4Gi". The pod count, which is one
// wherever there is a pod, is for those who look for raw amounts.
func amountList(amounts map[string]int64, raw bool, without ...corev1.ResourceName) string {
	if !raw {
		without = append(without, corev1.ResourcePods)
	}
	shown := maps.Clone(amounts)
	for _, name := range without {
		delete(shown, string(name))
	}
	return resourceList(shown, func(name string, value int64) string { return amount(name, value, raw) })
}

// quantityList writes the requests of a slot on one line, as they were written in the object, but cpu in
// cores, so that a list shows one unit.
func quantityList(requests corev1.ResourceList) string {
	return resourceList(requests, func(name string, quantity resource.Quantity) string {
		if name == string(corev1.ResourceCPU) {
			return humanCores(quantity.MilliValue())
		}
		return quantity.String()
	})
}

func resourceList[K ~string, V any](amounts map[K]V, write func(name string, value V) string) string {
	var texts []string
	for _, name := range slices.SortedFunc(maps.Keys(amounts), compareResources) {
		texts = append(texts, string(name)+" "+write(string(name), amounts[name]))
	}
	return orNone(strings.Join(texts, ", "))
}

// none stands for an empty cell.
const none = "<none>"

func orNone(text string) string { return cmp.Or(text, none) }
