package extender

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// Binder binds pods. It returns what is known of the pod, nil where nothing is.
// Its errors may tell their kind in a word by a method Result() string, and the
// ledger's part in them by a method Refusal() *ledger.Rejection.
type Binder interface {
	Bind(ctx context.Context, pod ledger.PodRef, node string) (*podinfo.Info, error)
}

// Pods is the informer's view of the cluster's pods.
type Pods interface {
	// Pod returns the pod of that name, and false where the informer has none.
	Pod(namespace, name string) (*podinfo.Info, bool)
	// WaitForPods returns nil once the informer, and the ledger with it, knows all
	// changes of pods up to a resource version, or the error of ctx if that ends
	// first.
	WaitForPods(ctx context.Context, resourceVersion uint64) error
}

// Recent remembers the pods that requests were about, for binds that overtake
// the informer.
type Recent interface {
	Add(pod *podinfo.Info)
	Get(uid types.UID) (*podinfo.Info, bool)
}

// Refusals is told of pods that were refused a node, so that they can be woken
// up when there is room.
type Refusals interface {
	// Refused records that a pod was refused at least one of the nodes offered.
	// revision is the ledger's from before that was decided.
	Refused(pod *podinfo.Info, revision uint64, offered []string)
	// Wake has a pod tried again whatever is free.
	Wake(pod *podinfo.Info)
}

// Reservations says which reserved room pods may use.
type Reservations interface {
	// Candidates returns the holds a pod may use, the preferred ones first.
	Candidates(pod *podinfo.Info) []ledger.HoldRef
}

// Devices says what the claims of devices that pods name ask for.
type Devices interface {
	// Devices returns nil for a pod that names no claims.
	Devices(pod *podinfo.Info) *ledger.DeviceRequest
}

// Steering brings pods to the nodes that hold room for them.
type Steering interface {
	// Direct plans a pod for one of the holds it could be bound with now. It
	// returns the node that alone should be kept of those offered; elsewhere says
	// that all should be refused, because the pod comes back with another one.
	Direct(pod *podinfo.Info, usable []ledger.UsableHold, offered []string) (node string, elsewhere bool)
	// Plan does the same for a pod that has its choice, and returns the node to
	// prefer.
	Plan(pod *podinfo.Info, usable []ledger.UsableHold, offered []string) (node string, ok bool)
}

// Preemptors remembers the pods whose binds may end preemptible holds.
type Preemptors interface {
	// Looked counts a filter call that found no other room, and returns how many
	// of them there have been in a row.
	Looked(pod types.UID) int
	Allow(pod types.UID)
	Withdraw(pod types.UID)
}

// Metrics counts requests and decisions.
type Metrics interface {
	httpjson.Observer
	ObserveDecision(verb, scheduler, result string)
	ObserveConflict(scheduler, resource string)
}

// Policy says which nodes prioritize prefers.
type Policy interface {
	Scoring() Scoring
}

// Scoring is how nodes are scored.
type Scoring struct {
	// LeastAllocated prefers empty nodes; otherwise full ones are preferred.
	LeastAllocated bool
	// Resources are those a node is judged by, with weights above 0.
	Resources []ResourceWeight
	// ReservationMatch is from 0 (none) to 10 (above everything else): the
	// preference for the node that holds the pod's own reservation, or room that
	// it may use. With 10, filter keeps no other node as long as that one will do.
	ReservationMatch int64
}

// ResourceWeight is how much one resource counts in a score.
type ResourceWeight struct {
	Name   v1.ResourceName
	Weight int64
}

// Options configures an Extender. All are required that do not say otherwise.
type Options struct {
	Ledger   *ledger.Ledger
	Binder   Binder
	Pods     Pods
	Recent   Recent
	Refusals Refusals
	Metrics  Metrics
	Policy   Policy
	// Reservations, Steering and Preemptors come together, or not at all.
	Reservations Reservations
	Steering     Steering
	Preemptors   Preemptors
	// Devices is nil where pods have no claims of devices.
	Devices Devices
	// OnRefused is told of pods that were refused all nodes offered, after the
	// answer; nil means nobody is.
	OnRefused func(pod *podinfo.Info, offered []string)
	Log       *logrus.Logger // nil means none
	// MaxBody bounds the body of a request in bytes; 0 means 32 MiB, which is
	// enough for a thousand whole nodes.
	MaxBody int64
	// BodyBudget bounds the bodies that are worked on at one time, all together, in
	// bytes; others wait. 0 means 128 MiB.
	BodyBudget int64
}

const (
	defaultMaxBody    = 32 << 20
	defaultBodyBudget = 128 << 20
	maxBindBody       = freeBody
	toldPods          = 1024 // whose uncountable requests are not logged again
)

// Extender serves the verbs. Make one with New.
type Extender struct {
	o       Options
	scratch scratchPool
	bodies  budget
	lag     lag
	told    *lru.Cache
}

// New returns an Extender.
func New(o Options) *Extender {
	if o.MaxBody <= 0 {
		o.MaxBody = defaultMaxBody
	}
	if o.BodyBudget <= 0 {
		o.BodyBudget = defaultBodyBudget
	}
	if o.Log == nil {
		o.Log = logrus.New()
		o.Log.SetOutput(io.Discard)
		o.Log.SetLevel(logrus.PanicLevel)
	}
	if o.OnRefused == nil {
		o.OnRefused = func(*podinfo.Info, []string) {}
	}
	if o.Devices == nil {
		o.Devices = noDevices{}
	}
	if o.Reservations == nil || o.Steering == nil || o.Preemptors == nil {
		o.Reservations, o.Steering, o.Preemptors = unreserved{}, unreserved{}, unreserved{}
	}
	return &Extender{o: o, bodies: newBudget(o.BodyBudget), told: lru.New(toldPods)}
}

// The verbs, as they are called in paths, metrics and log lines.
const (
	verbFilter     = "filter"
	verbPrioritize = "prioritize"
	verbPreempt    = "preempt"
	verbBind       = "bind"
)

// The results of decisions in metrics and log lines; binds add the words of
// their errors.
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
		handle := e.bodies.within(e.o.MaxBody, handle)
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := handle(w, r); err != nil {
				httpjson.WriteError(w, err)
			}
		})
		router.Handler(http.MethodPost, "/"+verb, httpjson.Instrument(verb, e.o.Metrics, handler))
	}
}

// badRequest makes the error of a malformed request.
func badRequest(format string, args ...any) error {
	return httpjson.Errorf(http.StatusBadRequest, format, args...)
}

// uncountable is the error of a pod that is well-formed but cannot be accounted.
type uncountable struct {
	pod   ledger.PodRef
	cause error
}

func (u uncountable) Error() string { return "the pod cannot be scheduled: " + u.cause.Error() }

// asBadRequest is for verbs whose answer has no field for an error.
func asBadRequest(err error) error {
	var u uncountable
	if errors.As(err, &u) {
		return badRequest("%s", u.Error())
	}
	return err
}

// debug returns the fields of a log line about a pod, and false where nobody
// would read it.
func (e *Extender) debug(pod *podinfo.Info) (*logrus.Entry, bool) {
	if !e.o.Log.IsLevelEnabled(logrus.DebugLevel) {
		return nil, false
	}
	return e.o.Log.WithFields(podFields(pod)), true
}

func podFields(pod *podinfo.Info) logrus.Fields {
	return logrus.Fields{"pod": pod.Ref.String(), "uid": pod.Ref.UID, "scheduler": pod.Scheduler}
}

// millis rounds a duration for a log line.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
