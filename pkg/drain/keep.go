package drain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
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

const (
	// lastPods is how long pods are waited for at the end that were made and have a place.
	lastPods = time.Minute
	// lastWrites is how long it may take to remove what is not needed, also after an interrupt.
	lastWrites = time.Minute
	// decision is how long the server may take to decide on a Reservation.
	decision = time.Minute
)

// poll is how often an object is looked at that is waited for. Polling needs no right but get and list.
const poll = 500 * time.Millisecond

func (d *Drain) in(namespace string) typed.ReservationInterface {
	return d.Reservations.GlobalreserveV1alpha1().Reservations(namespace)
}

// keep makes Reservations for the planned places that are not kept yet, one for each owner, and waits until all keep
// theirs. Where one cannot it leaves none of them, and returns why.
func (d *Drain) keep(ctx context.Context, plan *Plan) (why string, err error) {
	before, err := d.list(ctx, metav1.NamespaceAll)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil || why != "" {
			err = errors.Join(err, d.removeBut(ctx, before))
		}
	}()
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
				return "", fmt.Errorf("keeping places for %s: %w", of, err)
			}
			made = append(made, rsv)
		}
	}
	for _, rsv := range made {
		if why, err := d.awaitKept(ctx, rsv); err != nil || why != "" {
			return why, err
		}
	}
	d.relyOn(plan, made)
	return "", nil
}

// removeUndecided removes Reservations of the drain that keep nothing, of a run that was killed.
func (d *Drain) removeUndecided(ctx context.Context) error {
	list, err := d.list(ctx, metav1.NamespaceAll)
	if err != nil {
		return err
	}
	return d.removeBut(ctx, slices.DeleteFunc(list, func(rsv v1alpha1.Reservation) bool {
		return rsv.Status.Phase == "" || rsv.Status.Phase == v1alpha1.ReservationPending
	}))
}

// relyOn remembers the Reservations that pods which have to go have their places in. Others may have the drain's label,
// too: anybody can put it on Reservations of its own.
func (d *Drain) relyOn(plan *Plan, made []*v1alpha1.Reservation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, rsv := range made {
		d.relied[types.NamespacedName{Namespace: rsv.Namespace, Name: rsv.Name}] = time.Now()
	}
	for _, pod := range plan.Go {
		if parts := strings.Split(pod.Slot, "/"); len(parts) == 3 {
			key := types.NamespacedName{Namespace: parts[0], Name: parts[1]}
			if _, known := d.relied[key]; !known { // of a run before this one: it is not known how long it has
				d.relied[key] = time.Time{}
			}
		}
	}
}

// removeBut removes the Reservations of the drain but some. The answer to the creation of one may have been lost.
func (d *Drain) removeBut(ctx context.Context, some []v1alpha1.Reservation) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrites)
	defer cancel()
	list, err := d.list(ctx, metav1.NamespaceAll)
	for i := range list {
		stays := func(rsv v1alpha1.Reservation) bool { return rsv.UID == list[i].UID }
		if slices.ContainsFunc(some, stays) {
			continue
		}
		e := d.in(list[i].Namespace).Delete(ctx, list[i].Name, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(e) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// podName is the label of a StatefulSet's pod with its own name.
const podName = "statefulset.kubernetes.io/pod-name"

// reservation keeps the places of pods of one owner. What is made for a StatefulSet's pod has its name; other owners'
// pods are all alike.
func (d *Drain) reservation(of owner, pods []*Pod) *v1alpha1.Reservation {
	rsv := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{
		GenerateName: d.name + "-" + strings.TrimRight(of.name[:min(len(of.name), 100)], ".-") + "-",
		Namespace:    of.namespace,
		Labels:       map[string]string{v1alpha1.DrainLabel: d.name},
		Annotations: map[string]string{
			v1alpha1.DrainedNodesAnnotation: strings.Join(d.Nodes, ","),
		},
	}, Spec: v1alpha1.ReservationSpec{
		SchedulerName: pods[0].Scheduler, TTL: &metav1.Duration{Duration: d.TTL},
		Consumers: &v1alpha1.ConsumerSpec{Controller: &v1alpha1.ControllerReference{Kind: of.kind, Name: of.name}},
	}}
	if !of.unknown {
		rsv.Annotations[v1alpha1.DrainedOwnerAnnotation] = of.kind + "/" + of.name
	}
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Pod)
		rsv.Spec.Slots = append(rsv.Spec.Slots, slotFor(pod))
	}
	if of.kind == "StatefulSet" && !of.unknown {
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

// awaitKept waits until the server has decided on a Reservation, and returns why it does not keep its places.
func (d *Drain) awaitKept(ctx context.Context, rsv *v1alpha1.Reservation) (why string, err error) {
	err = wait.PollUntilContextTimeout(ctx, poll, decision, true, func(ctx context.Context) (bool, error) {
		now, err := d.in(rsv.Namespace).Get(ctx, rsv.Name, metav1.GetOptions{})
		if err != nil {
			return false, unlessPassing(err)
		}
		available := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionAvailable)
		if now.Status.Phase == v1alpha1.ReservationAvailable || now.Status.Phase == v1alpha1.ReservationSucceeded {
			return true, nil
		}
		if available != nil {
			why = cmp.Or(available.Message, available.Reason)
		}
		return available != nil, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		err = fmt.Errorf("the server did not decide on reservation %s/%s within %v: does it follow Reservations?",
			rsv.Namespace, rsv.Name, decision)
	}
	return why, err
}

// list returns the Reservations of the drain in a namespace, or in all.
func (d *Drain) list(ctx context.Context, namespace string) ([]v1alpha1.Reservation, error) {
	list, err := d.in(namespace).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.DrainLabel + "=" + d.name})
	if err != nil {
		return nil, fmt.Errorf("listing the Reservations of %s: %w", d.name, err)
	}
	return list.Items, nil
}

