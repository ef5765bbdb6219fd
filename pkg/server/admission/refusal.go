package admission

import (
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// refusal is why a request is refused, in the words and the code its sender gets.
type refusal struct {
	code    int32
	reason  metav1.StatusReason
	message string
	// rejection is the ledger's, where it was the ledger that refused.
	rejection *ledger.Rejection
}

func refuse(code int32, reason metav1.StatusReason, message string) *refusal {
	return &refusal{code: code, reason: reason, message: message}
}

func invalid(message string) *refusal {
	return refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, message)
}

// refusalOf puts an error of the arbiter into a refusal, or into an HTTP error where
// nothing could be decided. pod is nil where there is none.
func refusalOf(err error, pod *cluster.Pod) (*refusal, error) {
	var e *arbiter.Error
	if errors.As(err, new(*arbiter.UncountableError)) {
		return invalid(err.Error()), nil
	}
	if !errors.As(err, &e) {
		return nil, err
	}
	r := refuse(http.StatusConflict, metav1.StatusReasonConflict, err.Error())
	r.rejection = e.Rejection
	switch e.Outcome {
	case arbiter.PodGone:
		if pod == nil {
			r.code, r.reason = http.StatusNotFound, metav1.StatusReasonNotFound
		}
	case arbiter.NameTaken:
		r.reason = metav1.StatusReasonAlreadyExists
	case arbiter.Busy:
		r.code, r.reason = http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests
	case arbiter.Failed, arbiter.NotReady, arbiter.Stopping:
		return nil, httpjson.Errorf(http.StatusServiceUnavailable, "%s", err)
	}
	return r, nil
}
