package extender

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics/tracing"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// filter says on which nodes the ledger has capacity for the pod.
func (e *Extender) filter(w http.ResponseWriter, r *http.Request) error {
	var a args
	query, nodes, release, err := e.readArgs(w, r, &a)
	defer release()
	if err != nil {
		return err
	}
	if e.o.Observer != nil {
		everywhere := filterResult{candidates: nodes, verdicts: make([]ledger.Verdict, len(nodes.names))}
		answer := httpjson.EncodeAppended(everywhere.appendJSON)
		release()
		return e.o.Intake.Send(w, r, answer)
	}
	ctx, span := tracing.Pod(r.Context(), verbFilter, query.Ref)
	defer span.End()
	s := e.scratch.Get().(*decide.Scratch)
	defer e.scratch.Put(s)
	advice, err := e.o.Arbiter.Filter(ctx, query, nodes.names, s)
	switch {
	case err == nil:
	case errors.As(err, new(*gates.Error)):
		e.o.Metrics.ObserveDecision(verbFilter, "", resultFailed) // its status is 200, so no other metric shows it
		answer := reserver.BindAnswer{Error: err.Error(), Outcome: outcomeOf(err)}
		return e.o.Intake.Send(w, r, httpjson.Encode(http.StatusOK, &answer))
	default:
		return asRefused(err)
	}
	result := filterResult{candidates: nodes, verdicts: advice.Verdicts, everywhere: refusedText(advice.Refused)}
	answer := httpjson.EncodeAppended(result.appendJSON)
	if limit := advice.Limit; limit != ledger.Fits {
		answer = httpjson.Encode(http.StatusOK,
			&reserver.BindAnswer{Error: placement.Refusals[limit].Text, Outcome: string(gates.Refused)})
	}
	release()
	if err := e.o.Intake.Send(w, r, answer); err != nil {
		return err
	}
	fit := e.o.Arbiter.Filtered(ctx, advice, nodes.names)
	e.report(ctx, advice, fit, len(nodes.names))
	return nil
}

// readArgs decodes the arguments of filter and prioritize. release ends what they take. query is nil on a server that
// only observes.
func (e *Extender) readArgs(w http.ResponseWriter, r *http.Request,
	a *args,
) (query *decide.PodQuery, nodes *candidates, release func(), err error) {
	if release, err = e.o.Intake.Decode(w, r, maxBody, a); err != nil {
		return nil, nil, release, err
	}
	if nodes, err = a.candidates(); err == nil && e.o.Observer == nil {
		query, err = e.query(a.Pod)
	}
	return query, nodes, release, err
}

// gateRefusal is filter's text for every node where a pod may not be given any
// capacity; bind says the same, with the reason.
const gateRefusal = "GlobalReserve: the pod may not be given capacity"

// refusedText is filter's text for every node where a pod is refused everywhere.
func refusedText(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.As(err, new(*decide.UncountableError)):
		return placement.Uncountable
	default:
		return gateRefusal
	}
}

// report counts, traces and logs a filter decision after the answer.
func (e *Extender) report(ctx context.Context, advice *decide.Advice, fit, offered int) {
	outcome := resultGranted
	if fit == 0 {
		outcome = resultRefused
	}
	e.o.Metrics.ObserveDecision(verbFilter, advice.Pod.Scheduler, outcome)
	tracing.Filtered(ctx, outcome, offered, fit)
	log, ok := e.debug(advice.Pod)
	if !ok || advice.Refused != nil { // the arbiter has logged that
		return
	}
	reasons := map[string]int{}
	for _, count := range requeue.CountReasons(advice.Verdicts) {
		reasons[count.Reason.String()] = count.Nodes
	}
	log.WithFields(logrus.Fields{
		"nodes": offered, "fit": fit, "refused": reasons, "result": outcome, "revision": advice.Revision,
	}).Debug("filter")
}

// filterResult is extenderv1.ExtenderFilterResult, written without making the maps first.
type filterResult struct {
	*candidates

	verdicts []ledger.Verdict
	// everywhere is why all nodes are refused; there are no verdicts then.
	everywhere string
}

func (f *filterResult) appendJSON(b []byte) []byte {
	if f.items == nil {
		b = append(b, `{"Nodes":null,"NodeNames":[`...)
	} else {
		b = append(b, `{"Nodes":{"metadata":{},"items":[`...)
	}
	for i, v := range f.verdicts {
		switch {
		case v.Reason != ledger.Fits:
		case f.items == nil:
			b = f.appendName(appendComma(b), i)
		default:
			b = append(appendComma(b), f.items[i]...)
		}
	}
	if f.items == nil {
		b = append(b, `],"FailedNodes":{`...)
	} else {
		b = append(b, `]},"NodeNames":null,"FailedNodes":{`...)
	}
	b = f.appendRefused(b, false)
	b = append(b, `},"FailedAndUnresolvableNodes":{`...)
	b = f.appendRefused(b, true)
	return append(b, `},"Error":""}`...)
}

func (f *filterResult) appendRefused(b []byte, unresolvable bool) []byte {
	if f.everywhere != "" && unresolvable {
		for i := range f.names {
			b = append(f.appendName(appendComma(b), i), `:"`+f.everywhere+`"`...)
		}
	}
	for i, v := range f.verdicts {
		if r := &placement.Refusals[v.Reason]; v.Reason != ledger.Fits && r.Unresolvable == unresolvable {
			b = append(append(append(f.appendName(appendComma(b), i), `:"`...), r.Text...), '"')
		}
	}
	return b
}

// appendName appends a node's name.
func (c *candidates) appendName(b []byte, i int) []byte {
	if c.plain {
		return append(append(append(b, '"'), c.names[i]...), '"')
	}
	b, _ = jsontext.AppendQuote(b, c.names[i]) // names came as JSON: they are valid UTF-8
	return b
}

// appendComma ends what is before the next element, if anything is.
func appendComma(b []byte) []byte {
	if last := b[len(b)-1]; last == '[' || last == '{' {
		return b
	}
	return append(b, ',')
}
