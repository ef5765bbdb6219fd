package kubectl

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// specFlags are the flags of create that say what is reserved, and for whom.
type specFlags struct {
	object v1alpha1.Reservation // with what some flags give as it is
	slot   v1alpha1.Slot        // what all slots have in common

	cpu, memory                       string
	resources                         []string
	replicas                          int
	ttl                               time.Duration
	priority                          int32
	index, selector, controller, gang string
	given                             func(flag string) bool
}

// policies are the values of --policy.
var policies = []string{
	string(v1alpha1.AllocateOnce), string(v1alpha1.AllocateAligned),
	string(v1alpha1.AllocateRestricted),
}

func (f *specFlags) addFlags(cmd *cobra.Command) {
	flags, spec := cmd.Flags(), &f.object.Spec
	f.given = flags.Changed
	flags.StringVar(&f.cpu, "cpu", "", "CPU of each slot, such as 4 or 500m")
	flags.StringVar(&f.memory, "memory", "", "memory of each slot, such as 8Gi")
	flags.StringArrayVar(&f.resources, "resource", nil,
		"name=amount of another resource of each slot, such as nvidia.com/gpu=2; may be repeated")
	flags.IntVar(&f.replicas, "replicas", f.replicas,
		"how many slots: capacity for so many pods, named NAME-0, NAME-1, ...")
	flags.StringVar(&f.slot.NodeName, "node", "", "node to reserve on; without it the server chooses")
	flags.StringToStringVar(&f.slot.NodeSelector, "node-selector", nil,
		"label=value that a chosen node must have; may be repeated")
	flags.DurationVar(&f.ttl, "ttl", 0,
		"how long unused capacity is kept, counted from when it is available; 0s: until deleted; without it, the server's "+
			"default")
	flags.StringVar(&f.index, "index", "", "pods whose annotation "+v1alpha1.ReservationIndexAnnotation+
		" is this may use the capacity")
	flags.StringVar(&f.selector, "selector", "",
		"pods with these labels may use the capacity, such as app=web or 'tier in (a,b)'")
	flags.StringVar(&f.controller, "controller", "",
		"pods of this controller may use the capacity, such as Deployment/web")
	flags.StringVar(&f.gang, "gang", "",
		"pods of this gang may use the capacity, such as training, or volcano/training for one of that kind alone")
	addChoice(cmd, (*string)(&spec.AllocatePolicy), "policy", "",
		"Once (default), Aligned or Restricted: what happens when a pod's size is not the slot's", policies...)
	flags.BoolVar(&spec.Preemptible, "preemptible", false,
		"let a pod of higher priority take the capacity where it fits nowhere else")
	flags.Int32Var(&f.priority, "priority", 0, "priority of the reservation, as of a pod")
	flags.StringVar(&spec.SchedulerName, "scheduler", "", "scheduler whose pods the capacity is for")
	flags.StringToStringVar(&f.object.Labels, "labels", nil, "key=value labels of the Reservation object; may be repeated")
}

// reservation makes the object that the flags describe. It leaves to the API server what that checks by
// itself and reports as clearly.
func (f *specFlags) reservation(namespace, name string) (*v1alpha1.Reservation, error) {
	f.object.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Reservation"}
	f.object.Namespace, f.object.Name = namespace, name
	spec := &f.object.Spec
	var err error
	if f.slot.Requests, err = f.requests(); err != nil {
		return nil, err
	}
	if spec.Consumers, err = f.consumers(); err != nil {
		return nil, err
	}
	if spec.Slots, err = f.slots(name); err != nil {
		return nil, err
	}
	spec.AllocatePolicy = cmp.Or(spec.AllocatePolicy, v1alpha1.AllocateOnce)
	if f.given("priority") {
		spec.Priority = &f.priority
	}
	if f.given("ttl") {
		spec.TTL = &metav1.Duration{Duration: f.ttl}
	}
	return &f.object, nil
}

