package reserve

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
)

// Options are what an Arbiter of gangs works with. All fields are required.
type Options struct {
	// Arbiter finds pods, and decides on single ones by the same ledger.
	Arbiter  *decide.Arbiter
	Ledger   *gates.GatedLedger
	Question *placement.Builder
	// Waiting remembers the pods that were refused.
	Waiting *requeue.Pods
	Policy  *policy.Store
	Metrics *metrics.Metrics
	Log     logrus.FieldLogger
	// Store keeps durable reservations. Serving reports whether it can be used: the cluster knows the kind Reservation.
	// ReleaseSlots writes to an object that slots are given back, so that a restart does not forget it, and then ends
	// them in the ledger. ToGiveBack returns, by index, the slots that pods were granted and that the objects do not say
	// are given back.
	Store        *store.Store
	Serving      func() bool
	ReleaseSlots func(ctx context.Context, namespace, name string, slots []string) error
	ToGiveBack   func(pods []ledger.PodRef) map[int][]ledger.Slot
	// Rights check which caller may reserve in which namespace.
	Rights *auth.Checks
	// ReadTimeout bounds the time in which the pods of a gang are looked for.
	ReadTimeout time.Duration
}

const (
	// storeTimeout is how long a write of a Reservation is tried before its caller gets an
	// answer. A write waits as long for another write of the same object.
	storeTimeout = 8 * time.Second
)

// Arbiter decides on gangs; see the package comment. Make one with New and end it with Stop.
type Arbiter struct {
	o       Options
	writers *writers

	ctx    context.Context // of all writes; ends with Stop
	cancel context.CancelFunc
	mu     sync.Mutex     // guards adding to wg while a stop begins
	wg     sync.WaitGroup // the goroutines of writes after their answer
}

// New returns an Arbiter. It starts nothing.
func New(o Options) *Arbiter {
	ctx, cancel := context.WithCancel(context.Background())
	return &Arbiter{
		o: o, ctx: ctx, cancel: cancel,
		writers: &writers{stop: ctx.Done(), open: map[types.NamespacedName]chan struct{}{}},
	}
}

// goOn runs do in a goroutine, after its caller was answered; not after Stop.
func (a *Arbiter) goOn(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx.Err() == nil {
		a.wg.Go(do)
	}
}

// Stop ends the writes under way: of these the outcome is unknown. An object that is there keeps its capacity until a
// repeat of the request finds it, or its TTL is over.
func (a *Arbiter) Stop() {
	a.mu.Lock()
	a.cancel() // goOn adds nothing from here on
	a.mu.Unlock()
	a.wg.Wait()
}
