package extender

import (
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// filter says on which nodes the ledger has capacity for the pod.
func (e *Extender) filter(w http.ResponseWriter, r *http.Request) error {
	a := e.newArgs()
	if err := httpjson.Decode(w, r, e.o.MaxBody, a); err != nil {
		return err
	}
	names, items, err := a.nodes()
	if err != nil {
		return err
	}
	query, err := e.query(a.Pod)
	if err != nil {
		return err
	}
	s := e.scratch.Get().(*arbiter.Scratch)
	defer e.scratch.Put(s)
	advice, err := e.o.Arbiter.Filter(r.Context(), query, names, s)
	if err != nil {
		return err
	}
	result := filterResult{names: names, items: items, verdicts: advice.Verdicts, uncountable: advice.Uncountable != nil}
	httpjson.Write(w, http.StatusOK, &result)
	if result.uncountable {
		e.reportUncountable(query.Ref, advice.Uncountable)
		return nil
	}
	mayWake := e.report(advice, names)
	switch {
	case !advice.Known:
	case advice.TryAgain:
		e.o.Wakeups.Wake(advice.Pod)
	case mayWake && !advice.ComesBack:
		e.o.Wakeups.Refused(advice.Pod, advice.Revision, names)
	}
	return nil
}

// reportUncountable logs why a pod is refused everywhere, once for each of the
// latest such pods.
func (e *Extender) reportUncountable(pod ledger.PodRef, why error) {
	if _, told := e.told.Get(pod.UID); told {
		return
	}
	e.told.Add(pod.UID, nil)
	e.o.Log.WithFields(logrus.Fields{"pod": pod.String(), "uid": pod.UID}).WithError(why).
		Warn("a pod is refused on every node: its request cannot be counted")
}

// report tells of a filter decision after it was answered. It returns whether the
// ledger may take back a refusal by itself.
func (e *Extender) report(advice *arbiter.Advice, offered []string) (wakes bool) {
	fit := 0
	for _, v := range advice.Verdicts {
		if v.Reason == ledger.Fits {
			fit++
		} else if refusals[v.Reason].wakes {
			wakes = true
		}
	}
	outcome := resultGranted
	if fit == 0 {
		outcome = resultRefused
		if advice.Known {
			e.o.OnRefused(advice.Pod, offered)
		}
	}
	e.o.Metrics.ObserveDecision(verbFilter, advice.Pod.Scheduler, outcome)
	if log, ok := e.debug(advice.Pod); ok {
		reasons := map[string]int{}
		for _, v := range advice.Verdicts {
			if v.Reason != ledger.Fits {
				reasons[v.Reason.String()]++
			}
		}
		log.WithFields(logrus.Fields{
			"nodes": len(advice.Verdicts), "fit": fit, "refused": reasons, "result": outcome, "revision": advice.Revision,
		}).Debug("filter")
	}
	return wakes
}

// filterResult is extenderv1.ExtenderFilterResult, written without making the
// maps first.
type filterResult struct {
	names    []string
	items    []jsontext.Value // nil where the request had names only
	verdicts []ledger.Verdict
	// uncountable refuses all nodes; there are no verdicts then.
	uncountable bool
}

// MarshalJSONTo implements json.MarshalerTo.
func (f *filterResult) MarshalJSONTo(enc *jsontext.Encoder) error {
	w := tokens{enc: enc}
	w.token(jsontext.BeginObject)
	w.text("Nodes")
	f.writeNodes(&w)
	w.text("NodeNames")
	f.writeNames(&w)
	w.text("FailedNodes")
	f.writeRefused(&w, false)
	w.text("FailedAndUnresolvableNodes")
	f.writeRefused(&w, true)
	w.text("Error")
	w.text("")
	w.token(jsontext.EndObject)
	return w.err
}

func (f *filterResult) writeNodes(w *tokens) {
	if f.items == nil {
		w.token(jsontext.Null)
		return
	}
	w.token(jsontext.BeginObject)
	w.text("metadata")
	w.token(jsontext.BeginObject)
	w.token(jsontext.EndObject)
	w.text("items")
	w.token(jsontext.BeginArray)
	for i, v := range f.verdicts {
		if v.Reason == ledger.Fits {
			w.value(f.items[i])
		}
	}
	w.token(jsontext.EndArray)
	w.token(jsontext.EndObject)
}

func (f *filterResult) writeNames(w *tokens) {
	if f.items != nil {
		w.token(jsontext.Null)
		return
	}
	w.token(jsontext.BeginArray)
	for i, v := range f.verdicts {
		if v.Reason == ledger.Fits {
			w.text(f.names[i])
		}
	}
	w.token(jsontext.EndArray)
}

func (f *filterResult) writeRefused(w *tokens, unresolvable bool) {
	w.token(jsontext.BeginObject)
	if f.uncountable && unresolvable {
		for _, name := range f.names {
			w.text(name)
			w.text(uncountableRefusal)
		}
	}
	for i, v := range f.verdicts {
		if v.Reason == ledger.Fits {
			continue
		}
		if r := refusals[v.Reason]; r.unresolvable == unresolvable {
			w.text(f.names[i])
			w.text(r.text)
		}
	}
	w.token(jsontext.EndObject)
}

// tokens writes JSON and keeps the first error.
type tokens struct {
	enc *jsontext.Encoder
	err error
}

func (t *tokens) token(token jsontext.Token) {
	if t.err == nil {
		t.err = t.enc.WriteToken(token)
	}
}

func (t *tokens) text(s string) { t.token(jsontext.String(s)) }

func (t *tokens) value(v jsontext.Value) {
	if t.err == nil {
		t.err = t.enc.WriteValue(v)
	}
}
