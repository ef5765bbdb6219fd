package resources

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Capacity is what is kept on a node for one pod that is not there yet, in the words of the Kubernetes API.
type Capacity struct {
	Requests    v1.ResourceList
	Ports       []HostPort
	Tolerations []v1.Toleration
}

// ForCapacity returns the request that asks for a slot; it counts as one pod. It returns an error that names the
// resource when an amount is negative or has no int64, or when no node can offer a resource of that name.
func ForCapacity(t *Table, capacity *Capacity) (Request, error) {
	req := Request{Amounts: []Amount{{Column: Pods, Value: 1}}}
	for name, q := range capacity.Requests {
		if name == v1.ResourcePods || t.ignored[name] {
			continue
		}
		value, err := capacityAmount(name, q)
		if err != nil {
			return Request{}, err
		}
		if value != 0 {
			req.add(t, name, value)
		}
	}
	for _, p := range capacity.Ports {
		req.Ports = append(req.Ports, p.withDefaults())
	}
	req.ToleratesUnschedulable = tolerateUnschedulable(capacity.Tolerations)
	req.sort()
	return req, nil
}

func capacityAmount(name v1.ResourceName, q resource.Quantity) (int64, error) {
	if !isCounted(name) {
		return 0,
			fmt.Errorf("no node offers a resource named %q: use cpu, memory, ephemeral-storage, hugepages-<size> or a name "+
				"with a domain, such as example.com/gpu", name)
	}
	if q.Sign() < 0 {
		return 0, fmt.Errorf("the request of %s for %s is negative", q.String(), name)
	}
	value, exact := toInt64(name, q)
	if !exact {
		return 0, fmt.Errorf("the request of %s for %s is too large; the most is 2^63-1 milli-CPU, bytes or units",
			q.String(), name)
	}
	return value, nil
}

// CapacityOf is the reverse of ForCapacity: the capacity a pod's request needs. ForCapacity of
// the result equals req.Capacity().
func CapacityOf(t *Table, req *Request) Capacity {
	capacity := Capacity{Requests: v1.ResourceList{}, Ports: slices.Clone(req.Capacity().Ports)}
	for _, a := range req.Amounts {
		if a.Column != Pods {
			name := t.Name(a.Column)
			capacity.Requests[name] = Quantity(name, a.Value)
		}
	}
	for _, a := range req.Unlisted {
		capacity.Requests[a.Name] = Quantity(a.Name, a.Value)
	}
	if len(capacity.Requests) == 0 {
		capacity.Requests[v1.ResourceCPU] = Quantity(v1.ResourceCPU, 0)
	}
	if req.ToleratesUnschedulable {
		capacity.Tolerations = []v1.Toleration{{
			Key: unschedulableTaint.Key, Operator: v1.TolerationOpExists, Effect: unschedulableTaint.Effect,
		}}
	}
	return capacity
}

// Quantity writes an amount, in milli-CPU for cpu, the way people do: memory in binary units.
func Quantity(name v1.ResourceName, value int64) resource.Quantity {
	switch {
	case name == v1.ResourceCPU:
		return *resource.NewMilliQuantity(value, resource.DecimalSI)
	case name == v1.ResourceMemory, name == v1.ResourceEphemeralStorage, isHugePages(name):
		return *resource.NewQuantity(value, resource.BinarySI)
	default:
		return *resource.NewQuantity(value, resource.DecimalSI)
	}
}

// ForLimits returns amounts that are not to be exceeded, ordered by column; 0 is one. What is not counted is left
// out, and so is what is beyond any amount. Limits give resources columns, so that they hold once a node offers them.
func ForLimits(t *Table, list v1.ResourceList) []Amount {
	var amounts []Amount
	for name, q := range list {
		value, exact := toInt64(name, q)
		if !exact {
			continue
		}
		if column, ok := t.Offer(name); ok {
			amounts = append(amounts, Amount{Column: column, Value: max(0, value)})
		}
	}
	sortAmounts(amounts)
	return amounts
}
