package schedulerplugin

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// refusal is what the plugin says of a node it refuses.
type refusal struct {
	// text goes into the pod's condition. It is constant, and that of the extender.
	text string
	// code says whether evicting pods from the node could help.
	code fwk.Code
}

// refusals has an entry for every reason a pod can meet. Only a lack of something
// that pods use up can be mended by evicting pods. The in-tree plugins make the same
// difference (NodeResourcesFit and NodePorts against NodeUnschedulable).
var refusals = map[ledger.Reason]refusal{
	ledger.InsufficientResource: {"GlobalReserve: not enough capacity left on the node", fwk.Unschedulable},
	ledger.HostPortConflict:     {"GlobalReserve: a host port is taken on the node", fwk.Unschedulable},
	ledger.NodeUnknown:          {"GlobalReserve: the node is not in the ledger", fwk.UnschedulableAndUnresolvable},
	ledger.NodeUnschedulable:    {"GlobalReserve: the node is cordoned", fwk.UnschedulableAndUnresolvable},
	ledger.AllocatedElsewhere:   {"GlobalReserve: the pod holds a reservation on another node", fwk.UnschedulableAndUnresolvable},
	ledger.PodGone:              {"GlobalReserve: the pod was deleted or has finished", fwk.UnschedulableAndUnresolvable},
	ledger.InsufficientDevices:  {"GlobalReserve: the free devices of the node do not meet the pod's claims", fwk.Unschedulable},
	ledger.DeviceClaimInUse:     {"GlobalReserve: another pod has a device claim of the pod", fwk.UnschedulableAndUnresolvable},
	ledger.DeviceClaimUnusable:  {"GlobalReserve: a device claim of the pod cannot be used", fwk.UnschedulableAndUnresolvable},
}

// uncountable is what the plugin says to a pod whose request cannot be counted.
const uncountable = "GlobalReserve: the pod's request cannot be counted"

// otherwise is what it says where the account has refused for a reason of its own.
const otherwise = "GlobalReserve: the capacity could not be reserved"

// unavailable is what the plugin says to pods while no decision can be made.
var unavailable = [...]string{
	Starting: "GlobalReserve: the ledger is not complete yet",
	Away:     "GlobalReserve: the server cannot be reached",
	Behind:   "GlobalReserve: the mirror of the ledger is behind the server",
}

// refuse returns the status of a refusal, also where its reason is not known. A status is
// not shared: the framework writes into it.
func refuse(reason ledger.Reason) *fwk.Status {
	if r, ok := refusals[reason]; ok {
		return fwk.NewStatus(r.code, r.text)
	}
	return fwk.NewStatus(fwk.Unschedulable, otherwise)
}

// notNow returns the status for pods while no decision can be made. No node is left
// for preemption, which would evict pods for nothing.
func notNow(e *UnavailableError) *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, unavailable[e.Kind])
}
