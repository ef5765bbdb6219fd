package rest

import (
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/dra"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

func newGiven(given []ledger.GivenDevices) []reserver.GivenDevices {
	return listOf(given, func(g *ledger.GivenDevices) reserver.GivenDevices {
		return reserver.GivenDevices{
			Namespace: g.Claim.Namespace, Claim: g.Claim.Name, UID: string(g.Claim.UID), Resource: g.Resource, IDs: g.IDs,
		}
	})
}

func newNodeDevices(views []ledger.DeviceView) []reserver.NodeDevice {
	return listOf(views, func(v *ledger.DeviceView) reserver.NodeDevice {
		return reserver.NodeDevice{
			Device: newDevice(&v.Device), Free: v.Free, Reservation: slotName(v.Slot), Pods: listOf(v.Pods, newPodName),
		}
	})
}

func newPodName(pod *ledger.PodRef) reserver.PodName {
	return reserver.PodName{Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID)}
}

func newDRADevices(claims *dra.Controller, node string) (list []reserver.DRADevice) {
	for _, d := range claims.OnNode(node) {
		one := reserver.DRADevice{Driver: d.Driver, Pool: d.Pool, Name: d.Name, Double: d.Double}
		for _, o := range d.Owners {
			one.Claims = append(one.Claims, reserver.DRAClaim{
				Namespace: o.Namespace, Claim: o.Name, UID: string(o.UID), State: string(o.State), Pods: claims.PodsOf(o.UID),
			})
		}
		list = append(list, one)
	}
	return list
}

func newDevice(d *devices.Device) reserver.Device {
	return reserver.Device{
		Name: d.Name, Resource: d.Resource, ID: d.ID, Properties: d.Properties, Unschedulable: d.Unschedulable,
	}
}

// deviceClaimName is namespace/name, or nothing.
func deviceClaimName(ref ledger.DeviceClaimRef) string {
	if ref.Name == "" {
		return ""
	}
	return ref.String()
}
