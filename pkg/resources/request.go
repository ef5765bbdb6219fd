package resources

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
)

// Amount is how much of one resource: milli-CPU for CPU, the resource's own unit (bytes, a count) for everything else.
type Amount struct {
	Column Column
	Value  int64
}

// NamedAmount is an Amount of a resource no Table column exists for.
type NamedAmount struct {
	Name  v1.ResourceName
	Value int64
}

// Request is what one pod asks of the node it runs on. It is not changed once made, so it may be shared.
type Request struct {
	// Amounts holds each resource with a value above 0 once, ordered by
	// column. Pods is always among them with the value 1.
	Amounts []Amount
	// Unlisted holds resources that no node and no bound pod has ever named:
	// no node can have capacity for them. Empty for a bound pod.
	Unlisted []NamedAmount
	// Ports are the host ports the pod occupies, and terms of anti-affinity; see Apart.
	Ports []HostPort
	// ByDRA are those of the columns of which DRA has given a pod devices, as its status says
	// (extendedResourceClaimStatus, which kube-scheduler writes before it binds the pod), in order.
	ByDRA []Column
	// ToleratesUnschedulable says that the pod may be placed on a cordoned node.
	ToleratesUnschedulable bool
}

// Value returns the amount of one resource, 0 where the request names none.
func (r *Request) Value(c Column) int64 {
	for _, a := range r.Amounts {
		if a.Column == c {
			return a.Value
		}
	}
	return 0
}

// Equal reports whether both ask for the same amounts and host ports, and have the same by DRA.
func (r *Request) Equal(o *Request) bool {
	return slices.Equal(r.Amounts, o.Amounts) && slices.Equal(r.Unlisted, o.Unlisted) &&
		slices.Equal(r.Ports, o.Ports) && slices.Equal(r.ByDRA, o.ByDRA)
}

// Kept returns what is asked for as it is kept for the pod before it is bound; r itself where there are no terms of
// anti-affinity.
func (r *Request) Kept() *Request {
	if !slices.ContainsFunc(r.Ports, HostPort.IsTerm) {
		return r
	}
	kept := *r
	kept.Ports = slices.Clone(r.Ports)
	for i := range kept.Ports {
		kept.Ports[i].Kept = kept.Ports[i].IsTerm()
	}
	return &kept
}

// Capacity returns what is asked for without the terms of anti-affinity, which no object keeps; r itself where there
// are none.
func (r *Request) Capacity() *Request {
	if !slices.ContainsFunc(r.Ports, HostPort.IsTerm) {
		return r
	}
	without := *r
	without.Ports = slices.DeleteFunc(slices.Clone(r.Ports), HostPort.IsTerm)
	return &without
}

// Without returns what is asked for without some columns, and without anything that DRA has given; it is r itself where
// that is all.
func (r *Request) Without(left func(Column) bool) *Request {
	out := func(a Amount) bool { return left(a.Column) }
	if len(r.ByDRA) == 0 && !slices.ContainsFunc(r.Amounts, out) {
		return r
	}
	without := *r
	without.Amounts, without.ByDRA = slices.DeleteFunc(slices.Clone(r.Amounts), out), nil
	return &without
}

// Plus returns what two pods ask for together.
func (r *Request) Plus(o *Request) *Request {
	sum := &Request{
		Amounts:  slices.Clone(r.Amounts),
		Unlisted: slices.Concat(r.Unlisted, o.Unlisted), Ports: slices.Concat(r.Ports, o.Ports),
		ToleratesUnschedulable: r.ToleratesUnschedulable && o.ToleratesUnschedulable,
	}
	for _, a := range o.Amounts {
		if i := slices.IndexFunc(sum.Amounts, func(b Amount) bool { return a.Column == b.Column }); i >= 0 {
			sum.Amounts[i].Value, _ = Add(sum.Amounts[i].Value, a.Value)
		} else {
			sum.Amounts = append(sum.Amounts, a)
		}
	}
	sum.sort()
	return sum
}

// Relisted returns the request with every resource in its column that has one by now; it is r itself where nothing is
// new. A request made before any node offered a resource has it unlisted, and stays so where it is kept.
func (r *Request) Relisted(t *Table) *Request {
	listed := func(u NamedAmount) bool { _, ok := t.Lookup(u.Name); return ok }
	if !slices.ContainsFunc(r.Unlisted, listed) {
		return r
	}
	fresh := *r
	fresh.Amounts, fresh.Unlisted = slices.Clone(r.Amounts), nil
	for _, u := range r.Unlisted {
		fresh.add(t, u.Name, u.Value)
	}
	fresh.sort()
	return &fresh
}

