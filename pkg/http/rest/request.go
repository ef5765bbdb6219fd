package rest

import (
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/globalreserve/globalreserve/pkg/decide/reserve"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// verb is one of the requests that carry a gang of pods.
type verb string

const (
	verbReserve   verb = "reserve"
	verbUnreserve verb = "unreserve"
	verbWhatIf    verb = "whatif"
)

// gangRequest is the body of all three. Which fields a verb takes is checked in check.go.
type gangRequest struct {
	SchedulerName string
	Pods          podList
	Nodes         many[string]
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
	Without     many[reserver.GonePod]
}

// few and many are arrays whose length is bounded.
type (
	few[T any]  []T
	many[T any] []T
)

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (l *few[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) (err error) {
	*l, err = httpjson.Slice[T](dec, 1_000)
	return err
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (l *many[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) (err error) {
	*l, err = httpjson.Slice[T](dec, MaxPods)
	return err
}

// asked is a request that passed the checks, as the arbiter gets it.
type asked struct {
	reserve.Request
	verb        verb
	minRevision uint64
	without     []ledger.PodRef
	inMemory    bool // it says that it is not durable
	claims      bool // its pods name ResourceClaims
	warnings    []string
}

// readGang decodes and checks a request. Errors are *httpjson.Error.
func (a *API) readGang(w http.ResponseWriter, r *http.Request, v verb) (*asked, error) {
	req := gangRequest{Pods: podList{table: a.o.Ledger.Table(), identityOnly: v == verbUnreserve}}
	release, err := a.o.Intake.Decode(w, r, maxBody, &req, json.RejectUnknownMembers(true))
	defer release() // what is kept of it is bounded by the number of pods
	if err != nil {
		return nil, err
	}
	return a.check(v, &req, auth.Name(r.Context()))
}
