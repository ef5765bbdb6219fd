package admission

import (
	"net/http"

	"github.com/julienschmidt/httprouter"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/semaphore"

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
	Metrics *metrics.Metrics
	Log     logrus.FieldLogger
}

// Admission is the webhook; see the package comment.
type Admission struct {
	o      Options
	bodies *semaphore.Weighted // of maxBodies bytes
}

// New returns an Admission.
func New(o Options) *Admission {
	return &Admission{o: o, bodies: semaphore.NewWeighted(maxBodies)}
}

// Register adds the webhook to a router.
func (a *Admission) Register(router *httprouter.Router) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.serve(w, r); err != nil {
			httpjson.WriteError(w, err)
		}
	})
	router.Handler(http.MethodPost, Path, httpjson.Instrument(verb, a.o.Metrics, handler))
}