func (f *specFlags) slots(name string) ([]v1alpha1.Slot, error) {
	if f.replicas < 1 || f.replicas > v1alpha1.MaxSlots {
		return nil, usageErrorf("--replicas %d is out of range: one reservation has 1 to %d slots; make several for more",
			f.replicas, v1alpha1.MaxSlots)
	}
	slots := make([]v1alpha1.Slot, f.replicas)
	for i := range slots {
		slots[i] = f.slot
		slots[i].Name = name + "-" + strconv.Itoa(i)
	}
	return slots, nil
}

// requests are the amounts of --cpu, --memory and --resource.
func (f *specFlags) requests() (corev1.ResourceList, error) {
	requests := corev1.ResourceList{}
	for _, given := range [][2]string{{string(corev1.ResourceCPU), f.cpu}, {string(corev1.ResourceMemory), f.memory}} {
		if given[1] == "" {
			continue
		}
		if err := addAmount(requests, "--"+given[0], given[0], given[1]); err != nil {
			return nil, err
		}
	}
	for _, pair := range f.resources {
		name, text, ok := strings.Cut(pair, "=")
		if !ok || text == "" {
			return nil, usageErrorf("--resource %q has no amount: write name=amount, such as nvidia.com/gpu=2", pair)
		}
		if problems := validation.IsQualifiedName(name); len(problems) > 0 {
			return nil, usageErrorf("--resource %q names no resource: %s", pair, strings.Join(problems, "; "))
		}
		if err := addAmount(requests, "--resource "+name, name, text); err != nil {
			return nil, err
		}
	}
	if len(requests) == 0 {
		return nil, usageErrorf("nothing is to be reserved: give at least one of --cpu, --memory and --resource name=amount")
	}
	return requests, nil
}

func addAmount(requests corev1.ResourceList, flag, name, text string) error {
	_, twice := requests[corev1.ResourceName(name)]
	quantity, err := resource.ParseQuantity(text)
	switch {
	case twice:
		return usageErrorf("the amount of %s is given twice: give it once", name)
	case err != nil:
		return usageErrorf("%s %q is not an amount: write it like a pod's request, such as 4, 500m or 8Gi", flag, text)
	}
	requests[corev1.ResourceName(name)] = quantity
	return nil
}

// consumers say which pods may use the capacity.
func (f *specFlags) consumers() (*v1alpha1.ConsumerSpec, error) {
	spec := &v1alpha1.ConsumerSpec{Index: f.index}
	if f.selector != "" {
		selector, err := metav1.ParseToLabelSelector(f.selector)
		if err != nil {
			return nil, usageErrorf("--selector %q is not a label selector: %w: write it like app=web or 'tier in (a,b)'",
				f.selector, err)
		}
		spec.Selector = selector
	}
	if f.controller != "" {
		kind, name, ok := strings.Cut(f.controller, "/")
		if !ok {
			return nil, usageErrorf("--controller %q names no controller: write Kind/name, such as Deployment/web", f.controller)
		}
		spec.Controller = &v1alpha1.ControllerReference{Kind: controllerKind(kind), Name: name}
	}
	if kind, name, ok := strings.Cut(f.gang, "/"); ok && kind == "" {
		return nil, usageErrorf("--gang %q names no kind: write NAME, or KIND/NAME", f.gang)
	} else if ok {
		spec.Gang = &v1alpha1.GangReference{Kind: kind, Name: name}
	} else if f.gang != "" {
		spec.Gang = &v1alpha1.GangReference{Name: f.gang}
	}
	if *spec == (v1alpha1.ConsumerSpec{}) {
		return nil, nil
	}
	return spec, nil
}

// controllerKind completes what kubectl's users write for a kind: deployment, deployments, deploy.
func controllerKind(text string) string {
	known := map[string][]string{
		"Deployment": {"deploy"}, "StatefulSet": {"sts"}, "ReplicaSet": {"rs"}, "DaemonSet": {"ds"}, "Job": nil,
		"ReplicationController": {"rc"},
	}
	lower := strings.ToLower(text)
	for kind, short := range known {
		if name := strings.ToLower(kind); lower == name || lower == name+"s" || slices.Contains(short, lower) {
			return kind
		}
	}
	return text
}
