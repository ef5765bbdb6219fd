package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	typed "github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/typed/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// poll is how often an object is looked at that is waited for. Polling needs no right but get and list.
const poll = 500 * time.Millisecond

func (d *Drain) in(namespace string) typed.ReservationInterface {
	return d.Reservations.GlobalreserveV1alpha1().Reservations(namespace)
}

// keep makes Reservations for the planned places that are not kept yet, one for each owner, and waits until all keep
// theirs. It reports false, and keeps none of them, where one cannot.
func (d *Drain) keep(ctx context.Context, plan *Plan) (kept bool, err error) {
	byOwner := map[owner][]*Pod{}
	for _, pod := range plan.Go {
		if pod.needsPlace() && pod.To != "" && pod.Slot == "" {
			byOwner[pod.owner()] = append(byOwner[pod.owner()], pod)
		}
	}
	var made []*v1alpha1.Reservation
	for of, pods := range byOwner {
		for some := range slices.Chunk(pods, v1alpha1.MaxSlots) {
			rsv, err := d.in(of.namespace).Create(ctx, d.reservation(of, some), metav1.CreateOptions{})
			if err != nil {
				return false, errors.Join(fmt.Errorf("keeping places for %s: %w", of, err), d.remove(ctx, made))
			}
			made = append(made, rsv)
		}
	}
	for _, rsv := range made {
		if kept, err := d.isKept(ctx, rsv); err != nil || !kept {
			return false, errors.Join(err, d.remove(ctx, made))
		}
	}
	return true, nil
}

// podName is the label of a StatefulSet's pod with its own name.
const podName = "statefulset.kubernetes.io/pod-name"

// String names an owner.
func (o owner) String() string { return fmt.Sprintf("%s %s/%s", o.kind, o.namespace, o.name) }

// reservation keeps the places of pods of one owner. What is made for a StatefulSet's pod has its name; other owners'
// pods are all alike.
func (d *Drain) reservation(of owner, pods []*Pod) *v1alpha1.Reservation {
	rsv := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{
		GenerateName: d.name + "-" + of.name[:min(len(of.name), 100)] + "-", Namespace: of.namespace,
		Labels: map[string]string{v1alpha1.DrainLabel: d.name},
		Annotations: map[string]string{
			v1alpha1.DrainedNodesAnnotation: strings.Join(d.Nodes, ","),
			v1alpha1.DrainedOwnerAnnotation: of.kind + "/" + of.name,
		},
	}, Spec: v1alpha1.ReservationSpec{
		SchedulerName: pods[0].Scheduler, TTL: &metav1.Duration{Duration: d.TTL},
		Consumers: &v1alpha1.ConsumerSpec{Controller: &v1alpha1.ControllerReference{Kind: of.kind, Name: of.name}},
	}}
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Pod)
		rsv.Spec.Slots = append(rsv.Spec.Slots, slotFor(pod))
	}
	if of.kind == "StatefulSet" {
		rsv.Spec.Consumers = &v1alpha1.ConsumerSpec{Selector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: podName, Operator: metav1.LabelSelectorOpIn, Values: names,
			}},
		}}
	}
	return rsv
}

func slotFor(pod *Pod) v1alpha1.Slot {
	slot := v1alpha1.Slot{Name: pod.Pod, NodeName: pod.To, Requests: v1.ResourceList{v1.ResourceCPU: {}}}
	for name, amount := range pod.Requests {
		if name := v1.ResourceName(name); name != v1.ResourcePods {
			slot.Requests[name] = resources.Quantity(name, amount)
		}
	}
	for _, text := range pod.HostPorts { // TCP/10.0.0.1:80
		protocol, address, _ := strings.Cut(text, "/")
		at := strings.LastIndex(address, ":")
		number, _ := strconv.ParseInt(address[at+1:], 10, 32)
		slot.HostPorts = append(slot.HostPorts, v1alpha1.HostPort{
			HostIP: address[:at], Protocol: v1.Protocol(protocol), Port: int32(number),
		})
	}
	return slot
}

// isKept waits until the server has decided on a Reservation, and reports whether it keeps its places.
func (d *Drain) isKept(ctx context.Context, rsv *v1alpha1.Reservation) (kept bool, err error) {
	err = wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		now, err := d.in(rsv.Namespace).Get(ctx, rsv.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		available := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionAvailable)
		kept = now.Status.Phase == v1alpha1.ReservationAvailable || now.Status.Phase == v1alpha1.ReservationSucceeded
		return kept || available != nil, nil
	})
	return kept, err
}

