package reserve

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/apiwrite"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

const inMemoryInstead = `, or send "Durable": false for a reservation in memory, which ends with this server`

// notOneObject returns why the pods of a gang cannot be slots of one Reservation object, which is what durable gangs
// are; empty where they can.
func (g *Request) notOneObject() string {
	if len(g.Pods) > v1alpha1.MaxSlots {
		return fmt.Sprintf("it has %d pods, and a Reservation object keeps capacity for %d at most", len(g.Pods),
			v1alpha1.MaxSlots)
	}
	for i := range g.Pods {
		if first, in := g.Pods[0].Ref.Namespace, g.Pods[i].Ref.Namespace; in != first {
			return fmt.Sprintf("its pods are of the namespaces %q and %q, and a Reservation object is for pods of one",
				first, in)
		}
	}
	return ""
}

// reserveDurable decides a durable gang: capacity in the ledger first, then an object that
// says so, and only then the answer.
func (a *Arbiter) reserveDurable(ctx context.Context, t *durableAttempt) (*Decision, error) {
	if t.gang.DryRun {
		if err := a.allot(t); err != nil {
			return nil, err
		}
		return a.conclude(t, nil), nil
	}
	leave, ok := a.writers.enter(ctx, t.key)
	if !ok {
		return nil, a.unknown(t.gang, notKnownYet(t.key))
	}
	w := &durableWrite{durableAttempt: t, a: a, deadline: time.Now().Add(storeTimeout), leave: leave}
	defer func() { w.leave() }()
	return w.run(ctx)
}

func notKnownYet(key types.NamespacedName) string {
	return fmt.Sprintf("another request is writing reservation %s, and it is not known yet how that ends: try again", key)
}

// conclude makes the decision known. written is the object that keeps the slots that were made; nil where none were.
func (a *Arbiter) conclude(t *durableAttempt, written *v1alpha1.Reservation) *Decision {
	d := newDecision(t.placements, t.refusals, t.revision)
	d.Durable, d.Granted = true, t.granted()
	switch {
	case d.Granted == 0:
		d.Error = d.errorText("nothing was reserved")
		if len(a.o.Ledger.ReservationSlots(t.key.Namespace, t.key.Name)) > 0 {
			d.Error += fmt.Sprintf("; reservation %s was made before and keeps what it has", t.key)
		}
	case t.gang.DryRun:
		d.ExpiresAt = convert.DeadlineAfter(a.o.Ledger.Clock.Wall(), t.gang.ttl).UTC()
	default:
		d.Revision = a.o.Ledger.Revision() // that of the slots with their deadlines
		d.Kept, d.ExpiresAt = kept(t.placements, t.refusals), a.deadline(t, written)
		d.Reservation = t.reservation(written != nil)
	}
	a.report("reserve", t.gang, d)
	return d
}

// deadline is when the first of the gang's capacity is given back; zero where all pods are bound.
func (a *Arbiter) deadline(t *durableAttempt, written *v1alpha1.Reservation) (first time.Time) {
	sooner := func(at time.Time) {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at.UTC()
		}
	}
	if written != nil {
		sooner(convert.Deadline(written))
	}
	for _, key := range t.others() {
		for _, view := range a.o.Ledger.ReservationSlots(key.Namespace, key.Name) {
			sooner(a.o.Ledger.Clock.WallAt(view.Deadline))
		}
	}
	return first
}

