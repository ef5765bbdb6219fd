package kubectl

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Amounts on the wire are integers: milli-CPU for cpu, bytes for memory, storage and huge pages, a count for the rest.

// amount writes an amount of the wire for people, in cores, binary units and plain counts, or as it is
// there where raw. Cores are exact; bytes are rounded to a tenth of their unit.
func amount(name string, value int64, raw bool) string {
	switch {
	case raw && name == string(corev1.ResourceCPU):
		return strconv.FormatInt(value, 10) + "m"
	case raw:
		return strconv.FormatInt(value, 10)
	default:
		return resources.Number(corev1.ResourceName(name), value)
	}
}

// compareResources orders resource names: cpu, memory, extended resources, and then what nearly every
// node has and few look for.
func compareResources[K ~string](a, b K) int {
	ranks := map[K]int{
		K(corev1.ResourceCPU): -2, K(corev1.ResourceMemory): -1, K(corev1.ResourceEphemeralStorage): 1,
		K(corev1.ResourcePods): 2,
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
	var texts []string
	for _, name := range slices.SortedFunc(maps.Keys(shown), compareResources) {
		texts = append(texts, name+" "+amount(name, shown[name], raw))
	}
	return orNone(strings.Join(texts, ", "))
}

// none stands for an empty cell.
const none = "<none>"

func orNone(text string) string { return cmp.Or(text, none) }
