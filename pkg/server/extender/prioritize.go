package extender

import (
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
)

// prioritize scores the nodes by how much of them is used, and prefers the node
// that has the pod's own reservation, or a slot the pod may use.
func (e *Extender) prioritize(w http.ResponseWriter, r *http.Request) error {
	a := e.newArgs()
	if err := httpjson.Decode(w, r, e.o.MaxBody, a); err != nil {
		return err
	}
	names, _, err := a.nodes()
	if err != nil {
		return err
	}
	query, err := e.query(a.Pod)
	if err != nil {
		return err
	}
	pod, scores, err := e.o.Arbiter.Prioritize(r.Context(), query, names)
	if err != nil {
		return asBadRequest(err)
	}
	httpjson.Write(w, http.StatusOK, &priorities{names: names, scores: scores})
	e.o.Metrics.ObserveDecision(verbPrioritize, pod.Scheduler, resultScored)
	if log, ok := e.debug(pod); ok {
		log.WithField("nodes", len(names)).Debug(verbPrioritize)
	}
	return nil
}

// priorities is extenderv1.HostPriorityList.
type priorities struct {
	names  []string
	scores []int64
}

// MarshalJSONTo implements json.MarshalerTo.
func (p *priorities) MarshalJSONTo(enc *jsontext.Encoder) error {
	w := tokens{enc: enc}
	w.token(jsontext.BeginArray)
	for i, name := range p.names {
		w.token(jsontext.BeginObject)
		w.text("Host")
		w.text(name)
		w.text("Score")
		w.token(jsontext.Int(p.scores[i]))
		w.token(jsontext.EndObject)
	}
	w.token(jsontext.EndArray)
	return w.err
}