// open returns how many slots are kept still for pods of a pod's owner; for a StatefulSet's pod, that have its name. at
// is a Reservation with one of them on a node that takes pods; nil where there is none.
func (d *Drain) open(ctx context.Context, pod *Pod) (n int, at *v1alpha1.Reservation, err error) {
	list, err := d.list(ctx, pod.Namespace)
	for i := range list {
		if !keepsFor(&list[i], pod) {
			continue
		}
		n += list[i].Status.CountSlots(v1alpha1.SlotReserved)
		for _, slot := range list[i].Status.Slots {
			if at != nil || slot.State != v1alpha1.SlotReserved {
				continue
			}
			node, err := d.Kube.CoreV1().Nodes().Get(ctx, slot.NodeName, metav1.GetOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return 0, nil, err
			}
			if err == nil && !node.Spec.Unschedulable {
				at = &list[i]
			}
		}
	}
	return n, at, err
}

// mark writes on a Reservation what a pod with a place by it waits for. That is for people: a drain goes on without.
func (d *Drain) mark(ctx context.Context, rsv *v1alpha1.Reservation, waitsFor string) {
	if rsv.Annotations[v1alpha1.DrainWaitsForAnnotation] == waitsFor {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lastWrites)
	defer cancel()
	metav1.SetMetaDataAnnotation(&rsv.ObjectMeta, v1alpha1.DrainWaitsForAnnotation, waitsFor)
	quoted, _ := json.Marshal(waitsFor) // a string always can be
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, v1alpha1.DrainWaitsForAnnotation, quoted)
	_, _ = d.in(rsv.Namespace).Patch(ctx, rsv.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}

func keepsFor(rsv *v1alpha1.Reservation, pod *Pod) bool {
	of := rsv.Spec.Consumers
	switch {
	case of == nil || rsv.Status.Phase != v1alpha1.ReservationAvailable:
		return false
	case of.Controller != nil:
		return of.Controller.Kind == pod.OwnerKind && of.Controller.Name == pod.OwnerName
	default:
		return of.Selector != nil && len(of.Selector.MatchExpressions) == 1 &&
			slices.Contains(of.Selector.MatchExpressions[0].Values, pod.Pod)
	}
}

// awaitOwner waits until the owner that a Reservation keeps places for has all its pods, and none of them waits, if
// there are places left.
func (d *Drain) awaitOwner(ctx context.Context, rsv *v1alpha1.Reservation) error {
	kind, name, _ := strings.Cut(rsv.Annotations[v1alpha1.DrainedOwnerAnnotation], "/")
	of := owner{namespace: rsv.Namespace, kind: kind, name: name}
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		if err := d.takenBack(ctx, d.Nodes...); err != nil {
			return false, err
		}
		now, err := d.in(rsv.Namespace).Get(ctx, rsv.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && now.Status.CountSlots(v1alpha1.SlotReserved) == 0 {
			return true, nil
		}
		if err != nil {
			return false, unlessPassing(err)
		}
		standing, err := d.standing(ctx, of)
		return err == nil && standing.known && len(standing.pods) >= standing.wants && standing.count(unbound) == 0,
			unlessPassing(err)
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded) && kind == "":
		return nil // it is not known whether its owner makes others
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("pods of %s wait that have a place: see kubectl reserve pending, and run it again", of)
	}
	return err
}

// putOff puts off the end of the places as long as the drain goes on.
func (d *Drain) putOff(ctx context.Context) {
	ticker := time.NewTicker(d.TTL / 4)
	defer ticker.Stop()
	for {
		d.mu.Lock()
		relied := maps.Clone(d.relied)
		d.mu.Unlock()
		for key, last := range relied {
			if err := d.extend(ctx, key, last); err != nil && ctx.Err() == nil {
				d.complain("the end of the places in reservation %s could not be put off: %v\n", key, err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// extend makes a Reservation last as much longer as time has gone by since it was made, or extended: by the clock of
// this process, which may differ from the server's. Where that is not known, it lasts the whole TTL from now on.
func (d *Drain) extend(ctx context.Context, key types.NamespacedName, last time.Time) error {
	now := time.Now()
	rsv, err := d.in(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	by := time.Since(last).Truncate(time.Second)
	if last.IsZero() {
		by = max(0, d.TTL-d.left(ctx, rsv))
	}
	if by == 0 || rsv.Status.Phase != v1alpha1.ReservationAvailable || rsv.Spec.TTL == nil {
		return err
	}
	_, err = d.in(rsv.Namespace).Patch(ctx, rsv.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"ttl":%q}}`, rsv.Spec.TTL.Duration+by), metav1.PatchOptions{})
	if err == nil {
		d.mu.Lock()
		d.relied[key] = now
		d.mu.Unlock()
	}
	return err
}

// left is how long a Reservation still lasts, by the API server's clock; 0 where that is not known.
func (d *Drain) left(ctx context.Context, rsv *v1alpha1.Reservation) time.Duration {
	self, err := d.Kube.AuthenticationV1().SelfSubjectReviews().
		Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || rsv.Status.ExpiresAt == nil {
		return 0
	}
	return rsv.Status.ExpiresAt.Sub(self.CreationTimestamp.Time)
}

// giveBack removes the Reservations of the drain. Pods that use their slots keep their capacity.
func (d *Drain) giveBack(ctx context.Context) error { return d.removeBut(ctx, nil) }
