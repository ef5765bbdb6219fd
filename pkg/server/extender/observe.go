package extender

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/julienschmidt/httprouter"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/identity"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
)

// ObserveOptions configures an Observing. A field is required unless its comment says otherwise.
type ObserveOptions struct {
	// Bind binds a pod to a node.
	Bind    func(ctx context.Context, pod ledger.PodRef, node string) error
	Metrics *metrics.Metrics
	Intake  *httpjson.Intake
	// MaxBody is as in Options.
	MaxBody int64
}

// Observing serves the verbs for a server that only observes: it refuses nothing, and binds what it is asked to.
type Observing struct{ o ObserveOptions }

// NewObserving returns an Observing.
func NewObserving(o ObserveOptions) *Observing {
	o.MaxBody = cmp.Or(o.MaxBody, 32<<20)
	return &Observing{o}
}

// Register adds the verbs to a router.
func (e *Observing) Register(router *httprouter.Router) {
	for verb, handle := range map[string]func(http.ResponseWriter, *http.Request) error{
		verbFilter: e.nodes(func(n *candidates, b []byte) []byte {
			return (&filterResult{candidates: n, verdicts: n.all()}).appendJSON(b)
		}),
		verbPrioritize: e.nodes(func(n *candidates, b []byte) []byte {
			return n.appendPriorities(b,
				make([]int64, len(n.names)))
		}),
		verbPreempt: e.preempt, verbBind: e.bind,
	} {
		router.Handler(http.MethodPost, "/"+verb, httpjson.Handle(verb, e.o.Metrics.ObserveRequest, handle))
	}
}

// all are the verdicts of an account that has capacity everywhere.
func (c *candidates) all() []ledger.Verdict { return make([]ledger.Verdict, len(c.names)) }

// nodes answers with what is made of the nodes offered.
func (e *Observing) nodes(answer func(n *candidates, b []byte) []byte) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		var a args
		release, err := e.o.Intake.Decode(w, r, e.o.MaxBody, &a)
		defer release()
		if err != nil {
			return err
		}
		nodes, err := a.candidates()
		if err != nil {
			return err
		}
		encoded := httpjson.EncodeAppended(func(b []byte) []byte { return answer(nodes, b) })
		release()
		return e.o.Intake.Send(w, r, encoded)
	}
}

// preempt leaves all victims as they are.
func (e *Observing) preempt(w http.ResponseWriter, r *http.Request) error {
	var a preemptArgs
	release, err := e.o.Intake.Decode(w, r, e.o.MaxBody, &a)
	defer release()
	if err != nil {
		return err
	}
	encoded := httpjson.Encode(http.StatusOK, &extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: a.candidates()})
	release()
	return e.o.Intake.Send(w, r, encoded)
}

// bind binds the pod.
func (e *Observing) bind(w http.ResponseWriter, r *http.Request) error {
	var a extenderv1.ExtenderBindingArgs
	release, err := e.o.Intake.Decode(w, r, maxBindBody, &a)
	release()
	if err != nil {
		return err
	}
	if err := checkBinding(&a); err != nil {
		return err
	}
	err = e.o.Bind(r.Context(), ledger.PodRef{Namespace: a.PodNamespace, Name: a.PodName, UID: a.PodUID}, a.Node)
	var denied *identity.DeniedError
	if errors.As(err, &denied) {
		return httpjson.Errorf(http.StatusForbidden, "%s", denied)
	}
	answer := bindAnswer{}
	if err != nil {
		answer.Error, answer.Outcome = err.Error(), outcomeOf(err)
	}
	e.o.Metrics.ObserveDecision(verbBind, "", cmp.Or(answer.Outcome, resultGranted))
	httpjson.Write(w, http.StatusOK, &answer)
	return nil
}
