package extender

import "github.com/globalreserve/globalreserve/pkg/ledger"

// refusal is what filter says of a node it refuses.
type refusal struct {
	// text goes into the pod's condition. It is constant: kube-scheduler takes a
	// text that changes for news of the pod and tries it again at once.
	text string
	// unresolvable says that evicting pods from the node would not help, so that
	// kube-scheduler does not look for victims there.
	unresolvable bool
	// wakes says that the ledger may take back the refusal without an event that
	// schedulers watch, or before or after they have seen it.
	wakes bool
}

// refusals has an entry for every reason filter can meet. Only a lack of
// something that pods use up can be mended by evicting pods. The in-tree
// plugins make the same difference (NodeResourcesFit and NodePorts against
// NodeUnschedulable).
var refusals = [ledger.DeviceClaimUnusable + 1]refusal{
	ledger.InsufficientResource: {text: "GlobalReserve: not enough capacity left on the node", wakes: true},
	ledger.HostPortConflict:     {text: "GlobalReserve: a host port is taken on the node", wakes: true},
	ledger.NodeUnknown:          {text: "GlobalReserve: the node is not in the ledger", unresolvable: true, wakes: true},
	ledger.NodeUnschedulable:    {text: "GlobalReserve: the node is cordoned", unresolvable: true, wakes: true},
	ledger.AllocatedElsewhere:   {text: "GlobalReserve: the pod holds a reservation on another node", unresolvable: true, wakes: true},
	ledger.PodGone:              {text: "GlobalReserve: the pod was deleted or has finished", unresolvable: true},
	ledger.InsufficientDevices:  {text: "GlobalReserve: the free devices of the node do not meet the pod's claims", wakes: true},
	ledger.DeviceClaimInUse:     {text: "GlobalReserve: another pod has a device claim of the pod", unresolvable: true, wakes: true},
	ledger.DeviceClaimUnusable:  {text: "GlobalReserve: a device claim of the pod cannot be used", unresolvable: true, wakes: true},
}

// uncountableRefusal is what filter says of every node to a pod whose request
// cannot be counted. It is constant like the others: the log says what is wrong.
const uncountableRefusal = "GlobalReserve: the pod's request cannot be counted"

// gateRefusal is what filter says of every node to a pod that may not be given any
// capacity, as bind says, with the reason.
const gateRefusal = "GlobalReserve: the pod may not be given capacity"
