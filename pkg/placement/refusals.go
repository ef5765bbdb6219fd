package placement

import "github.com/globalreserve/globalreserve/pkg/ledger"

// Refusal is what a pod's scheduler receives for a node that refuses the pod.
type Refusal struct {
	// Text goes into the pod's condition. It is constant: kube-scheduler takes a
	// text that changes for news of the pod and tries it again at once.
	Text string
	// Unresolvable says that evicting pods from the node would not help, so that
	// kube-scheduler does not look for victims there.
	Unresolvable bool
	// Wakes says that the ledger may take back the refusal without an event that
	// schedulers watch, or before or after they have seen it.
	Wakes bool
}

// Refusals has an entry for every reason a node can have. Only a lack of something that pods use up on the node can be
// mended by evicting pods. The in-tree plugins make the same difference (NodeResourcesFit and NodePorts against
// NodeUnschedulable).
var Refusals = [ledger.NumReasons]Refusal{
	ledger.InsufficientResource: lack("GlobalReserve: not enough capacity left on the node"),
	ledger.HostPortConflict:     lack("GlobalReserve: a host port is taken on the node"),
	ledger.AntiAffinity:         lack("GlobalReserve: required anti-affinity keeps the pod from the node"),
	ledger.InsufficientDevices:  lack("GlobalReserve: the free devices of the node do not meet the pod's claims"),
	ledger.GangUnplaced:         lack("GlobalReserve: there is no capacity for the rest of the pod's gang"),
	ledger.NodeUnknown:          unresolvable("GlobalReserve: the node is not in the ledger"),
	ledger.NodeUnschedulable:    unresolvable("GlobalReserve: the node is cordoned"),
	ledger.AllocatedElsewhere:   unresolvable("GlobalReserve: the pod holds a reservation on another node"),
	ledger.DeviceClaimInUse:     unresolvable("GlobalReserve: another pod has a device claim of the pod"),
	ledger.DeviceClaimUnusable:  unresolvable("GlobalReserve: a device claim of the pod cannot be used"),
	ledger.QuotaExceeded: unresolvable(
		"GlobalReserve: the pods and reservations of the namespace use up its ResourceQuota"),
	ledger.ReservedLimit: unresolvable("GlobalReserve: the reservations of the namespace keep all that the policy allows"),
	ledger.SlotLimit:     unresolvable("GlobalReserve: the namespace has as many reservation slots as the policy allows"),
	ledger.CallerLimit:   unresolvable("GlobalReserve: the pod's scheduler uses all that the policy allows it"),
	ledger.GangIncomplete: unresolvable(
		"GlobalReserve: too few pods of the pod's gang exist, or what it needs is not known"),
	ledger.GangWaits: unresolvable("GlobalReserve: another gang that could start now comes first"),
	ledger.PodGone:   {Text: "GlobalReserve: the pod was deleted or has finished", Unresolvable: true},
}

func lack(text string) Refusal { return Refusal{Text: text, Wakes: true} }

func unresolvable(text string) Refusal { return Refusal{Text: text, Unresolvable: true, Wakes: true} }

// Uncountable is the text for every node where a pod's request cannot be counted. It is
// constant like the others: the log says what is wrong.
const Uncountable = "GlobalReserve: the pod's request cannot be counted"
