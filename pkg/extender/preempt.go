package extender

import (
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
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

// preempt keeps the nodes on which the ledger has room for the pod once the
// victims are gone.
func (e *Extender) preempt(w http.ResponseWriter, r *http.Request) error {
	a := e.newPreemptArgs()
	if err := httpjson.Decode(w, r, e.o.MaxBody, a); err != nil {
		return err
	}
	pod, err := e.pod(a.Pod)
	if err != nil {
		return asBadRequest(err)
	}
	candidates := a.candidates()
	kept := e.keepFitting(pod, candidates)
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

// keepFitting returns the candidates on which the pod would fit without the
// victims. A node without victims is left out: there is nothing to preempt, and
// kube-scheduler takes one in the answer for an error of the whole call.
func (e *Extender) keepFitting(pod *podinfo.Info, candidates map[string]*extenderv1.MetaVictims) map[string]*extenderv1.MetaVictims {
	kept := make(map[string]*extenderv1.MetaVictims, len(candidates))
	for node, meta := range candidates {
		if meta == nil {
			continue
		}
		keep := &extenderv1.MetaVictims{NumPDBViolations: meta.NumPDBViolations}
		var uids []types.UID
		for _, p := range meta.Pods {
			if p != nil && p.UID != "" {
				keep.Pods = append(keep.Pods, p)
				uids = append(uids, types.UID(p.UID))
			}
		}
		placement := e.placement(pod)
		placement.Node = node
		if len(uids) > 0 && e.o.Ledger.FitWithout(&placement, uids).Reason == ledger.Fits {
			kept[node] = keep
		}
	}
	return kept
}
