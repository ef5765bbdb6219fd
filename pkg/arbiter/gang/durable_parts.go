package gang

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/fates"
	"github.com/globalreserve/globalreserve/pkg/follow"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
)

// A gang is written as one object where that is possible: its pods are of one
// namespace, at most MaxSlots, and the object is not too large. Other gangs are
// several objects, all or nothing. The first is their head:
//
//	create head, with the label unfinished, with the names of the other parts
//	create the other parts, each with the name of the head
//	take the label off the head     this one write makes the gang true
//	answer
//
// A gang whose head still has the label was promised to nobody. The head is deleted
// last, so that an unfinished head leads to all that is left. This server takes an
// unfinished gang back at once. A server that starts later does so once no request of
// the one before can be under way any more (Start). Once the label is off each part is
// a reservation like any other, and may end before the others do.

// The labels and annotations of the objects that /reserve makes.
const (
	// requestAnnotation tells requests apart: a repeat has the same.
	requestAnnotation = "globalreserve.io/request"
	// attemptAnnotation tells apart the writers of equal requests.
	attemptAnnotation = "globalreserve.io/attempt"
	// answeredAnnotation is on an object that a later attempt has found and answered for. Its value names that attempt.
	answeredAnnotation = "globalreserve.io/answered"
	// requestIDAnnotation is the RequestID, for people.
	requestIDAnnotation = "globalreserve.io/request-id"
	// unfinishedLabel is on the head of a gang that is being written.
	unfinishedLabel = "globalreserve.io/unfinished"
	// partsAnnotation names, on a head, the other parts of the gang.
	partsAnnotation = "globalreserve.io/parts"
	// headAnnotation names, on the other parts, their head.
	headAnnotation = "globalreserve.io/head"
)

// maxObjectBytes bounds the JSON of a Reservation as it is sent. The API server adds
// a record of who wrote which field, and the slots' status: each is about as large
// again, and etcd takes 1.5 MiB.
const maxObjectBytes = 512 << 10

// part is one object of a gang.
type part struct {
	key    types.NamespacedName
	pods   []int // of the gang
	object *v1alpha1.Reservation
	fates.Write
	// stored is the object that is there, as far as is known; created that this
	// request made it.
	stored  *v1alpha1.Reservation
	created bool
}

// divide makes the parts of a gang and their objects.
func (a *Arbiter) divide(t *gangAttempt) error {
	var lists [][]int
	of := map[string]int{}
	for _, i := range notRefused(len(t.placements), t.screened) {
		namespace := t.placements[i].Pod.Namespace
		at, known := of[namespace]
		if !known || len(lists[at]) == v1alpha1.MaxSlots {
			at = len(lists)
			lists, of[namespace] = append(lists, nil), at
		}
		lists[at] = append(lists[at], i)
	}
	t.partOf = make([]*part, len(t.placements))
	name := gangName(t.gang)
	t.attempt = rand.Text()
	for len(lists) > 0 {
		pods := lists[0]
		p := &part{pods: pods, key: types.NamespacedName{
			Namespace: t.placements[pods[0]].Pod.Namespace, Name: partName(name, len(t.parts)),
		}}
		for _, i := range pods {
			t.partOf[i] = p
		}
		p.object = a.newObject(t, p)
		size := encodedSize(p.object)
		switch {
		case size <= maxObjectBytes:
			t.parts = append(t.parts, p)
			lists = lists[1:]
		case len(pods) == 1:
			return invalid("the Reservation object for pod %s has %d bytes, the limit is %d%s", t.placements[pods[0]].Pod, size,
				maxObjectBytes, inMemoryInstead)
		default:
			half := len(pods) / 2
			lists = slices.Insert(lists[1:], 0, pods[:half], pods[half:])
		}
	}
	return nil
}

