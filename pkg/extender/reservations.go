package extender

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// placement asks for room for a pod with the holds it may use.
func (e *Extender) placement(pod *podinfo.Info) ledger.Placement {
	placement := pod.Placement("")
	placement.Holds = e.o.Reservations.Candidates(pod)
	if pod.Devices != nil {
		placement.Devices = e.o.Devices.Devices(pod)
	}
	return placement
}

// decide fills in s.verdicts for a filter call. comesBack says that the pod was
// refused all nodes for now only: something has been done to have it tried again.
func (e *Extender) decide(pod *podinfo.Info, names []string, s *scratch) (comesBack bool) {
	placement := e.placement(pod)
	s.verdicts = e.o.Ledger.AppendFit(s.verdicts[:0], &placement, names)
	if !e.o.Ledger.HasHolds() {
		return false
	}
	if !fitsAny(s.verdicts) {
		return e.offerPreemptible(pod, &placement, names, s)
	}
	e.o.Preemptors.Withdraw(pod.Ref.UID)
	return e.direct(pod, &placement, names, s.verdicts)
}

func fitsAny(verdicts []ledger.Verdict) bool {
	return slices.ContainsFunc(verdicts, func(v ledger.Verdict) bool { return v.Reason == ledger.Fits })
}

// looksBeforePreempting is how many filter calls in a row must find no room for a
// pod before preemptible holds are offered, where some node has room: it may be
// one the pod cannot be on, or one the scheduler has just not looked at.
const looksBeforePreempting = 3

// offerPreemptible takes a second look for a pod that fits none of the nodes: it
// may fit once preemptible holds of lower priority end. Its bind may end them
// then. comesBack is decide's.
func (e *Extender) offerPreemptible(pod *podinfo.Info, placement *ledger.Placement, names []string, s *scratch) (comesBack bool) {
	short := func(v ledger.Verdict) bool {
		return v.Reason == ledger.InsufficientResource || v.Reason == ledger.HostPortConflict ||
			v.Reason == ledger.InsufficientDevices
	}
	uid := pod.Ref.UID
	if _, claimed := e.o.Ledger.Claim(pod.Ref); claimed || uid == "" || !slices.ContainsFunc(s.verdicts, short) {
		e.o.Preemptors.Withdraw(uid)
		return false
	}
	s.second = e.o.Ledger.AppendPreemptingFit(s.second[:0], placement, names)
	if !fitsAny(s.second) {
		e.o.Preemptors.Withdraw(uid)
		return false
	}
	looks := e.o.Preemptors.Looked(uid)
	if looks < looksBeforePreempting && e.o.Ledger.CountFits(placement) > 0 {
		e.o.Refusals.Wake(pod)
		return true
	}
	e.o.Preemptors.Allow(uid)
	for i, v := range s.second {
		if v.Reason == ledger.Fits {
			s.verdicts[i] = v
		}
	}
	return false
}

// direct keeps a pod that could use reserved room on the node that holds it, if
// the policy puts that above everything else. elsewhere says that this node is
// not among those offered.
func (e *Extender) direct(pod *podinfo.Info, placement *ledger.Placement, names []string, verdicts []ledger.Verdict) (elsewhere bool) {
	usable := e.o.Ledger.UsableHolds(placement)
	if len(usable) == 0 || e.o.Policy.Scoring().ReservationMatch < extenderv1.MaxExtenderPriority {
		return false
	}
	node, elsewhere := e.o.Steering.Direct(pod, usable, names)
	if i := slices.Index(names, node); !elsewhere && (i < 0 || verdicts[i].Reason != ledger.Fits) {
		return false
	}
	for i, name := range names {
		if verdicts[i].Reason == ledger.Fits && name != node {
			verdicts[i] = ledger.Verdict{Reason: ledger.ClaimedElsewhere}
		}
	}
	return elsewhere
}

// home returns the node that has room for the pod already: that of its claim,
// else of the hold it is meant to use.
func (e *Extender) home(pod *podinfo.Info, names []string) (node string, ok bool) {
	if claim, claimed := e.o.Ledger.Claim(pod.Ref); claimed {
		return claim.Node, true
	}
	placement := e.placement(pod)
	usable := e.o.Ledger.UsableHolds(&placement)
	if len(usable) == 0 {
		return "", false
	}
	return e.o.Steering.Plan(pod, usable, names)
}

// unreserved stands in where there are no reservations.
type unreserved struct{}

func (unreserved) Candidates(*podinfo.Info) []ledger.HoldRef { return nil }

func (unreserved) Direct(*podinfo.Info, []ledger.UsableHold, []string) (string, bool) {
	return "", false
}

func (unreserved) Plan(*podinfo.Info, []ledger.UsableHold, []string) (string, bool) {
	return "", false
}
func (unreserved) Looked(types.UID) int { return 0 }
func (unreserved) Allow(types.UID)      {}
func (unreserved) Withdraw(types.UID)   {}

// noDevices stands for the claims of a cluster that has none.
type noDevices struct{}

func (noDevices) Devices(*podinfo.Info) *ledger.DeviceRequest {
	return &ledger.DeviceRequest{Err: "this server does not know of devices"}
}
