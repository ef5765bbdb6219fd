package admission

import (
	"net/http"
	"slices"

	"github.com/julienschmidt/httprouter"
	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/http/observe"
	"github.com/globalreserve/globalreserve/pkg/metrics"
)

// The paths of the webhooks. Path is that of the mutating webhook for bindings, pods and resizes. PodsPath is that of
// the validating webhook for pods that are created with a node, and ResourceClaimsPath that for ResourceClaims.
const (
	Path               = "/admission"
	PodsPath           = "/admission/pods"
	ResourceClaimsPath = "/admission/resourceclaims"
)

// Paths are those of all webhooks.
var Paths = []string{Path, PodsPath, ResourceClaimsPath}

// Serves reports whether a path is one of a webhook.
func Serves(path string) bool { return slices.Contains(Paths, path) }

// verb is the name of the webhooks for bindings, pods and resizes in metrics and log lines. claimsVerb is the name of
// the webhook for ResourceClaims.
const (
	verb       = "admission"
	claimsVerb = "resourceclaims"
)

// Options are what an Admission works with. A field is required unless its comment says otherwise.
type Options struct {
	Arbiter *decide.Arbiter
	Intake  *httpjson.Intake
	Metrics *metrics.Metrics
	Log     logrus.FieldLogger
	// Observer is that of a server that only observes: it allows everything as it is, and notes who binds. It is nil on
	// a server that decides.
	Observer *observe.Observer
}

// Admission is the webhook; see the package comment.
type Admission struct{ o Options }

// New returns an Admission.
func New(o Options) *Admission {
	return &Admission{o: o}
}

// Register adds the webhooks to a router.
func (a *Admission) Register(router *httprouter.Router) {
	for path, name := range map[string]string{Path: verb, PodsPath: verb, ResourceClaimsPath: claimsVerb} {
		router.Handler(http.MethodPost, path, httpjson.Handle(name, a.o.Metrics.ObserveRequest, a.serve))
	}
}
