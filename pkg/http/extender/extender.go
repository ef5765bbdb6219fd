package extender

import (
	"net/http"
	"sync"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/http/observe"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
)

// Options configures an Extender. A field is required unless its comment says otherwise.
type Options struct {
	Arbiter *decide.Arbiter
	// Ledger is read for what is left after a bind, and for how many nodes there are.
	Ledger  ledger.Reader
	Metrics *metrics.Metrics
	Log     *logrus.Logger
	Intake  *httpjson.Intake
	// Observer is that of a server that only observes: it refuses nothing, and binds what it is asked to. It is nil on
	// a server that decides.
	Observer *observe.Observer
}

// What the bodies of requests are bounded by, in bytes. The first is enough for a thousand whole nodes.
const (
	maxBody     = 32 << 20
	maxBindBody = 64 << 10
)

// Extender serves the verbs. Make one with New.
type Extender struct {
	o       Options
	scratch sync.Pool // of *decide.Scratch
}

// New returns an Extender.
func New(o Options) *Extender {
	return &Extender{o: o, scratch: sync.Pool{New: func() any { return &decide.Scratch{} }}}
}

// The verbs, as they are called in paths, metrics and log lines.
const (
	verbFilter     = "filter"
	verbPrioritize = "prioritize"
	verbPreempt    = "preempt"
	verbBind       = "bind"
)

// The results of decisions in metrics and log lines; binds add the words of their errors.
const (
	resultGranted = "granted"
	resultRefused = "refused"
	resultScored  = "scored"
	resultFailed  = "failed"
)

// Register adds the verbs to a router.
func (e *Extender) Register(router *httprouter.Router) {
	for verb, handle := range map[string]func(http.ResponseWriter, *http.Request) error{
		verbFilter: e.filter, verbPrioritize: e.prioritize, verbPreempt: e.preempt, verbBind: e.bind,
	} {
		router.Handler(http.MethodPost, "/"+verb, httpjson.Handle(verb, e.o.Metrics.ObserveRequest, handle))
	}
}

// badRequest makes the error of a malformed request.
func badRequest(format string, args ...any) error {
	return httpjson.Errorf(http.StatusBadRequest, format, args...)
}

// debug returns the fields of a log line about a pod, and false where nobody would read it.
func (e *Extender) debug(pod *cluster.Pod) (*logrus.Entry, bool) {
	if !e.o.Log.IsLevelEnabled(logrus.DebugLevel) {
		return nil, false
	}
	return e.o.Log.WithFields(podFields(pod)), true
}

func podFields(pod *cluster.Pod) logrus.Fields {
	return logrus.Fields{"pod": pod.Ref.String(), "uid": pod.Ref.UID, "scheduler": pod.Scheduler}
}

// millis rounds a duration for a log line.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
