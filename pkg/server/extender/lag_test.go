package extender

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// How long one answer waits for the watch, and then all do without.
const (
	maxLag   = 100 * time.Millisecond
	lagPause = time.Second
)

// A pod that was deleted still has its room in the ledger when its successor, which
// a scheduler knows already, is asked about.
func TestFilterWaitsForTheWatch(t *testing.T) {
	cases := map[string]struct {
		version string
		behind  time.Duration // until the watch has caught up
		fits    bool
		waited  time.Duration
	}{
		"a moment behind":        {version: "8", behind: 30 * time.Millisecond, fits: true, waited: 30 * time.Millisecond},
		"far behind":             {version: "8", behind: time.Hour, waited: maxLag},
		"not the API server's":   {version: "", behind: time.Hour},
		"no version of a number": {version: "abc", behind: time.Hour},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.node("n1", 1000, 2e9)
				w.run("former", "n1", 1000, 1e9)
				pod := newPod("successor")
				pod.ResourceVersion = "8"
				w.api.put(pod)
				caught := time.AfterFunc(tt.behind, func() {
					w.ledger.RemovePod(ledger.PodRef{Namespace: "ns", Name: "former", UID: "former"}, 6)
					w.bring(pod)
				})
				defer caught.Stop()
				asked := pod.DeepCopy()
				asked.ResourceVersion = tt.version
				began := time.Now()
				assert.Equal(t, tt.fits, w.fits(asked, "n1"))
				assert.Equal(t, tt.waited, time.Since(began))
			})
		})
	}
}

// A watch that is far behind must not make every pod of a scheduler wait.
func TestFilterDoesNotWaitAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node("n1", 1000, 2e9)
		ask := func(k int) time.Duration {
			pod := newPod(fmt.Sprint("p", k))
			pod.ResourceVersion = fmt.Sprint(startVersion + 1 + k)
			w.api.put(pod)
			began := time.Now()
			assert.True(t, w.fits(pod, "n1"))
			return time.Since(began)
		}
		assert.Equal(t, maxLag, ask(0))
		for k := range 10 {
			assert.Zero(t, ask(k))
		}
		<-time.After(lagPause)
		assert.Equal(t, maxLag, ask(10))
	})
}

// fits asks filter about one pod on one node.
func (w *world) fits(pod *v1.Pod, node string) bool {
	w.t.Helper()
	var got extenderv1.ExtenderFilterResult
	w.ask("filter", extenderv1.ExtenderArgs{Pod: pod, NodeNames: &[]string{node}}, &got)
	return len(*got.NodeNames) == 1
}
