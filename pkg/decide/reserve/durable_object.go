package reserve

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/apiwrite"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

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
