package extender

import (
	"cmp"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/metrics/tracing"
)

// preemptArgs is extenderv1.ExtenderPreemptionArgs, decoded no further than needed.
type preemptArgs struct {
	Pod                   jsontext.Value
	NodeNameToVictims     byNode[*victims]
	NodeNameToMetaVictims byNode[*victims]
}

// victims is extenderv1.Victims with no more of the pods than their UIDs, or extenderv1.MetaVictims.
type victims struct {
	Pods []*struct {
		UID      string
		Metadata struct{ UID string }
	}
	NumPDBViolations int64
}

// byNode is a JSON object with a member for each node.
type byNode[V any] map[string]V

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (b *byNode[V]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	nodes := byNode[V]{}
	present, err := httpjson.Each(dec, '{', maxNodes, func() error {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		node := name.String()
		var v V
		err = json.UnmarshalDecode(dec, &v)
		nodes[node] = v
		return err
	})
	if *b = nodes; !present {
		*b = nil
	}
	return err
}

// candidates returns the victims by node. From Kubernetes 1.38 on kube-scheduler also sends nodes
// without victims (kubernetes pull request 135486), and these are answered like the others. A node
// whose victims are all unreadable is left out: in the answer it would have fewer victims than were
// sent, which kube-scheduler takes for an error of the whole call. Where a request has both forms,
// the one for schedulers that send names counts; kube-scheduler only ever sends one form.
func (a *preemptArgs) candidates() map[string]*extenderv1.MetaVictims {
	given := a.NodeNameToMetaVictims
	if given == nil {
		given = a.NodeNameToVictims
	}
	metas := make(map[string]*extenderv1.MetaVictims, len(given))
	for node, v := range given {
		if v == nil {
			continue
		}
		meta := &extenderv1.MetaVictims{NumPDBViolations: v.NumPDBViolations}
		for _, p := range v.Pods {
			if p != nil && p.UID+p.Metadata.UID != "" {
				meta.Pods = append(meta.Pods, &extenderv1.MetaPod{UID: cmp.Or(p.UID, p.Metadata.UID)})
			}
		}
		if len(meta.Pods) > 0 || len(v.Pods) == 0 {
			metas[node] = meta
		}
	}
	return metas
}

// preempt keeps the nodes on which the ledger has capacity for the pod once the victims are gone.
func (e *Extender) preempt(w http.ResponseWriter, r *http.Request) error {
	var a preemptArgs
	release, err := e.o.Intake.Decode(w, r, maxBody, &a)
	defer release()
	if err != nil {
		return err
	}
	candidates := a.candidates()
	if e.o.Observer != nil {
		answer := httpjson.Encode(http.StatusOK, &extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: candidates})
		release()
		return e.o.Intake.Send(w, r, answer)
	}
	query, err := e.query(a.Pod)
	if err != nil {
		return err
	}
	ctx, span := tracing.Pod(r.Context(), verbPreempt, query.Ref)
	defer span.End()
	pod, fits, err := e.o.Arbiter.Preempt(ctx, query, uidsOf(candidates))
	if err != nil {
		return asRefused(err)
	}
	kept := make(map[string]*extenderv1.MetaVictims, len(candidates))
	for node, victims := range candidates {
		if fits[node] {
			kept[node] = victims
		}
	}
	answer := httpjson.Encode(http.StatusOK, &extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: kept})
	release()
	if err := e.o.Intake.Send(w, r, answer); err != nil {
		return err
	}
	outcome := resultGranted
	if len(kept) == 0 {
		outcome = resultRefused
	}
	e.o.Metrics.ObserveDecision(verbPreempt, pod.Scheduler, outcome)
	tracing.Filtered(ctx, outcome, len(candidates), len(kept))
	if log, ok := e.debug(pod); ok {
		log.WithFields(logrus.Fields{"nodes": len(candidates), "kept": len(kept), "result": outcome}).Debug(verbPreempt)
	}
	return nil
}

func uidsOf(candidates map[string]*extenderv1.MetaVictims) map[string][]types.UID {
	uids := make(map[string][]types.UID, len(candidates))
	for node, victims := range candidates {
		uids[node] = make([]types.UID, 0, len(victims.Pods))
		for _, p := range victims.Pods {
			uids[node] = append(uids[node], types.UID(p.UID))
		}
	}
	return uids
}
