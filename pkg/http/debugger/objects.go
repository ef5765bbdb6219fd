package debugger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// The kinds of differences of reservations and devices; those of pods and nodes are in package cluster.
const (
	missingSlot   = "missing_slot"   // an object was granted a slot that the ledger does not have
	staleSlot     = "stale_slot"     // no object has been granted the slot
	wrongSlot     = "wrong_slot"     // it is on another node, or keeps something else
	missingDevice = "missing_device" // a device that the ledger does not know
	staleDevice   = "stale_device"   // there is no such device
	wrongDevice   = "wrong_device"   // it is described otherwise
	wrongGiven    = "wrong_given"    // a pod's annotation names other devices
	staleClaim    = "stale_claim"    // a pod has devices by a claim that does not exist
)

// each is cluster.EachListed. There is no object where the API server does not know the kind.
func each[T, L runtime.Object](
	ctx context.Context, what string, list func(context.Context, metav1.ListOptions) (L, error), visit func(T),
) error {
	err := cluster.EachListed(ctx, what, list, visit)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// reservations compares the slots of reservations.
func (l *look) reservations(ctx context.Context) error {
	granted := map[ledger.SlotRef]ledger.Slot{}
	list := l.objects.GlobalreserveV1alpha1().Reservations(metav1.NamespaceAll).List
	err := each(ctx, "reservations", list, func(rsv *v1alpha1.Reservation) {
		if rsv.DeletionTimestamp != nil || !convert.Granted(rsv) {
			return
		}
		slots, err := convert.GrantedSlots(l.Table(), rsv)
		if err != nil {
			return // it can never be met
		}
		for i := range slots {
			granted[slots[i].Ref] = slots[i]
		}
	})
	if err != nil {
		return err
	}
	kept, _ := l.Slots()
	for i := range kept {
		view := &kept[i]
		if view.InMemory() {
			continue
		}
		slot, ok := granted[view.Ref]
		delete(granted, view.Ref)
		switch {
		case !ok:
			l.slot(staleSlot, &view.Slot, nil)
		case slot.Node != view.Node || !slot.Request.Relisted(l.Table()).Equal(view.Request.Relisted(l.Table())):
			l.slot(wrongSlot, &view.Slot, &slot)
		}
	}
	for ref := range granted {
		slot := granted[ref]
		l.slot(missingSlot, nil, &slot)
	}
	return nil
}

func (l *look) slot(kind string, known, granted *ledger.Slot) {
	either := known
	if known == nil {
		either = granted
	}
	describe := func(s *ledger.Slot) string {
		if s == nil {
			return "no such slot"
		}
		return fmt.Sprintf("a slot on node %s (%s)", s.Node, cluster.DescribeRequest(l.Table(), s.Request))
	}
	l.add(reserver.Difference{
		Kind: kind, Object: "slot " + either.Ref.String(), Node: either.Node, Ledger: describe(known),
		Cluster: describe(granted),
	})
}

// devices compares the devices of the nodes, and those that pods were given.
func (l *look) devices(ctx context.Context) error {
	kinds := l.objects.GlobalreserveV1alpha1()
	byNode := map[string][]devices.Device{}
	err := each(ctx, "extendedresources", kinds.ExtendedResources().List, func(d *v1alpha1.ExtendedResource) {
		byNode[d.Spec.NodeName] = append(byNode[d.Spec.NodeName], devices.Device{
			Name: d.Name, Resource: d.Spec.ResourceName, ID: d.Spec.DeviceID,
			Properties: d.Spec.Properties, Unschedulable: d.Spec.Unschedulable,
		})
	})
	if err != nil {
		return err
	}
	nodes, _ := l.Nodes()
	for i := range nodes {
		l.devicesOf(nodes[i].Name, nodes[i].Devices, byNode[nodes[i].Name])
		delete(byNode, nodes[i].Name)
	}
	for node, there := range byNode {
		l.devicesOf(node, nil, there)
	}
	claims := map[ledger.DeviceClaimRef]bool{}
	err = each(ctx, "extendedresourceclaims", kinds.ExtendedResourceClaims(metav1.NamespaceAll).List,
		func(claim *v1alpha1.ExtendedResourceClaim) {
			claims[ledger.DeviceClaimRef{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}] = true
		})
	if err != nil {
		return err
	}
	l.given(claims)
	return nil
}

// devicesOf compares the devices of one node. Of several objects that are one device, the ledger has one.
func (l *look) devicesOf(node string, known []ledger.DeviceView, objects []devices.Device) {
	pool, there := devices.NewPool(objects), map[string]devices.Device{}
	for i := range pool.Len() {
		there[pool.Device(i).Name] = *pool.Device(i)
	}
	differs := func(kind string, name, known, there string) {
		l.add(reserver.Difference{Kind: kind, Object: "device " + name, Node: node, Ledger: known, Cluster: there})
	}
	for i := range known {
		d := &known[i].Device
		object, ok := there[d.Name]
		delete(there, d.Name)
		switch {
		case !ok:
			differs(staleDevice, d.Name, describeDevice(d), "no such device")
		case object.Resource != d.Resource || object.ID != d.ID || object.Unschedulable != d.Unschedulable ||
			!maps.Equal(object.Properties, d.Properties):
			differs(wrongDevice, d.Name, describeDevice(d), describeDevice(&object))
		}
	}
	for name := range there {
		object := there[name]
		differs(missingDevice, name, "no such device", describeDevice(&object))
	}
}

// given compares the devices that pods were given.
func (l *look) given(claims map[ledger.DeviceClaimRef]bool) {
	annotated := map[types.UID]bool{}
	for _, pod := range l.claiming {
		annotated[pod.Ref.UID] = true
		allocation, _ := l.Allocation(pod.Ref)
		if known, there := givenIDs(&allocation), idsOf(pod.Devices.GivenIDs(nil)); !slices.Equal(known, there) {
			l.wrongGiven(pod.Ref, pod.Node, known, there)
		}
	}
	allocations, _ := l.Allocations()
	for i := range allocations {
		a := &allocations[i]
		if known := givenIDs(a); a.State == ledger.Bound && len(known) > 0 && !annotated[a.Pod.UID] {
			l.wrongGiven(a.Pod, a.Node, known, nil)
		}
		for k := range a.Given {
			claim := a.Given[k].Claim
			if claim.UID != "" && !claims[claim] {
				l.add(reserver.Difference{
					Kind: staleClaim, Object: podName(a.Pod), UID: string(a.Pod.UID), Node: a.Node,
					Ledger: "devices by claim " + claim.Name + " with UID " + string(claim.UID), Cluster: "no such claim",
				})
			}
		}
	}
}

func (l *look) wrongGiven(pod ledger.PodRef, node string, known, there []string) {
	l.add(reserver.Difference{
		Kind: wrongGiven, Object: podName(pod), UID: string(pod.UID), Node: node,
		Ledger: "devices " + strings.Join(known, ","), Cluster: "devices " + strings.Join(there, ","),
	})
}

// givenIDs are the IDs of an allocation's devices, in order.
func givenIDs(a *ledger.AllocationView) (ids []string) {
	for i := range a.Given {
		ids = append(ids, a.Given[i].IDs...)
	}
	slices.Sort(ids)
	return slices.Compact(ids) // of two resources they may be the same
}

// idsOf are the IDs that an annotation names, in order.
func idsOf(annotation string) (ids []string) {
	for id := range strings.SplitSeq(annotation, ",") {
		if id = strings.TrimSpace(id); id != "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func describeDevice(d *devices.Device) string {
	text := fmt.Sprintf("device %s of %s", d.ID, d.Resource)
	for _, name := range slices.Sorted(maps.Keys(d.Properties)) {
		text += " " + name + "=" + d.Properties[name]
	}
	if d.Unschedulable {
		text += " (unschedulable)"
	}
	return text
}
