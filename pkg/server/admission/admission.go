package admission

import (
	"net/http"

	"github.com/julienschmidt/httprouter"
	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/metrics"
)

// Path is where the webhook is served.
const Path = "/admission"

// verb is what the webhook is called in metrics and log lines.
const verb = "admission"

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

// Register adds the webhook to a router.
func (a *Admission) Register(router *httprouter.Router) {
	router.Handler(http.MethodPost, Path, httpjson.Handle(verb, a.o.Metrics.ObserveRequest, a.serve))
}
