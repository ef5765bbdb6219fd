package extender

import (
	"net/http"
	"strconv"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/metrics/tracing"
)

// prioritize scores the nodes by how much of them is used, and prefers the node
// that has the pod's own reservation, or a slot the pod may use.
func (e *Extender) prioritize(w http.ResponseWriter, r *http.Request) error {
	var a args
	query, nodes, release, err := e.readArgs(w, r, &a)
	defer release()
	if err != nil {
		return err
	}
	if e.o.Observer != nil {
		alike := make([]int64, len(nodes.names))
		answer := httpjson.EncodeAppended(func(b []byte) []byte { return nodes.appendPriorities(b, alike) })
		release()
		return e.o.Intake.Send(w, r, answer)
	}
	ctx, span := tracing.Pod(r.Context(), verbPrioritize, query.Ref)
	defer span.End()
	pod, scores, err := e.o.Arbiter.Prioritize(ctx, query, nodes.names)
	if err != nil {
		return asRefused(err)
	}
	answer := httpjson.EncodeAppended(func(b []byte) []byte { return nodes.appendPriorities(b, scores) })
	release()
	if err := e.o.Intake.Send(w, r, answer); err != nil {
		return err
	}
	e.o.Metrics.ObserveDecision(verbPrioritize, pod.Scheduler, resultScored)
	if log, ok := e.debug(pod); ok {
		log.WithField("nodes", len(nodes.names)).Debug(verbPrioritize)
	}
	return nil
}

// appendPriorities appends an extenderv1.HostPriorityList.
func (c *candidates) appendPriorities(b []byte, scores []int64) []byte {
	b = append(b, '[')
	for i, score := range scores {
		b = append(appendComma(b), `{"Host":`...)
		b = append(c.appendName(b, i), `,"Score":`...)
		b = append(strconv.AppendInt(b, score, 10), '}')
	}
	return append(b, ']')
}
