package kubectl

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// waitPoll is how often a reservation that is waited for is looked at. Polling needs no right but get.
const waitPoll = 250 * time.Millisecond

// awaitAvailable waits until a reservation holds its room. Its errors say what it was waiting for last.
func awaitAvailable(ctx context.Context, cluster *cluster, namespace, name string, timeout time.Duration) (*v1alpha1.Reservation, error) {
	var last *v1alpha1.Reservation
	err := wait.PollUntilContextTimeout(ctx, waitPoll, timeout, true, func(ctx context.Context) (bool, error) {
		current, err := cluster.reservations.GlobalreserveV1alpha1().Reservations(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			// An answer that comes too late is not the API's fault.
			if ctx.Err() != nil {
				return false, nil //nolint:nilerr // the poll ends with the context's own error
			}
			return false, err
		}
		last = current
		phase := current.Status.Phase
		return phase == v1alpha1.ReservationAvailable || phase.IsFinal(), nil
	})
	switch {
	case err == nil && heldItsRoom(last):
		return last, nil
	case err == nil:
		return nil, &codedError{ExitNotAvailable, fmt.Errorf("reservation %q has ended: %s", name, situation(last))}
	case apierrors.IsNotFound(err):
		return nil, &codedError{ExitNotAvailable, fmt.Errorf("reservation %q was deleted while it was waited for", name)}
	case errors.Is(err, context.Canceled):
		return nil, &codedError{ExitNotAvailable, fmt.Errorf("interrupted; reservation %q stays and may become available later", name)}
	case wait.Interrupted(err):
		return nil, &codedError{ExitNotAvailable, fmt.Errorf("reservation %q is not available after %s: %s: "+
			"it stays and may become available later; remove it with kubectl reserve delete %s -n %s",
			name, timeout, situation(last), name, namespace)}
	default:
		return nil, explainAPIError(fmt.Sprintf("wait for reservation %q", name), err)
	}
}

// heldItsRoom tells whether a reservation is available or was: one for pods that wait already may be
// consumed before anybody looks.
func heldItsRoom(r *v1alpha1.Reservation) bool {
	return r.Status.Phase == v1alpha1.ReservationAvailable || r.Status.Phase == v1alpha1.ReservationSucceeded
}

// situation says in words where a reservation stands.
func situation(r *v1alpha1.Reservation) string {
	if r == nil || r.Status.Phase == "" {
		return "the GlobalReserve server has not looked at it yet (is it running, with Reservations enabled?)"
	}
	condition := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionAvailable)
	if condition == nil || condition.Message == "" {
		return string(r.Status.Phase)
	}
	return fmt.Sprintf("%s: %s", r.Status.Phase, condition.Message)
}