// AtLeast returns the request with so much of a resource, where it asks for less; r itself where it does not, or where
// resources of the name are not counted. The name gets a column if there are any left for what pods name.
func (r *Request) AtLeast(t *Table, name v1.ResourceName, value int64) *Request {
	col, ok := t.Use(name)
	if !ok {
		return r
	}
	if r = r.Relisted(t); r.Value(col) >= value {
		return r
	}
	more := *r
	more.Amounts = slices.DeleteFunc(slices.Clone(r.Amounts), func(a Amount) bool { return a.Column == col })
	more.Amounts = append(more.Amounts, Amount{Column: col, Value: value})
	sortAmounts(more.Amounts)
	return &more
}

// add adds an amount of a resource that the request has none of yet. The caller sorts it then.
func (r *Request) add(t *Table, name v1.ResourceName, value int64) {
	if col, ok := t.Lookup(name); ok {
		r.Amounts = append(r.Amounts, Amount{Column: col, Value: value})
	} else {
		r.Unlisted = append(r.Unlisted, NamedAmount{Name: name, Value: value})
	}
}

func (r *Request) sort() {
	sortAmounts(r.Amounts)
	slices.SortFunc(r.Unlisted, func(a, b NamedAmount) int { return cmp.Compare(a.Name, b.Name) })
}

// ForIncomingPod returns the request of a pod that has no node yet, from its spec alone, the way kube-scheduler's
// NodeResourcesFit computes it once the API server has stored the pod: the pod may be one that it has not filled in
// yet. It returns an error that names the field when a quantity is negative or has no int64.
func ForIncomingPod(t *Table, pod *v1.Pod) (Request, error) {
	return forIncomingPod(t, pod, resourcehelper.PodResourcesOptions{})
}

// ForClaimingPod returns what a pod that has no node yet counts for as soon as it has one: what ForIncomingPod does,
// and what the devices of its ResourceClaims take of the node's own CPU, memory and the like. Its scheduler writes that
// into the pod's status before it binds it (KEP-5517, nodeAllocatableResourceClaimStatuses). On another node the same
// claims may take something else, so that NodeResourcesFit does not look at it before.
func ForClaimingPod(t *Table, pod *v1.Pod) (Request, error) {
	return forIncomingPod(t, pod, resourcehelper.PodResourcesOptions{UseDRANodeAllocatableResourceClaimStatus: true})
}

func forIncomingPod(t *Table, pod *v1.Pod, options resourcehelper.PodResourcesOptions) (Request, error) {
	pod = asStored(pod)
	if err := checkQuantities(pod); err != nil {
		return Request{}, err
	}
	request, err := counted(t, pod, resourcehelper.PodRequests(pod, options))
	switch {
	case err != nil:
		return Request{}, err
	case len(request.Ports) > maxPorts:
		return Request{}, fmt.Errorf("the pod asks for %d host ports; the most is %d", len(request.Ports), maxPorts)
	case len(request.Unlisted) > maxUnlisted:
		return Request{}, fmt.Errorf("the pod requests %d resources that no node offers; the most is %d",
			len(request.Unlisted), maxUnlisted)
	}
	return request, nil
}

// What a pod that is to be bound may ask for. Its author chooses, and each node is compared with all of it.
const (
	maxPorts    = 1024
	maxUnlisted = 64
)

// counted is the request of a pod for a list of resources. Those that no node has ever offered are unlisted.
func counted(t *Table, pod *v1.Pod, list v1.ResourceList) (Request, error) {
	req := newRequest(pod, len(list))
	for name, q := range list {
		value, exact := toInt64(name, q)
		if !exact {
			return Request{},
				fmt.Errorf("the pod's request of %s for %s is too large; the most is 2^63-1 milli-CPU, bytes or units", q.String(),
					name)
		}
		if value != 0 && name != v1.ResourcePods && t.counts(name) {
			req.add(t, name, value)
		}
	}
	req.ByDRA = byDRA(t, pod)
	req.sort()
	return req, nil
}

// newRequest begins the request of a pod, which counts as one pod, with so many more amounts.
func newRequest(pod *v1.Pod, more int) Request {
	apart, _ := Apart(pod)
	return Request{
		Amounts: append(make([]Amount, 0, more+1), Amount{Column: Pods, Value: 1}),
		Ports:   append(hostPorts(pod), apart...), ToleratesUnschedulable: tolerateUnschedulable(pod.Spec.Tolerations),
	}
}

