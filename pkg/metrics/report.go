package metrics

import (
	"strconv"
	"time"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// ObserveRequest counts one answered HTTP request and the time it took. verb is a fixed name of
// the route ("filter", "reserve", ...), never a path sent by a client.
func (m *Metrics) ObserveRequest(verb string, code int, took time.Duration) {
	m.requests.WithLabelValues(verb, strconv.Itoa(code)).Inc()
	m.durations.WithLabelValues(verb).Observe(took.Seconds())
}

// ObserveDecision counts one decision on a pod or a gang. verb and result are fixed words of the
// caller's ("bind", "granted"); scheduler may be anything a client sent.
func (m *Metrics) ObserveDecision(verb, scheduler, result string) {
	m.decisions.WithLabelValues(verb, m.schedulers.value(scheduler), result).Inc()
}

// ObserveConflict counts one request that was refused because a resource was short. Both names may be anything a
// client sent.
func (m *Metrics) ObserveConflict(scheduler, resource string) {
	m.conflicts.WithLabelValues(m.schedulers.value(scheduler), m.resources.value(resource)).Inc()
}

// ObserveRejection counts a refusal of the ledger's, by what was short or which limit was reached.
func (m *Metrics) ObserveRejection(scheduler string, r *ledger.Rejection) {
	if r.Reason.OfLimit() {
		m.ObserveLimit(scheduler, r.Reason.String())
	} else if name, short := r.Shortage(); short {
		m.ObserveConflict(scheduler, name)
	}
}

// ObserveLimit counts one refusal because of a limit. reason is the name of the ledger's reason; scheduler may be
// anything a client sent.
func (m *Metrics) ObserveLimit(scheduler, reason string) {
	m.limits.WithLabelValues(m.schedulers.value(scheduler), reason).Inc()
}

// ObserveRepeat counts one Binding that was refused once more. reason is one of the fixed words for refusals; scheduler
// may be anything a client sent.
func (m *Metrics) ObserveRepeat(scheduler, reason string) {
	m.repeats.WithLabelValues(m.schedulers.value(scheduler), reason).Inc()
}

// ObserveBypassedBind counts one pod that scheduler bound without asking first.
func (m *Metrics) ObserveBypassedBind(scheduler string) {
	m.bypassedBinds.WithLabelValues(m.schedulers.value(scheduler)).Inc()
}

// ObserveObservedConflict counts one pod that got a node although what it asks for was taken. resource is what was
// short.
func (m *Metrics) ObserveObservedConflict(scheduler, resource string) {
	m.observed.WithLabelValues(m.schedulers.value(scheduler), m.resources.value(resource)).Inc()
}

// ObserveBindOutcome counts one Binding sent to the API server. outcome is a fixed word of the
// caller's, such as "bound", "failed" or "unknown".
func (m *Metrics) ObserveBindOutcome(outcome string) {
	m.bindOutcomes.WithLabelValues(outcome).Inc()
}

// ObserveAutoscalingWrite counts a write for cluster autoscalers, of a Node or a ProvisioningRequest.
func (m *Metrics) ObserveAutoscalingWrite(kind string, failed bool) {
	m.autoscaling.WithLabelValues(kind, outcome(failed, "written")).Inc()
}

// ObserveRedirect counts one Binding that went to the node where capacity was kept for its pod. scheduler may be
// anything a client sent.
func (m *Metrics) ObserveRedirect(scheduler string) {
	m.redirects.WithLabelValues(m.schedulers.value(scheduler)).Inc()
}

// ObserveGangBinding counts a pod of a gang that the server bound on its own account, or could not bind.
func (m *Metrics) ObserveGangBinding(failed bool) {
	m.gangBindings.WithLabelValues(outcome(failed, "bound")).Inc()
}

// outcome is the result of something: "failed", or how it is called where it succeeds.
func outcome(failed bool, success string) string {
	if failed {
		return "failed"
	}
	return success
}

// ObserveWakeup counts one pending pod that was woken up.
func (m *Metrics) ObserveWakeup() { m.wakeups.Inc() }

// ObserveVainWakeup counts one pod that was refused all nodes again after it was woken up.
func (m *Metrics) ObserveVainWakeup() { m.vainWakeups.Inc() }

// SetDrift records how many differences of one kind the last comparison found. Report 0 too, or
// the last difference is shown for ever. kind is a fixed word of the caller's.
func (m *Metrics) SetDrift(kind string, differences int) {
	m.drift.WithLabelValues(kind).Set(float64(differences))
	m.driftFound.WithLabelValues(kind).Add(float64(differences))
}

// PolicyLoaded records that the policy in force was loaded at the given time.
func (m *Metrics) PolicyLoaded(at time.Time) {
	m.reloadedAt.Set(float64(at.UnixMilli()) / 1e3)
}

// PolicyReloadFailed counts one reload that left the policy before in force.
func (m *Metrics) PolicyReloadFailed() { m.reloadFailed.Inc() }

// KeepSchedulers gives these schedulers series of their own however many other names were seen before. It is meant for
// the names an administrator configured; they do not count against the bound.
func (m *Metrics) KeepSchedulers(names ...string) {
	for _, name := range names {
		m.schedulers.keep(name)
		m.bypassedBinds.WithLabelValues(m.schedulers.value(name))
	}
}

// ObserveGangRefusal counts one pod that was refused for the sake of its gang. reason is the name of the ledger's
// reason.
func (m *Metrics) ObserveGangRefusal(reason string) { m.gangRefusals.WithLabelValues(reason).Inc() }
