package admission

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// Path is where the webhook is served.
const Path = "/admission"

// verb is what the webhook is called in metrics and log lines.
const verb = "admission"

// Pods is the informer's view of the cluster's pods.
type Pods interface {
	// Pod returns the pod of that name, and false where the informer has none.
	Pod(namespace, name string) (*podinfo.Info, bool)
}

// Reservations says which reserved room pods may use.
type Reservations interface {
	// Candidates returns the holds a pod may use, the preferred ones first.
	Candidates(pod *podinfo.Info) []ledger.HoldRef
	// Origin is what pods bound with a reservation are told of it.
	Origin(namespace, name string) podinfo.Origin
}

// Devices says what the claims of devices that pods name ask for.
type Devices interface {
	// Devices returns nil for a pod that names no claims.
	Devices(pod *podinfo.Info) *ledger.DeviceRequest
}

// Preemptors remembers the pods that may end preemptible holds, because the last
// filter call found no room for them otherwise.
type Preemptors interface {
	Allowed(pod types.UID) bool
	Withdraw(pod types.UID)
}

// Metrics counts requests and decisions.
type Metrics interface {
	httpjson.Observer
	ObserveDecision(verb, scheduler, result string)
	ObserveConflict(scheduler, resource string)
}

// Options configures an Admission.
type Options struct {
	Ledger  *ledger.Ledger // required
	Client  Client         // required
	Pods    Pods           // required
	Metrics Metrics        // required
	// Reservations is nil where no pod uses holds but those kept for it alone.
	Reservations Reservations
	// Devices is nil where no pod may have devices: those with claims are refused.
	Devices Devices
	// Preemptors is nil where no pod may end preemptible holds.
	Preemptors Preemptors
	// Grace is how long an allowed binding has to show up before it is withdrawn;
	// 0 means 3s.
	Grace time.Duration
	// CreateGrace is how long an allowed pod has to show up, and an allowed binding of
	// a pod that cannot be patched; 0 means 45s. It must lie above the time after which the API server abandons the creation of an
	// object: 34s (kubernetes staging/src/k8s.io/apiserver/pkg/endpoints/handlers,
	// requestTimeoutUpperBound), and what etcd may take for a write it has begun.
	CreateGrace time.Duration
	// MaxPending bounds the bindings and pods whose fate is not known; 0 means 8192.
	MaxPending int
	Log        logrus.FieldLogger // nil means none
}

const (
	defaultGrace       = 3 * time.Second
	defaultCreateGrace = 45 * time.Second
	defaultMaxPending  = 8192
)

func (o *Options) setDefaults() error {
	if o.Ledger == nil || o.Client == nil || o.Pods == nil || o.Metrics == nil {
		return errors.New("admission: Options.Ledger, Client, Pods and Metrics are required")
	}
	if o.Grace < 0 || o.CreateGrace < 0 || o.MaxPending < 0 {
		return errors.New("admission: Options.Grace, CreateGrace and MaxPending must not be negative")
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	if o.CreateGrace == 0 {
		o.CreateGrace = defaultCreateGrace
	}
	if o.MaxPending == 0 {
		o.MaxPending = defaultMaxPending
	}
	if o.Reservations == nil {
		o.Reservations = noReservations{}
	}
	if o.Devices == nil {
		o.Devices = noDevices{}
	}
	if o.Preemptors == nil {
		o.Preemptors = noPreemptors{}
	}
	if o.Log == nil {
		log := logrus.New()
		log.SetOutput(io.Discard)
		o.Log = log
	}
	return nil
}

type noReservations struct{}

func (noReservations) Candidates(*podinfo.Info) []ledger.HoldRef { return nil }
func (noReservations) Origin(string, string) podinfo.Origin      { return podinfo.Origin{} }

type noDevices struct{}

func (noDevices) Devices(*podinfo.Info) *ledger.DeviceRequest {
	return &ledger.DeviceRequest{Err: "this server does not know of devices"}
}

type noPreemptors struct{}

func (noPreemptors) Allowed(types.UID) bool { return false }
func (noPreemptors) Withdraw(types.UID)     {}

// Admission is the webhook; see the package comment. Make one with New, then
// Start and Stop it once.
type Admission struct {
	o Options

	ctx    context.Context // of the background loop; ends with Stop
	cancel context.CancelFunc
	done   sync.WaitGroup
	bodies *semaphore.Weighted // of maxBodies bytes

	// mu guards the rest. It is held over a decision of the ledger and what is
	// remembered of it, so that the two agree.
	mu      sync.Mutex
	self    string // the user that the server is to the API server; empty if not known
	pending map[key]*pending
}

// New returns an Admission. It starts nothing.
func New(o Options) (*Admission, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Admission{
		o: o, ctx: ctx, cancel: cancel, bodies: semaphore.NewWeighted(maxBodies), pending: map[key]*pending{},
	}, nil
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
