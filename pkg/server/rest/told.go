package rest

import (
	"net/http"

	"github.com/go-json-experiment/json"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// refusedRequest is a reserver.RefusedRequest.
type refusedRequest struct {
	Pods few[reserver.PodName]
}

// tellRefused serves POST /v1/refused: a scheduler plugin elsewhere names pods that it has left no node.
func (a *API) tellRefused(w http.ResponseWriter, r *http.Request) error {
	var req refusedRequest
	release, err := a.intake.Decode(w, r, a.limits.MaxBody, &req, json.RejectUnknownMembers(true))
	defer release() // what is kept of it is bounded by the number of pods
	if err != nil {
		return err
	}
	if len(req.Pods) == 0 {
		return badRequest("Pods is empty: name the pods that were refused")
	}
	pods := make([]ledger.PodRef, len(req.Pods))
	for i, p := range req.Pods {
		if p.Namespace == "" || p.Pod == "" || p.UID == "" {
			return badRequest("Pods[%d] lacks its Namespace, Pod (the name) or UID: send all three of each pod", i)
		}
		pods[i] = ledger.PodRef{Namespace: p.Namespace, Name: p.Pod, UID: types.UID(p.UID)}
	}
	// Not in turn, as it waits for the API server, and others must not; how much of it there is in a second is bounded.
	told, err := a.arbiter.TellRefused(r.Context(), pods)
	if err != nil {
		return httpjson.Errorf(statusOf(err), "%s", err)
	}
	answer := reserver.ToldAnswer{Remembered: told.Remembered, Ignored: told.Ignored, Dropped: told.Dropped}
	httpjson.Write(w, http.StatusOK, &answer)
	return nil
}
