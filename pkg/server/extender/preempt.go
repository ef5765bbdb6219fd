package extender

import (
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
)

// preemptArgs is extenderv1.ExtenderPreemptionArgs, decoded no further than
// needed.
type preemptArgs struct {
	Pod                   jsontext.Value
	NodeNameToVictims     byNode[*victims]
	NodeNameToMetaVictims byNode[*extenderv1.MetaVictims]
}

// victims is extenderv1.Victims with no more of the pods than their UIDs.
type victims struct {
	Pods []*struct {
		Metadata struct{ UID string }
	}
	NumPDBViolations int64
}

// candidates returns the victims by node. Of both forms the one for schedulers
// that send names wins, as kube-scheduler only ever sends one.
func (a *preemptArgs) candidates() map[string]*extenderv1.MetaVictims {
	if a.NodeNameToMetaVictims.nodes != nil {
		return a.NodeNameToMetaVictims.nodes
	}
	metas := make(map[string]*extenderv1.MetaVictims, len(a.NodeNameToVictims.nodes))
	for node, v := range a.NodeNameToVictims.nodes {
		if v == nil {
			continue
		}
		meta := &extenderv1.MetaVictims{NumPDBViolations: v.NumPDBViolations}
		for _, p := range v.Pods {
			if p != nil {
				meta.Pods = append(meta.Pods, &extenderv1.MetaPod{UID: p.Metadata.UID})
			}
		}
		metas[node] = meta
	}
	return metas
}

// preempt keeps the nodes on which the ledger has capacity for the pod once the
// victims are gone.
func (e *Extender) preempt(w http.ResponseWriter, r *http.Request) error {
	a := e.newPreemptArgs()
	if err := httpjson.Decode(w, r, e.o.MaxBody, a); err != nil {
		return err
	}
	query, err := e.query(a.Pod)
	if err != nil {
		return err
	}
	candidates := withVictims(a.candidates())
	pod, fits, err := e.o.Arbiter.Preempt(r.Context(), query, uidsOf(candidates))
	if err != nil {
		return asBadRequest(err)
	}
	kept := make(map[string]*extenderv1.MetaVictims, len(candidates))
	for node, victims := range candidates {
		if fits[node] {
			kept[node] = victims
		}
	}
	httpjson.Write(w, http.StatusOK, &extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: kept})
	outcome := resultGranted
	if len(kept) == 0 {
		outcome = resultRefused
	}
	e.o.Metrics.ObserveDecision(verbPreempt, pod.Scheduler, outcome)
	if log, ok := e.debug(pod); ok {
		log.WithFields(logrus.Fields{"nodes": len(candidates), "kept": len(kept), "result": outcome}).Debug(verbPreempt)
	}
	return nil
}

// withVictims leaves out nodes without a victim: there is nothing to preempt, and
// kube-scheduler takes one in the answer for an error of the whole call.
func withVictims(candidates map[string]*extenderv1.MetaVictims) map[string]*extenderv1.MetaVictims {
	named := make(map[string]*extenderv1.MetaVictims, len(candidates))
	for node, meta := range candidates {
		if meta == nil {
			continue
		}
		pods := slices.DeleteFunc(slices.Clone(meta.Pods), func(p *extenderv1.MetaPod) bool { return p == nil || p.UID == "" })
		if len(pods) > 0 {
			named[node] = &extenderv1.MetaVictims{Pods: pods, NumPDBViolations: meta.NumPDBViolations}
		}
	}
	return named
}

func uidsOf(candidates map[string]*extenderv1.MetaVictims) map[string][]types.UID {
	uids := make(map[string][]types.UID, len(candidates))
	for node, victims := range candidates {
		for _, p := range victims.Pods {
			uids[node] = append(uids[node], types.UID(p.UID))
		}
	}
	return uids
}
