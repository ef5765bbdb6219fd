package schedulerplugin

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/arbiter/question"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// otherwise is what it says where the account has refused for a reason of its own.
const otherwise = "GlobalReserve: the capacity could not be reserved"

// unavailable is what the plugin says to pods while no decision can be made.
var unavailable = [...]string{
	Starting: "GlobalReserve: the ledger is not complete yet",
	Away:     "GlobalReserve: the server cannot be reached",
	Behind:   "GlobalReserve: the mirror of the ledger is behind the server",
	Denied:   "GlobalReserve: the server does not let this scheduler ask; the scheduler's log says which right is missing",
}

// refuse returns the status of a refusal, also where its reason is not known. A status is
// not shared: the framework writes into it.
func refuse(reason ledger.Reason) *fwk.Status {
	switch r := &question.Refusals[reason]; {
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
func notNow(e *UnavailableError) *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, unavailable[e.Kind])
}
