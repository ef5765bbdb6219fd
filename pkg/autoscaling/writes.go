package autoscaling

import (
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/reservations"
)

// A cluster may be full of reservations: writes are few each second, whatever there is to write.
const (
	writesPerSecond = 10
	writeBurst      = 20
	writeTimeout    = 10 * time.Second
	// againAfter is after how long a write that failed is tried again.
	againAfter = 10 * time.Second
	// servedFor is how long it is remembered that a namespace had its turn.
	servedFor = time.Hour
	// logEvery is how often the log says that writes fail.
	logEvery = time.Minute
)

// Options are what a Protector, a Provisioner and a Holder work with: each needs what is for all, and its own.
type Options struct {
	Ledger *gates.GatedLedger
	// Policy says what is wanted. Where something is not wanted any more, what was written for it is taken back.
	Policy  *policy.Store
	Metrics *metrics.Metrics
	Log     logrus.FieldLogger

	// Client is for the Protector's nodes and the Provisioner's PodTemplates.
	Client kubernetes.Interface

	// The Protector's.
	Nodes *cluster.Nodes

	// The Provisioner's: Objects are for ProvisioningRequests, and Discovery reports whether the cluster has any.
	Reservations *reservations.Controller
	Objects      dynamic.Interface
	Discovery    discovery.DiscoveryInterfaceWithContext

	// The Holder's: Waiting knows which schedulers ask, and which callers ask for them.
	Pods     *cluster.Pods
	Question *placement.Builder
	Waiting  *requeue.Pods
	Patcher  requeue.APIPatcher
}

// writes are the writes of one kind.
type writes struct {
	Options
	kind    string // of the objects
	limiter *rate.Limiter
	said    rate.Sometimes
	trouble atomic.Pointer[error] // see Trouble
}

func newWrites(kind string, o Options) *writes {
	return &writes{
		Options: o, kind: kind, limiter: rate.NewLimiter(writesPerSecond, writeBurst),
		said: rate.Sometimes{Interval: logEvery},
	}
}

// ended records how a write ended.
func (w *writes) ended(err error) {
	trouble := nameless(err)
	w.trouble.Store(&trouble)
	w.Metrics.ObserveAutoscalingWrite(w.kind, err != nil)
	if err != nil {
		w.said.Do(func() { w.Log.WithError(err).Warn("a write for autoscalers failed; it will be tried again") })
	}
}

// nameless returns what everybody may see of an error, without the names in it: /readyz does not authenticate clients.
func nameless(err error) error {
	if err == nil {
		return nil
	}
	reason, said := apierrors.ReasonForError(err), "the last write failed"
	if reason != metav1.StatusReasonUnknown {
		said += ": " + string(reason)
	}
	status := metav1.Status{Status: metav1.StatusFailure, Reason: reason, Message: said + "; the log tells more"}
	return &apierrors.StatusError{ErrStatus: status}
}

// Trouble returns why the last write failed, without names, nil where it was carried out.
func (w *writes) Trouble() error { return ptr.Deref(w.trouble.Load(), nil) }
