package admission

import (
	"net/http"

	"github.com/julienschmidt/httprouter"
	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/metrics"
)

// Path is where the webhook of bindings, pods and resizes is served, and ResourceClaimsPath that of ResourceClaims.
const (
	Path               = "/admission"
	ResourceClaimsPath = "/admission/resourceclaims"
)

// Serves reports whether a path is one of a webhook.
func Serves(path string) bool { return path == Path || path == ResourceClaimsPath }

// verb is what the webhook of bindings, pods and resizes is called in metrics and log lines, and claimsVerb that of
// ResourceClaims.
const (
	verb       = "admission"
	claimsVerb = "resourceclaims"
)

// Options are what an Admission works with. All fields are required.
type Options struct {
	Arbiter *arbiter.Arbiter
	Intake  *httpjson.Intake
	Metrics *metrics.Metrics
	Log     logrus.FieldLogger
}

// Admission is the webhook; see the package comment.
type Admission struct{ o Options }

// New returns an Admission.
func New(o Options) *Admission {
	return &Admission{o: o}
}

// Register adds the webhooks to a router.
func (a *Admission) Register(router *httprouter.Router) {
	bindings := webhook{"a binding, a pod or a resize", a.decide, a.report}
	claims := webhook{"the devices of a ResourceClaim", a.decideClaim, a.reportClaim}
	router.Handler(http.MethodPost, Path, httpjson.Handle(verb, a.o.Metrics.ObserveRequest, a.serve(bindings)))
	router.Handler(http.MethodPost, ResourceClaimsPath, httpjson.Handle(claimsVerb, a.o.Metrics.ObserveRequest, a.serve(claims)))
}