// ForBoundPod returns what a pod on a node counts for. Where an in-place resize is under way that is the largest of
// what is asked, allocated and actuated, as kube-scheduler's node cache counts it; what its kubelet has found
// infeasible is left out, and comes back a moment earlier than there, when something else is asked for. It never fails:
// what is on a node counts, so a value without an int64 saturates and a negative one counts 0.
func ForBoundPod(t *Table, pod *v1.Pod) Request {
	pod = asStored(pod)
	list := countedList(pod)
	req := newRequest(pod, len(list))
	for name, q := range list {
		value, _ := toInt64(name, q)
		if value <= 0 || name == v1.ResourcePods {
			continue
		}
		if col, ok := t.Use(name); ok {
			req.Amounts = append(req.Amounts, Amount{Column: col, Value: value})
		}
	}
	req.ByDRA = byDRA(t, pod)
	req.sort()
	return req
}

// asks reports whether a container of a pod asks for a resource.
func asks(pod *v1.Pod, name v1.ResourceName) bool {
	has := func(c v1.Container) bool { _, ok := c.Resources.Requests[name]; return ok }
	return slices.ContainsFunc(pod.Spec.Containers, has) || slices.ContainsFunc(pod.Spec.InitContainers, has)
}

// byDRA returns of which resources DRA has given devices to a pod that asks for them by count.
func byDRA(t *Table, pod *v1.Pod) (columns []Column) {
	if pod.Status.ExtendedResourceClaimStatus == nil {
		return nil
	}
	for _, m := range pod.Status.ExtendedResourceClaimStatus.RequestMappings {
		name := v1.ResourceName(m.ResourceName)
		if !asks(pod, name) { // nobody makes the table grow by names that come to nothing
			continue
		}
		if column, ok := t.Use(name); ok && !slices.Contains(columns, column) {
			columns = append(columns, column)
		}
	}
	slices.Sort(columns)
	return columns
}

// Allocatable returns what a node offers: its status.allocatable, one Amount
// per resource above 0, ordered by column. One of which there is none at the moment, as while a
// device plugin is away, has a column all the same: pods may have some of it.
func Allocatable(t *Table, node *v1.Node) []Amount {
	amounts := make([]Amount, 0, len(node.Status.Allocatable))
	for name, q := range node.Status.Allocatable {
		value, _ := toInt64(name, q)
		if col, ok := t.Offer(name); ok && value > 0 {
			amounts = append(amounts, Amount{Column: col, Value: value})
		}
	}
	sortAmounts(amounts)
	return amounts
}

func sortAmounts(amounts []Amount) {
	slices.SortFunc(amounts, func(a, b Amount) int { return cmp.Compare(a.Column, b.Column) })
}

var (
	maxUnits    = *resource.NewQuantity(math.MaxInt64, resource.DecimalSI)
	maxMilliCPU = *resource.NewMilliQuantity(math.MaxInt64, resource.DecimalSI)
)

// toInt64 rounds a quantity up to the unit it is counted in. Where that has no int64 it saturates and says so:
// Quantity's own conversions would wrap around. A negative quantity is 0.
func toInt64(name v1.ResourceName, q resource.Quantity) (value int64, exact bool) {
	switch {
	case q.Sign() <= 0:
		return 0, true
	case name == v1.ResourceCPU && q.Cmp(maxMilliCPU) > 0, q.Cmp(maxUnits) > 0:
		return math.MaxInt64, false
	case name == v1.ResourceCPU:
		return q.MilliValue(), true
	default:
		return q.Value(), true
	}
}

// checkQuantities refuses negative quantities one by one: in a sum, one negative request could hide another.
func checkQuantities(pod *v1.Pod) error {
	check := func(where string, list v1.ResourceList) error {
		for name, q := range list {
			if q.Sign() < 0 {
				return fmt.Errorf("%s[%s] is %s; a request must not be negative", where, name, q.String())
			}
		}
		return nil
	}
	for k, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			where := fmt.Sprintf("spec.%s[%d].resources.requests", [...]string{"containers", "initContainers"}[k], i)
			if err := check(where, list[i].Resources.Requests); err != nil {
				return err
			}
		}
	}
	if pod.Spec.Resources != nil {
		if err := check("spec.resources.requests", pod.Spec.Resources.Requests); err != nil {
			return err
		}
	}
	return check("spec.overhead", pod.Spec.Overhead)
}

// unschedulableTaint is the taint kube-scheduler's NodeUnschedulable plugin
// sees on a node whose spec.unschedulable is set.
var unschedulableTaint = v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}

func tolerateUnschedulable(tolerations []v1.Toleration) bool {
	if len(tolerations) == 0 {
		return false
	}
	return corev1helpers.TolerationsTolerateTaint(klog.Background(), tolerations, &unschedulableTaint, false)
}
