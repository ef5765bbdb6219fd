package deletedpods

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// standBy has the Keeper be that of a server that does not decide.
func (w *world) standBy() { w.leads = false }

func TestTakeOver(t *testing.T) {
	keepsDeployment := map[string]string{v1alpha1.ReservationAnnotation: "true"}
	tests := map[string]struct {
		pod       *cluster.Pod
		after     time.Duration // from its end to the takeover
		led       time.Duration // for how long of that another server decided
		meanwhile func(w *world)
		want      []string // the slots that are kept
	}{
		"it asks":             {pod: pod("a", nil), want: []string{"ns/a/deleted-pod"}},
		"its Deployment asks": {pod: pod("a", ofDeployment), want: []string{"ns/a/deleted-pod"}},
		"it asks for nothing": {pod: pod("a", func(p *cluster.Pod) { p.Annotations = nil })},
		"it was long ago":     {pod: pod("a", nil), after: missedFor + time.Second},
		"the server before this decided for long": {pod: pod("a", nil), after: 10 * time.Second, led: overlap +
			time.Second},
		"the server before this decided for an instant": {
			pod: pod("a", nil), after: 10 * time.Second, led: overlap,
			want: []string{"ns/a/deleted-pod"},
		},
		"its time is over": {
			pod:   pod("a", func(p *cluster.Pod) { p.Annotations.TTL = "5s" }),
			after: 5 * time.Second,
		},
		"the server before this kept it": {pod: pod("a", nil), meanwhile: func(w *world) { w.taken["a"] = true }},
		"kept under another name":        {pod: pod("a", nil), meanwhile: func(w *world) { w.taken["a-uid-of-a"] = true }},
		"no Reservations can be made":    {pod: pod("a", nil), meanwhile: func(w *world) { w.serving = false }},
		"the policy keeps none":          {pod: pod("a", nil), meanwhile: (*world).switchOff},
		"others have the capacity": {pod: pod("a", nil), meanwhile: func(w *world) {
			other := pod("b", nil)
			w.ledger.ObservePod(ledger.PodObservation{Pod: other.Ref, Node: "n", Request: other.Request})
			other = pod("c", nil)
			w.ledger.ObservePod(ledger.PodObservation{Pod: other.Ref, Node: "n", Request: other.Request})
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, deployment("web", keepsDeployment))
				defer w.Stop()
				w.standBy()
				w.remove(test.pod)
				assert.Empty(t, w.slots(), "another server decides")
				since := time.Now().Add(test.led)
				<-time.After(test.after)
				if test.meanwhile != nil {
					test.meanwhile(w)
				}
				assert.Equal(t, len(test.want), w.TakeOver(t.Context(), since))
				synctest.Wait()
				assert.ElementsMatch(t, test.want, w.slots())
				assert.Len(t, w.names(), len(test.want), "objects")
			})
		})
	}
}

// The time that passed since the pod ended counts.
func TestTakeOverInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.Stop()
		w.standBy()
		ended := time.Now()
		w.remove(pod("a", nil))
		<-time.After(20 * time.Second)
		require.Equal(t, 1, w.TakeOver(t.Context(), ended))
		slot := w.ledger.ReservationSlots("ns", "a")[0]
		assert.Equal(t, ended.Add(time.Minute).Truncate(time.Second), slot.Deadline.Truncate(time.Second))
		assert.WithinDuration(t, ended, slot.AvailableAt, time.Second)
		w.remove(pod("b", nil))
		assert.Len(t, w.slots(), 2, "from now on what ends is kept at once")
		assert.Zero(t, w.TakeOver(t.Context(), ended))
	})
}

func TestMissedPodsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.Stop()
		w.standBy()
		for i := range maxMissed + 10 {
			require.True(t, w.miss(pod(fmt.Sprint("p", i), nil)))
		}
		assert.Len(t, w.missed, maxMissed)
		assert.Equal(t, "p10", w.missed[0].last.Ref.Name, "the latest are kept")
		<-time.After(missedFor + time.Second)
		require.True(t, w.miss(pod("last", nil)))
		assert.Len(t, w.missed, 1)
	})
}
