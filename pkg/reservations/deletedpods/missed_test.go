package deletedpods

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// standBy has the Keeper be that of a server that does not decide.
func (w *world) standBy() { w.leads = false }

// keptFor puts an object there that keeps the capacity of a pod of a UID.
func (w *world) keptFor(name, uid string) {
	w.write(name)
	object := w.api.Objects[types.NamespacedName{Namespace: "ns", Name: name}]
	object.Labels = map[string]string{convert.MadeByLabel: convert.MadeByDeletedPod}
	object.Annotations = map[string]string{podUIDAnnotation: uid}
	w.taken[name] = true
}

func TestTakeOver(t *testing.T) {
	keepsDeployment := map[string]string{v1alpha1.ReservationAnnotation: "true"}
	type testCase struct {
		pod       *cluster.Pod
		after     time.Duration // from its end to the takeover
		led       time.Duration // for how long of that another server decided
		meanwhile func(w *world)
		want      []string // the slots that are kept
	}
	tests := map[string]testCase{
		"it asks":             {pod: pod("a", nil), want: []string{"ns/a/deleted-pod"}},
		"its Deployment asks": {pod: pod("a", ofDeployment), want: []string{"ns/a/deleted-pod"}},
		"it asks for nothing": {pod: pod("a", func(p *cluster.Pod) { p.Annotations = nil })},
		"it was long ago":     {pod: pod("a", nil), after: missedFor + time.Second},
		"the server before this decided for long": {pod: pod("a", nil), after: 10 * time.Second, led: overlap + time.Second},
		"the server before this decided for an instant": {
			pod: pod("a", nil), after: 10 * time.Second, led: overlap, want: []string{"ns/a/deleted-pod"},
		},
		"it finished, and then was deleted": {
			pod: pod("a", nil), meanwhile: func(w *world) { w.Keep(pod("a", nil)) },
			want: []string{"ns/a/deleted-pod"},
		},
		"its time is over": {
			pod: pod("a", func(p *cluster.Pod) { p.Annotations.TTL = "5s" }), after: 5 * time.Second,
		},
		"the server before this kept it": {pod: pod("a", nil), meanwhile: func(w *world) { w.keptFor("a", "uid-of-a") }},
		"kept under another name": {pod: pod("a", nil), meanwhile: func(w *world) {
			w.write("a")
			w.taken["a"] = true
			w.keptFor("a-uid-of-a", "uid-of-a")
		}},
		"another's Reservation has its name": {
			pod: pod("a", nil), meanwhile: func(w *world) { w.write("a"); w.taken["a"] = true },
			want: []string{"ns/a-uid-of-a/deleted-pod"},
		},
		"that of an earlier pod has its name": {
			pod: pod("a", nil), meanwhile: func(w *world) { w.keptFor("a", "uid-of-earlier") },
			want: []string{"ns/a-uid-of-a/deleted-pod"},
		},
		"no Reservations can be made": {pod: pod("a", nil), meanwhile: func(w *world) { w.serving = false }},
		"the policy keeps none":       {pod: pod("a", nil), meanwhile: (*world).switchOff},
		"others have the capacity": {pod: pod("a", nil), meanwhile: func(w *world) {
			other := pod("b", nil)
			w.ledger.ObservePod(ledger.PodObservation{Pod: other.Ref, Node: "n", Request: other.Request})
			other = pod("c", nil)
			w.ledger.ObservePod(ledger.PodObservation{Pod: other.Ref, Node: "n", Request: other.Request})
		}},
	}
	bubble.Each(t, tests, func(t *testing.T, test testCase) {
		w := newWorld(t, deployment("web", keepsDeployment))
		w.standBy()
		w.remove(test.pod)
		assert.Empty(t, w.slots(), "another server decides")
		since := time.Now().Add(test.led)
		<-time.After(test.after)
		if test.meanwhile != nil {
			test.meanwhile(w)
		}
		objects := len(w.names())
		assert.Equal(t, len(test.want), w.TakeOver(t.Context(), since))
		synctest.Wait()
		assert.ElementsMatch(t, test.want, w.slots())
		assert.Len(t, w.names(), objects+len(test.want), "objects")
	})
}

// The time that passed since the pod ended counts.
func TestTakeOverInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
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

// silent is a network on which nothing is ever answered.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// Nobody decides while a server takes over, so that has to end whatever the API server does. What does not depend on
// Deployments is kept.
func TestTakeOverEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Stop()
		client, err := metadata.NewForConfig(&rest.Config{Host: "http://api", Transport: silent{}, QPS: -1})
		require.NoError(t, err)
		log, lines := logtest.NewNullLogger()
		w.Deployments, w.Log = NewDeployments(client, log), log
		w.standBy()
		begun := time.Now()
		for i := range 20 {
			w.remove(pod(fmt.Sprint("of-deployment-", i), func(p *cluster.Pod) {
				p.Annotations, p.Controller = nil, cluster.Controller{Kind: "Deployment", Name: fmt.Sprint("web-", i)}
			}))
		}
		w.remove(pod("asks", nil))
		w.remove(pod("taken", nil))
		w.taken["taken"] = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.Equal(t, 2, w.TakeOver(ctx, begun))
		assert.Equal(t, 2*time.Second, time.Since(begun))
		assert.Equal(t, []string{"ns/asks/deleted-pod", "ns/taken-uid-of-t/deleted-pod"}, w.slots())
		warnings := slices.DeleteFunc(lines.AllEntries(), func(e *logrus.Entry) bool { return e.Level != logrus.WarnLevel })
		assert.Len(t, warnings, 1, "of Deployments")
	})
}

// A pod that ends while a server waits for Deployments is not forgotten.
func TestPodsThatEndDuringTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Stop()
		w.Deployments = NewDeployments(w.metadata, w.Log)
		w.standBy()
		w.remove(pod("of-deployment", ofDeployment))
		kept := make(chan int)
		go func() { kept <- w.TakeOver(t.Context(), time.Now()) }()
		synctest.Wait()
		w.remove(pod("late", nil))
		assert.Equal(t, 1, <-kept)
		assert.Equal(t, []string{"ns/late/deleted-pod"}, w.slots())
	})
}

func TestMissedPodsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
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