// others are the reservations that pods of the gang had capacity in before.
func (t *durableAttempt) others() []types.NamespacedName {
	var keys []types.NamespacedName
	for _, ref := range t.existing {
		if key := (types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// reservation names what the capacity of the gang is written in; nothing where that
// is several objects, or all pods are bound.
func (t *durableAttempt) reservation(written bool) types.NamespacedName {
	others := t.others()
	switch {
	case written:
		return t.key
	case len(others) == 1:
		return others[0]
	default:
		return types.NamespacedName{}
	}
}

// The annotations of the objects that /reserve makes.
const (
	// requestAnnotation distinguishes requests: a repeat has the same.
	requestAnnotation = "globalreserve.io/request"
	// attemptAnnotation distinguishes the writers of equal requests.
	attemptAnnotation = "globalreserve.io/attempt"
	// answeredAnnotation is on an object that a later attempt has found and answered for. Its value names that attempt.
	answeredAnnotation = "globalreserve.io/answered"
	// requestIDAnnotation is the RequestID, for people.
	requestIDAnnotation = "globalreserve.io/request-id"
)

// maxObjectBytes bounds the JSON of a Reservation as it is sent. The API server adds a record of who wrote which field,
// and the slots' status: each is about as large again, and etcd takes 1.5 MiB.
const maxObjectBytes = 512 << 10

const reservationsResource = "reservations"

// newAttempt names the object of a gang, and makes one with a slot for each pod that may have one. Where that cannot be
// one object it returns why.
func (a *Arbiter) newAttempt(
	g *Request, placements []ledger.Placement, screened []Refusal,
) (t *durableAttempt, why string) {
	if why := g.notOneObject(); why != "" {
		return nil, why
	}
	t = &durableAttempt{
		gang: g, placements: placements, screened: screened, attempt: rand.Text(),
		key: types.NamespacedName{Namespace: g.Pods[0].Ref.Namespace, Name: objectName(g)},
	}
	wanted := notRefused(len(placements), screened)
	if len(wanted) == 0 {
		return t, ""
	}
	kept := make([]ledger.Slot, len(wanted))
	for k, i := range wanted {
		kept[k] = t.slot(i)
	}
	t.object = convert.Object(a.o.Ledger.Table(), kept, g.ttl, convert.MadeByReserve)
	t.object.Annotations[requestAnnotation], t.object.Annotations[attemptAnnotation] = g.Fingerprint, t.attempt
	if g.RequestID != "" {
		t.object.Annotations[requestIDAnnotation] = g.RequestID
	}
	if size := encodedSize(t.object); size > maxObjectBytes {
		return nil, fmt.Sprintf("its Reservation object would have %d bytes, and the limit is %d", size, maxObjectBytes)
	}
	return t, ""
}

// objectName chooses the name of the object. That of a request with a RequestID
// follows from it, so that a repeat finds the object after a restart, too.
func objectName(g *Request) string {
	switch {
	case g.Name != "":
		return g.Name
	case g.RequestID != "":
		sum := sha256.Sum256([]byte(g.Scheduler + "\x00" + g.RequestID))
		return "reserve-" + hex.EncodeToString(sum[:12])
	default:
		return "reserve-" + strings.ToLower(rand.Text())
	}
}

func encodedSize(object *v1alpha1.Reservation) int {
	data, err := json.Marshal(object)
	if err != nil {
		return 0 // the client would report it; an object made here can be encoded
	}
	return len(data)
}

// sameAttempt reports whether both objects are of one try to write a gang.
func sameAttempt(a, b *v1alpha1.Reservation) bool {
	return a.Annotations[attemptAnnotation] == b.Annotations[attemptAnnotation]
}

// sameRequest reports whether both objects were made for equal requests.
func sameRequest(a, b *v1alpha1.Reservation) bool {
	return a.Annotations[requestAnnotation] == b.Annotations[requestAnnotation]
}

func ignoreMissing(err error) error {
	if apiwrite.Of(reservationsResource, err) == apiwrite.Missing {
		return nil
	}
	return err
}

// writers keep apart the requests that write the same Reservation object.
type writers struct {
	stop <-chan struct{}

	mu   sync.Mutex
	open map[types.NamespacedName]chan struct{} // closed when the write has ended
}

// enter waits until nobody else writes the object and begins. ok is false where that took too long, or ctx ended. leave
// ends it.
func (w *writers) enter(ctx context.Context, key types.NamespacedName) (leave func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for {
		w.mu.Lock()
		if w.open[key] == nil {
			done := make(chan struct{})
			w.open[key] = done
			w.mu.Unlock()
			return func() { w.leave(key, done) }, true
		}
		w.mu.Unlock()
		if !w.wait(ctx, key) {
			return nil, false
		}
	}
}

func (w *writers) leave(key types.NamespacedName, done chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, key)
	close(done)
}

// wait waits until nobody writes an object. It reports false where that took too long, or ctx ended.
func (w *writers) wait(ctx context.Context, key types.NamespacedName) bool {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for done := w.writing(key); done != nil; done = w.writing(key) {
		select {
		case <-done:
		case <-ctx.Done():
			return false
		case <-w.stop:
			return false
		}
	}
	return true
}

// writing returns what is closed when the write of an object ends, nil where nobody writes it.
func (w *writers) writing(key types.NamespacedName) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open[key]
}
