package extender

import (
	"math/bits"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// prioritize scores the nodes by how much of them is used, and prefers the node
// that holds the pod's own reservation, or room the pod may use.
func (e *Extender) prioritize(w http.ResponseWriter, r *http.Request) error {
	a := e.newArgs()
	if err := httpjson.Decode(w, r, e.o.MaxBody, a); err != nil {
		return err
	}
	names, _, err := a.nodes()
	if err != nil {
		return err
	}
	pod, err := e.pod(a.Pod)
	if err != nil {
		return asBadRequest(err)
	}
	s := e.scratch.get()
	defer e.scratch.put(s)
	result := priorities{names: names, scores: e.score(pod, names, s)}
	httpjson.Write(w, http.StatusOK, &result)
	e.o.Metrics.ObserveDecision(verbPrioritize, pod.Scheduler, resultScored)
	if log, ok := e.debug(pod); ok {
		log.WithField("nodes", len(names)).Debug(verbPrioritize)
	}
	return nil
}

// score returns the score of every node.
func (e *Extender) score(pod *podinfo.Info, names []string, s *scratch) []int64 {
	scoring := e.o.Policy.Scoring()
	factors, columns := factors(&scoring, e.o.Ledger.Table(), pod.Request)
	s.usage = e.o.Ledger.AppendUsage(s.usage[:0], names, columns)
	home, preferred := e.home(pod, names)
	match := min(max(scoring.ReservationMatch, extenderv1.MinExtenderPriority), extenderv1.MaxExtenderPriority)
	scores := make([]int64, len(names))
	for i, name := range names {
		usage := s.usage[i*len(columns) : (i+1)*len(columns)]
		own := preferred && home == name
		scores[i] = nodeScore(factors, usage, scoring.LeastAllocated, own)
		if preferred {
			scores[i] = prefer(scores[i], match, own)
		}
	}
	return scores
}

// factor is one resource that counts in a score.
type factor struct {
	weight  int64
	request int64
}

// factors returns the resources that count for a pod and their columns. As in
// NodeResourcesFit, an extended or another scalar resource only counts for pods
// that ask for it.
func factors(scoring *Scoring, table *resources.Table, req *resources.Request) ([]factor, []resources.Column) {
	list := make([]factor, 0, len(scoring.Resources))
	columns := make([]resources.Column, 0, len(scoring.Resources))
	for _, r := range scoring.Resources {
		column, ok := table.Lookup(r.Name)
		if !ok {
			continue // no node offers it
		}
		f := factor{weight: r.Weight, request: req.Value(column)}
		if f.request > 0 || column <= resources.EphemeralStorage {
			list = append(list, f)
			columns = append(columns, column)
		}
	}
	return list, columns
}

// maxNodeScore is the scale scores are computed in before they are rounded to
// the extender's: that of kube-scheduler's plugins (framework.MaxNodeScore).
const maxNodeScore = 100

// nodeScore is what NodeResourcesFit would give the node under the strategies
// MostAllocated and LeastAllocated (kubernetes
// pkg/scheduler/framework/plugins/noderesources), rounded to 0..10. There is one
// difference: a container without requests counts nothing, where the plugin
// assumes 100m of CPU and 200 MB of memory. own says that what the pod asks for
// is in the node's use already.
func nodeScore(factors []factor, usage []ledger.Usage, leastAllocated, own bool) int64 {
	var sum, weights int64
	for i, f := range factors {
		u := usage[i]
		if u.Allocatable <= 0 {
			continue
		}
		requested := u.Used
		if !own {
			requested, _ = resources.Add(requested, f.request)
		}
		requested = min(max(requested, 0), u.Allocatable)
		if leastAllocated {
			requested = u.Allocatable - requested
		}
		sum += f.weight * scaled(requested, u.Allocatable)
		weights += f.weight
	}
	if weights <= 0 {
		return 0
	}
	const step = maxNodeScore / extenderv1.MaxExtenderPriority
	return (sum/weights + step/2) / step
}

// scaled returns part*maxNodeScore/whole for 0 <= part <= whole, without
// overflow.
func scaled(part, whole int64) int64 {
	high, low := bits.Mul64(uint64(part), maxNodeScore)
	quotient, _ := bits.Div64(high, low, uint64(whole))
	return int64(quotient)
}

// prefer makes room in the scale for the pod's home: all scores shrink to what
// match leaves of it, and the home gets match on top.
func prefer(score, match int64, own bool) int64 {
	score = score * (extenderv1.MaxExtenderPriority - match) / extenderv1.MaxExtenderPriority
	if own {
		score += match
	}
	return score
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
