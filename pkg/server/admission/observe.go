package admission

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/sirupsen/logrus"
	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
)

// ObserveOptions are what an Observing works with. All fields are required.
type ObserveOptions struct {
	// Asked is told who binds a pod to which node.
	Asked   func(caller string, pod ledger.PodRef, node string)
	Intake  *httpjson.Intake
	Metrics *metrics.Metrics
	Log     logrus.FieldLogger
}

// Observing is the webhooks of a server that only observes: they allow everything as it is.
type Observing struct{ o ObserveOptions }

// NewObserving returns an Observing.
func NewObserving(o ObserveOptions) *Observing { return &Observing{o} }

// Register adds the webhooks to a router.
func (a *Observing) Register(router *httprouter.Router) {
	serving := &Admission{Options{Intake: a.o.Intake, Metrics: a.o.Metrics, Log: a.o.Log}}
	hook := webhook{"a request", a.allow, func(*verdict, *admissionv1.AdmissionRequest, time.Duration) {}}
	for path, name := range map[string]string{Path: verb, PodsPath: verb, ResourceClaimsPath: claimsVerb} {
		router.Handler(http.MethodPost, path, httpjson.Handle(name, a.o.Metrics.ObserveRequest, serving.serve(hook)))
	}
}

// allow allows a request, and notes who binds a pod by it.
func (a *Observing) allow(_ context.Context, request *admissionv1.AdmissionRequest) (*verdict, error) {
	v := newVerdict(request)
	v.skipped = true
	var binding v1.Binding
	if request.Kind.Kind == "Binding" && !v.dryRun && json.Unmarshal(request.Object.Raw, &binding) == nil {
		a.o.Asked(request.UserInfo.Username, v.ref, binding.Target.Name)
	}
	return v, nil
}