// list returns the Reservations of the drain in a namespace, or in all.
func (d *Drain) list(ctx context.Context, namespace string) ([]v1alpha1.Reservation, error) {
	list, err := d.in(namespace).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.DrainLabel + "=" + d.name})
	if err != nil {
		return nil, fmt.Errorf("listing the Reservations of %s: %w", d.name, err)
	}
	return list.Items, nil
}

// hasSlot reports whether the slot that is meant for a pod is kept still, or another one for pods of its owner.
func (d *Drain) hasSlot(ctx context.Context, pod *Pod) (bool, error) {
	list, err := d.list(ctx, pod.Namespace)
	return slices.ContainsFunc(list, func(rsv v1alpha1.Reservation) bool {
		return keepsFor(&rsv, pod) && hasReserved(&rsv)
	}), err
}

func keepsFor(rsv *v1alpha1.Reservation, pod *Pod) bool {
	of := rsv.Spec.Consumers
	switch {
	case of == nil || rsv.Status.Phase != v1alpha1.ReservationAvailable:
		return false
	case of.Controller != nil:
		return of.Controller.Kind == pod.OwnerKind && of.Controller.Name == pod.OwnerName
	default:
		return slices.Contains(of.Selector.MatchExpressions[0].Values, pod.Pod)
	}
}

// lastPods is how long pods are waited for at the end that were made and have a place.
const lastPods = time.Minute

// awaitOwner waits until the owner that a Reservation keeps places for has all its pods, and none of them waits, if
// there are places left.
func (d *Drain) awaitOwner(ctx context.Context, rsv *v1alpha1.Reservation) error {
	kind, name, _ := strings.Cut(rsv.Annotations[v1alpha1.DrainedOwnerAnnotation], "/")
	of := owner{rsv.Namespace, kind, name}
	err := wait.PollUntilContextTimeout(ctx, poll, lastPods, true, func(ctx context.Context) (bool, error) {
		now, err := d.in(rsv.Namespace).Get(ctx, rsv.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && !hasReserved(now) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		standing, err := d.standing(ctx, of)
		return err == nil && (!standing.known || len(standing.pods) >= standing.wants && standing.count(unbound) == 0), err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("pods of %s wait that have a place: see kubectl reserve pending, and run it again", of)
	}
	return err
}

func hasReserved(rsv *v1alpha1.Reservation) bool {
	return slices.ContainsFunc(rsv.Status.Slots, func(s v1alpha1.SlotStatus) bool {
		return s.State == v1alpha1.SlotReserved
	})
}

// putOff puts off the end of the places as long as the drain goes on.
func (d *Drain) putOff(ctx context.Context) {
	ticker := time.NewTicker(d.TTL / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		list, err := d.list(ctx, metav1.NamespaceAll)
		for i := range list {
			if list[i].Status.Phase == v1alpha1.ReservationAvailable && list[i].Status.AvailableAt != nil {
				err = errors.Join(err, d.extend(ctx, &list[i]))
			}
		}
		if err != nil && ctx.Err() == nil {
			d.complain("the places' end could not be put off: %v\n", err)
		}
	}
}

func (d *Drain) extend(ctx context.Context, rsv *v1alpha1.Reservation) error {
	ttl := (time.Since(rsv.Status.AvailableAt.Time) + d.TTL).Truncate(time.Second)
	if rsv.Spec.TTL != nil && ttl <= rsv.Spec.TTL.Duration {
		return nil
	}
	_, err := d.in(rsv.Namespace).Patch(ctx, rsv.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"ttl":%q}}`, ttl), metav1.PatchOptions{})
	return err
}

// giveBack removes the Reservations of the drain. Pods that use their slots keep their capacity.
func (d *Drain) giveBack(ctx context.Context) error {
	list, err := d.list(ctx, metav1.NamespaceAll)
	var all []*v1alpha1.Reservation
	for i := range list {
		all = append(all, &list[i])
	}
	return errors.Join(err, d.remove(ctx, all))
}

// remove removes Reservations, also where ctx has ended meanwhile.
func (d *Drain) remove(ctx context.Context, list []*v1alpha1.Reservation) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for _, rsv := range list {
		if e := d.in(rsv.Namespace).Delete(ctx, rsv.Name, metav1.DeleteOptions{}); !apierrors.IsNotFound(e) {
			err = errors.Join(err, e)
		}
	}
	return err
}
