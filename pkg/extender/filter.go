package extender

import (
	"errors"
	"net/http"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// scratch is memory that is used anew for every request.
type scratch struct {
	verdicts []ledger.Verdict
	second   []ledger.Verdict
	usage    []ledger.Usage
}

type scratchPool struct{ pool sync.Pool }

func (p *scratchPool) get() *scratch {
	if s, ok := p.pool.Get().(*scratch); ok {
		return s
	}
	return &scratch{}
}

func (p *scratchPool) put(s *scratch) { p.pool.Put(s) }

// filter says on which nodes the ledger has room for the pod.
func (e *Extender) filter(w http.ResponseWriter, r *http.Request) error {
	a := e.newArgs()
	if err := httpjson.Decode(w, r, e.o.MaxBody, a); err != nil {
		return err
	}
	names, items, err := a.nodes()
	if err != nil {
		return err
	}
	pod, err := e.pod(a.Pod)
	var u uncountable
	switch {
	case errors.As(err, &u):
		e.reportUncountable(u)
		httpjson.Write(w, http.StatusOK, &filterResult{names: names, items: items, uncountable: true})
		return nil
	case err != nil:
		return err
	}
	e.lag.await(r.Context(), e.o.Pods, pod)
	s := e.scratch.get()
	defer e.scratch.put(s)
	revision := e.o.Ledger.Revision()
	comesBack := e.decide(pod, names, s)
	result := filterResult{names: names, items: items, verdicts: s.verdicts}
	httpjson.Write(w, http.StatusOK, &result)
	if e.report(pod, &result, revision) && !comesBack {
		e.o.Refusals.Refused(pod, revision, names)
	}
	return nil
}

// reportUncountable logs why a pod is refused everywhere, once for each of the
// latest such pods.
func (e *Extender) reportUncountable(u uncountable) {
	if _, told := e.told.Get(u.pod.UID); told {
		return
	}
	e.told.Add(u.pod.UID, nil)
	e.o.Log.WithFields(logrus.Fields{"pod": u.pod.String(), "uid": u.pod.UID}).WithError(u.cause).
		Warn("a pod is refused on every node: its request cannot be counted")
}

// report tells of a filter decision after it was answered. It returns whether the
// ledger may take back a refusal by itself.
func (e *Extender) report(pod *podinfo.Info, result *filterResult, revision uint64) (wakes bool) {
	fit := 0
	for _, v := range result.verdicts {
		if v.Reason == ledger.Fits {
			fit++
		} else if refusals[v.Reason].wakes {
			wakes = true
		}
	}
	outcome := resultGranted
	if fit == 0 {
		outcome = resultRefused
		e.o.OnRefused(pod, result.names)
	}
	e.o.Metrics.ObserveDecision(verbFilter, pod.Scheduler, outcome)
	if log, ok := e.debug(pod); ok {
		reasons := map[string]int{}
		for _, v := range result.verdicts {
			if v.Reason != ledger.Fits {
				reasons[v.Reason.String()]++
			}
		}
		log.WithFields(logrus.Fields{
			"nodes": len(result.verdicts), "fit": fit, "refused": reasons, "result": outcome, "revision": revision,
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
