package restapi

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

// Annotations of the objects that /reserve makes.
const (
	// requestAnnotation tells requests apart: a repeat has the same.
	requestAnnotation = "globalreserve.io/request"
	// attemptAnnotation tells apart the writers of equal requests.
	attemptAnnotation = "globalreserve.io/attempt"
	// requestIDAnnotation is the RequestID, for people.
	requestIDAnnotation = "globalreserve.io/request-id"
)

// reserveDurable decides a durable /reserve: room in the ledger, one object that
// says so, and only then the answer.
func (a *API) reserveDurable(ctx context.Context, g *group) (outcome, error) {
	if !a.durableByDefault() {
		return a.failed(g, "nothing was reserved: the cluster does not know the kind Reservation, without which nothing is durable: "+
			"install manifests/crd"+inMemoryInstead), nil
	}
	placements, screened, err := a.resolve(g)
	if err != nil {
		return outcome{}, err
	}
	t := &allotment{group: g, key: reservationKey(g), placements: placements, screened: screened}
	object := a.newObject(t)
	if size := encodedSize(object); size > maxObjectBytes {
		return outcome{}, badRequest("the Reservation object of the group has %d bytes, the limit is %d (etcd takes 1.5 MiB, and the object "+
			"grows by its status and the API server's records): split the group%s", size, maxObjectBytes, inMemoryInstead)
	}
	if g.dryRun {
		a.allot(t)
		return a.conclude(t, nil), nil
	}
	leave, ok := a.writes.enter(ctx, t.key)
	if !ok {
		return a.failed(g, notKnownYet(t.key)), nil
	}
	w := &durableWrite{allotment: t, api: a, object: object, leave: leave}
	defer func() { w.leave() }()
	return w.run(ctx)
}

func notKnownYet(key types.NamespacedName) string {
	return fmt.Sprintf("nothing was reserved: another request is writing reservation %s, and it is not known yet how that ends: try again", key)
}

// reservationKey chooses the object's name. That of a request with a RequestID
// follows from it, so that a repeat finds the object after a restart, too.
func reservationKey(g *group) types.NamespacedName {
	key := types.NamespacedName{Namespace: g.pods[0].ref.Namespace, Name: g.name}
	switch {
	case key.Name != "":
	case g.requestID != "":
		sum := sha256.Sum256([]byte(g.scheduler + "\x00" + g.requestID))
		key.Name = "reserve-" + hex.EncodeToString(sum[:12])
	default:
		key.Name = "reserve-" + strings.ToLower(rand.Text())
	}
	return key
}

// newObject is the object of a group, with a slot for each pod.
func (a *API) newObject(t *allotment) *v1alpha1.Reservation {
	g := t.group
	holds := make([]ledger.Hold, len(t.placements))
	for i := range holds {
		holds[i] = t.hold(i)
	}
	object := convert.Object(a.ledger.Table(), holds, g.ttl, convert.MadeByReserve)
	asked := newFingerprint(g, a.ledger.Table())
	object.Annotations = map[string]string{
		requestAnnotation: hex.EncodeToString(asked[:]),
		attemptAnnotation: rand.Text(),
	}
	if g.requestID != "" {
		object.Annotations[requestIDAnnotation] = g.requestID
	}
	return object
}

func encodedSize(object *v1alpha1.Reservation) int {
	data, err := json.Marshal(object)
	if err != nil {
		return 0 // the client would tell; an object made here can be encoded
	}
	return len(data)
}

// conclude makes the answer. object is what the room is written in, if it was.
func (a *API) conclude(t *allotment, object *v1alpha1.Reservation) outcome {
	out := outcome{answer: newGroupAnswer(t.refusals, t.revision)}
	count := t.granted()
	switch {
	case count == 0:
		out.answer.Error = groupError("nothing was reserved", t.refusals, len(t.placements))
		if len(a.ledger.ReservationHolds(t.key.Namespace, t.key.Name)) > 0 {
			out.answer.Error += fmt.Sprintf("; reservation %s was made before and keeps what it has", t.key)
		}
	case t.group.dryRun:
		out.answer.ExpiresAt = convert.DeadlineAfter(a.clock.Now(), t.group.ttl).UTC()
	default:
		out.answer.Revision = a.ledger.Revision() // that of the holds with their deadlines
		out.held, out.deadline = granted(t.placements, t.refusals), a.deadline(t, object)
		out.answer.ExpiresAt = utc(out.deadline)
		out.answer.Reservation = t.reservation(object)
	}
	a.report(t.group, t.placements, t.refusals, count, &out)
	return out
}

// deadline is when the first of the group's room is given back; zero where all
// pods are bound.
func (a *API) deadline(t *allotment, object *v1alpha1.Reservation) time.Time {
	var first time.Time
	if object != nil {
		first = convert.Deadline(object)
	}
	for _, key := range t.others() {
		for _, view := range a.ledger.ReservationHolds(key.Namespace, key.Name) {
			if at := view.Deadline; !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	return first
}

// others are the reservations that pods of the group had room in before.
func (t *allotment) others() []types.NamespacedName {
	var keys []types.NamespacedName
	for _, ref := range t.existing {
		if key := (types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// reservation names what the room of the group is written in; nothing where that
// is several objects of earlier requests, or all pods are bound.
func (t *allotment) reservation(object *v1alpha1.Reservation) string {
	others := t.others()
	switch {
	case object != nil:
		return t.key.String()
	case len(others) == 1:
		return others[0].String()
	default:
		return ""
	}
}

// failed answers a group whose room could not be written down. The answer is not
// kept for repeats.
func (a *API) failed(g *group, why string) outcome {
	a.metrics.ObserveDecision(string(g.verb), g.scheduler, "failed")
	a.log.WithFields(logrus.Fields{
		"verb": string(g.verb), "scheduler": g.scheduler, "requestID": g.requestID, "pods": len(g.pods), "reason": why,
	}).Warn(string(g.verb) + " failed")
	return outcome{answer: a.failAll(g, why), transient: true}
}
