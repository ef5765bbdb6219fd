package admission

import (
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
)

// status is a refusal in the words and the code its sender gets.
func status(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}
}

func invalid(message string) *metav1.Status {
	return status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, message)
}

// refuse puts an error of the arbiter into the verdict, or into an HTTP error where nothing could be decided.
func (v *verdict) refuse(err error) error {
	if errors.As(err, new(*decide.UncountableError)) {
		v.refusal = invalid(err.Error())
		return nil
	}
	var e *gates.Error
	if !errors.As(err, &e) {
		return err
	}
	code, reason := int32(http.StatusConflict), metav1.StatusReasonConflict
	switch e.Outcome {
	case gates.PodGone:
		if v.pod == nil {
			code, reason = http.StatusNotFound, metav1.StatusReasonNotFound
		}
	case gates.NameTaken:
		reason = metav1.StatusReasonAlreadyExists
	case gates.Refused:
		if e.Rejection == nil || e.Rejection.Reason.OfLimit() { // a gate's refusal, or a limit's
			code, reason = http.StatusForbidden, metav1.StatusReasonForbidden // as ResourceQuota refuses
		}
	case gates.Busy:
		code, reason = http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests
	case gates.Failed, gates.NotReady, gates.Stopping:
		return httpjson.Errorf(http.StatusServiceUnavailable, "%s", err)
	}
	v.refusal, v.rejection = status(code, reason, err.Error()), e.Rejection
	if e.Outcome == gates.Busy && e.Soon { // the API server makes a header of it, by which client-go tries again
		v.refusal.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	}
	return nil
}
