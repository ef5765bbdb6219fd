package rest

import (
	"bytes"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// verb is one of the requests that carry a group of pods.
type verb string

const (
	verbReserve   verb = "reserve"
	verbUnreserve verb = "unreserve"
	verbWhatIf    verb = "whatif"
)

// groupRequest is the body of all three. Which fields a verb takes is checked in
// check.go.
type groupRequest struct {
	SchedulerName string
	Pods          podList
	Nodes         nodeList
	Mode          ledger.Mode
	TTLSeconds    int64
	RequestID     string
	DryRun        bool
	MinRevision   uint64
	Durable       *bool
	// Name and Namespace are of the Reservation object a durable /reserve makes.
	Name, Namespace string
	// Reservation is namespace/name of one that an /unreserve gives back whole.
	Reservation string
	Without     podNameList

	// Unknown holds the members that are none of the above.
	Unknown jsontext.Value `json:",embed"`
}

type nodeList []string

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (l *nodeList) UnmarshalJSONFrom(dec *jsontext.Decoder) (err error) {
	*l, err = decodeSlice[string](dec, MaxPods)
	return err
}

// podName is a pod that a what-if request assumes to be gone.
type podName struct {
	Namespace, Name string
	UID             types.UID
}

type podNameList []podName

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (l *podNameList) UnmarshalJSONFrom(dec *jsontext.Decoder) (err error) {
	*l, err = decodeSlice[podName](dec, MaxPods)
	return err
}

// group is a request that makes sense: what the arbiter is asked.
type group struct {
	arbiter.Group
	verb        verb
	minRevision uint64
	without     []ledger.PodRef
}

// readGroup decodes and checks a request. Errors are *httpjson.Error.
func (a *API) readGroup(w http.ResponseWriter, r *http.Request, v verb) (*group, error) {
	release, err := a.bodyTurn(r)
	if err != nil {
		return nil, err
	}
	defer release()
	req := groupRequest{Pods: podList{table: a.ledger.Table(), identityOnly: v == verbUnreserve}}
	if err := httpjson.Decode(w, r, a.limits.MaxBody, &req); err != nil {
		return nil, err
	}
	return a.check(v, &req)
}

// bodyTurn waits until the budget of bytes has room for the request's body.
func (a *API) bodyTurn(r *http.Request) (release func(), err error) {
	size := r.ContentLength
	if size < 0 || size > a.limits.MaxBody {
		size = a.limits.MaxBody
	}
	size = min(size, a.limits.BodyBudget)
	return a.turn(r.Context(), a.bodies, size)
}

// firstName returns the name of the first member of a JSON object.
func firstName(object jsontext.Value) string {
	dec := jsontext.NewDecoder(bytes.NewReader(object), jsontext.AllowDuplicateNames(true))
	if _, err := dec.ReadToken(); err != nil {
		return ""
	}
	name, err := dec.ReadToken()
	if err != nil || name.Kind() != '"' {
		return ""
	}
	return name.String()
}
