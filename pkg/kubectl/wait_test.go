package kubectl

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// become writes a status some time from now, as the server does.
func (r *rig) become(after time.Duration, phase v1alpha1.ReservationPhase, message string) {
	time.AfterFunc(after, func() {
		client := r.reservations.GlobalreserveV1alpha1().Reservations("default")
		current, err := client.Get(context.Background(), "new", metav1.GetOptions{})
		if !assert.NoError(r.t, err) {
			return
		}
		current.Status.Phase, current.Status.NodeName = phase, "node-1"
		current.Status.Conditions = condition("False", "Whatever", message)
		_, err = client.UpdateStatus(context.Background(), current, metav1.UpdateOptions{})
		assert.NoError(r.t, err)
	})
}

func TestCreateWaits(t *testing.T) {
	for name, tt := range map[string]struct {
		args  []string
		after func(*rig)
		code  int
		out   string
		says  string
	}{
		"available": {
			args:  []string{"--wait"},
			after: func(r *rig) { r.become(59*time.Second, v1alpha1.ReservationAvailable, "") },
			out:   "reservation.globalreserve.io/new created\nreservation.globalreserve.io/new available on node-1\n",
		},
		"used before anybody looked": {
			args:  []string{"--wait"},
			after: func(r *rig) { r.become(time.Second, v1alpha1.ReservationSucceeded, "") },
			out:   "reservation.globalreserve.io/new created\nreservation.globalreserve.io/new available on node-1\n",
		},
		"available, told by name": {
			args:  []string{"--wait=2m", "-o", "name"},
			after: func(r *rig) { r.become(119*time.Second, v1alpha1.ReservationAvailable, "") },
			out:   "reservation.globalreserve.io/new\n",
		},
		"never looked at": {
			args: []string{"--wait"},
			code: exitNotAvailable,
			out:  "reservation.globalreserve.io/new created\n",
			says: `error: reservation "new" is not available yet: the GlobalReserve server has not looked at it yet ` +
				"(is it running, with Reservations enabled?): it stays and may become available later; remove it with kubectl " +
				"delete rsv new -n default\n",
		},
		"failed": {
			args:  []string{"--wait"},
			after: func(r *rig) { r.become(time.Second, v1alpha1.ReservationFailed, "node node-1 is gone") },
			code:  exitNotAvailable,
			out:   "reservation.globalreserve.io/new created\n",
			says:  "error: reservation \"new\" has ended: Failed: node node-1 is gone\n",
		},
		"deleted": {
			args: []string{"--wait"},
			after: func(r *rig) {
				time.AfterFunc(time.Second, func() {
					client := r.reservations.GlobalreserveV1alpha1().Reservations("default")
					assert.NoError(r.t, client.Delete(context.Background(), "new", metav1.DeleteOptions{}))
				})
			},
			code: exitNotAvailable,
			out:  "reservation.globalreserve.io/new created\n",
			says: "error: reservation \"new\" was deleted while it was waited for\n",
		},
		"not waited for": {
			args: []string{"--wait=0s"},
			out:  "reservation.globalreserve.io/new created\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			synctest.Test(t, func(t *testing.T) {
				if tt.after != nil {
					tt.after(r)
				}
				got := r.runContext(t.Context(), append([]string{"create", "new", "--cpu", "4"}, tt.args...)...)
				assert.Equal(t, tt.out, got.out)
				assert.Equal(t, tt.says, got.err)
				assert.Equal(t, tt.code, got.code)
			})
		})
	}
}

func TestCreateInterrupted(t *testing.T) {
	r := newRig(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		got := r.runContext(ctx, "create", "new", "--cpu", "4", "--wait")
		assert.Equal(t, exitNotAvailable, got.code)
		assert.Contains(t, got.err, `reservation "new" is not available yet: `)
	})
}
