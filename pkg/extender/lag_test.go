package extender

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// A pod that was deleted still has its room in the ledger when its successor, which
// a scheduler knows already, is asked about.
func TestFilterWaitsForTheInformer(t *testing.T) {
	cases := map[string]struct {
		version string
		behind  time.Duration // until the informer has caught up
		fits    bool
		waited  time.Duration
	}{
		"a moment behind":        {version: "7", behind: 30 * time.Millisecond, fits: true, waited: 30 * time.Millisecond},
		"far behind":             {version: "7", behind: time.Hour, waited: maxLag},
		"not the API server's":   {version: "", behind: time.Hour},
		"no version of a number": {version: "abc", behind: time.Hour},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.node("n1", 1000, 2e9)
				w.run("former", "n1", 1000, 1e9)
				w.waitForPods = func(ctx context.Context, version uint64) error {
					assert.EqualValues(t, 7, version)
					select {
					case <-time.After(tt.behind):
						w.ledger.RemovePod(ledger.PodRef{Namespace: "ns", Name: "former", UID: "former"}, 6)
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				pod := newPod("successor")
				pod.ResourceVersion = tt.version
				began := time.Now()
				assert.Equal(t, tt.fits, w.fits(pod, "n1"))
				assert.Equal(t, tt.waited, time.Since(began))
			})
		})
	}
}

// An informer that is far behind must not make every pod of a scheduler wait.
func TestFilterDoesNotWaitAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node("n1", 1000, 2e9)
		waits := 0
		w.waitForPods = func(ctx context.Context, _ uint64) error {
			waits++
			<-ctx.Done()
			return ctx.Err()
		}
		for range 10 {
			assert.True(t, w.fits(newPod("p"), "n1"))
		}
		assert.Equal(t, 1, waits)
		<-time.After(lagPause)
		assert.True(t, w.fits(newPod("p"), "n1"))
		assert.Equal(t, 2, waits)
	})
}

// fits asks filter about one pod on one node.
func (w *world) fits(pod *v1.Pod, node string) bool {
	w.t.Helper()
	var got extenderv1.ExtenderFilterResult
	w.ask("filter", extenderv1.ExtenderArgs{Pod: pod, NodeNames: &[]string{node}}, &got)
	return len(*got.NodeNames) == 1
}
