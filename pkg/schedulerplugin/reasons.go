package schedulerplugin

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
)

// otherwise is the text where a gate has refused, and not the ledger.
const otherwise = "GlobalReserve: the capacity could not be reserved"

// notReady is the text while no decision can be made.
const notReady = "GlobalReserve: the ledger is not complete yet"

// refuse returns the status of a refusal, also where its reason is not known. A status is
// not shared: the framework writes into it.
func refuse(reason ledger.Reason) *fwk.Status {
	switch r := &placement.Refusals[reason]; {
	case r.Text == "":
		return fwk.NewStatus(fwk.Unschedulable, otherwise)
	case r.Unresolvable:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, r.Text)
	default:
		return fwk.NewStatus(fwk.Unschedulable, r.Text)
	}
}

// notNow returns the status for pods while no decision can be made. No node is left
// for preemption, which would evict pods for nothing.
func notNow() *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, notReady)
}