// gangName chooses the name of the first object. That of a request with a RequestID
// follows from it, so that a repeat finds the object after a restart, too.
func gangName(g *Request) string {
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

// partName is the name of the first object, or of a later one: job, job-2, job-3.
func partName(name string, k int) string {
	if k == 0 {
		return name
	}
	suffix := fmt.Sprintf("-%d", k+1)
	if most := validation.DNS1123SubdomainMaxLength - len(suffix); len(name) > most {
		name = strings.TrimRight(name[:most], "-.")
	}
	return name + suffix
}

// newObject is the object of a part, with a slot for each of its pods.
func (a *Arbiter) newObject(t *gangAttempt, p *part) *v1alpha1.Reservation {
	g := t.gang
	kept := make([]ledger.Slot, len(p.pods))
	for k, i := range p.pods {
		kept[k] = t.slot(i)
	}
	object := convert.Object(a.o.Ledger.Table(), kept, g.ttl, convert.MadeByReserve)
	object.Annotations[requestAnnotation], object.Annotations[attemptAnnotation] = g.Fingerprint, t.attempt
	if g.RequestID != "" {
		object.Annotations[requestIDAnnotation] = g.RequestID
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

func (t *gangAttempt) keys() []types.NamespacedName {
	keys := make([]types.NamespacedName, len(t.parts))
	for k, p := range t.parts {
		keys[k] = p.key
	}
	return keys
}

// tie makes objects the parts of one gang.
func tie(parts []*part) {
	if len(parts) < 2 {
		return
	}
	head := parts[0]
	names := make([]string, len(parts)-1)
	for k, p := range parts[1:] {
		names[k] = p.key.String()
		p.object.Annotations[headAnnotation] = head.key.String()
	}
	head.object.Annotations[partsAnnotation] = strings.Join(names, ",")
	head.object.Labels[unfinishedLabel] = "true"
}

func parseKey(text string) types.NamespacedName {
	namespace, name, _ := strings.Cut(text, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func isUnfinished(rsv *v1alpha1.Reservation) bool {
	_, ok := rsv.Labels[unfinishedLabel]
	return ok
}

// sameAttempt reports whether both objects are of one try to write a gang.
func sameAttempt(a, b *v1alpha1.Reservation) bool {
	return a.Annotations[attemptAnnotation] == b.Annotations[attemptAnnotation]
}

// toUndo reports whether an object is of the same attempt as another, and nobody else has answered for it.
func toUndo(found, own *v1alpha1.Reservation) bool {
	return sameAttempt(found, own) && found.Annotations[answeredAnnotation] == ""
}

// sameRequest reports whether both objects were made for equal requests.
func sameRequest(a, b *v1alpha1.Reservation) bool {
	return a.Annotations[requestAnnotation] == b.Annotations[requestAnnotation]
}

// belongsToUnfinished reports whether an object is of a gang that was never
// finished: it stands for nothing then.
func (a *Arbiter) belongsToUnfinished(ctx context.Context, object *v1alpha1.Reservation) (bool, error) {
	name := object.Annotations[headAnnotation]
	if isUnfinished(object) || name == "" {
		return isUnfinished(object), nil
	}
	key := parseKey(name)
	head, err := a.o.Store.Get(ctx, key.Namespace, key.Name)
	switch fate := fates.Of(reservationsResource, err); {
	case fate == fates.Missing:
		return false, nil // it was finished, and has ended since
	case fate != fates.Done:
		return false, err
	default:
		return isUnfinished(head) && sameAttempt(head, object), nil
	}
}

const reservationsResource = "reservations"

// Start begins to delete what a server before this one has written of gangs that it
// did not finish. It goes on until that is done, or Stop. What that server had sent has
// been carried out, or never will be, once store.Settle has passed.
func (a *Arbiter) Start() { a.goOn(a.removeAllUnfinished) }

func (a *Arbiter) removeAllUnfinished() {
	const longest = 30 * time.Second
	ctx, w := a.ctx, fates.Write{}
	for more := follow.Pause(ctx, store.Settle); more; more = follow.Pause(ctx, w.Next(longest, nil)) {
		if !a.Durable() {
			continue
		}
		heads, err := a.o.Store.List(ctx, unfinishedLabel)
		for i := range heads {
			err = errors.Join(err, a.removeUnfinished(ctx, types.NamespacedName{
				Namespace: heads[i].Namespace,
				Name:      heads[i].Name,
			}))
		}
		if err == nil {
			return
		}
		a.o.Log.WithError(err).
			Warn("could not remove what is left of gangs that a server before this one did not finish; will try again")
	}
}

// removeUnfinished deletes what is left of a gang, its head last. Anybody who may make a Reservation
// can make one that looks like a head and names the objects of others. So an object counts as a part
// only if it names this head in turn.
func (a *Arbiter) removeUnfinished(ctx context.Context, key types.NamespacedName) error {
	leave, _, ok := a.writers.enter(ctx, key)
	if !ok {
		return nil // this server writes it, or takes it back
	}
	defer leave()
	head, err := a.o.Store.Get(ctx, key.Namespace, key.Name)
	if fate := fates.Of(reservationsResource, err); fate != fates.Done || !isUnfinished(head) {
		return ignoreMissing(err)
	}
	a.o.Log.WithField("reservation", key.String()).
		Warn("a server before this one did not finish to write this group: it is deleted")
	for _, name := range strings.Split(head.Annotations[partsAnnotation], ",") {
		k := parseKey(name)
		if len(validation.IsDNS1123Label(k.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(k.Name)) > 0 {
			continue // nobody has such a name
		}
		p, err := a.o.Store.Get(ctx, k.Namespace, k.Name)
		if err == nil && p.Annotations[headAnnotation] == key.String() && sameAttempt(p, head) {
			err = a.o.Store.Delete(ctx, p)
		}
		if fates.Of(reservationsResource, err) != fates.Missing && err != nil {
			return err
		}
	}
	return ignoreMissing(a.o.Store.Delete(ctx, head))
}

func ignoreMissing(err error) error {
	if fates.Of(reservationsResource, err) == fates.Missing {
		return nil
	}
	return err
}
