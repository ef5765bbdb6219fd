package arbiter

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/follow"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Only so many Bindings are under way at the API server at a time; the others wait for their turn, and those whose time
// is over by then were never sent.
func TestBindsTakeTurns(t *testing.T) {
	for name, tc := range map[string]struct {
		hang  time.Duration // how long each of the first takes
		bound int
	}{
		"slow":  {hang: time.Second, bound: maxPosts + 6},
		"stuck": {hang: bindTimeout + time.Second, bound: maxPosts},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var pods []*v1.Pod
				for i := range maxPosts + 6 {
					pods = append(pods, newPod("p"+strconv.Itoa(i)))
				}
				w := newWorld(t, pods...)
				w.ledger.ObserveNode(ledger.NodeObservation{Name: "large", Allocatable: []resources.Amount{
					{Column: resources.CPU, Value: 1000000}, {Column: resources.Pods, Value: 1000},
				}})
				slow := &slowAPI{fakeAPI: w.api, took: tc.hang}
				w.o.API, w.pods.api = slow, slow
				errs := make(chan error, len(pods))
				for _, p := range pods {
					go func() { errs <- w.bindPod(p, "large") }()
				}
				synctest.Wait()
				w.api.change(func() { assert.Equal(t, maxPosts, w.api.posts) })
				bound := 0
				for range pods {
					if err := <-errs; err == nil {
						bound++
					}
				}
				w.end()
				w.api.change(func() { assert.Equal(t, tc.bound, w.api.posts, "POSTs") })
				if tc.hang < bindTimeout {
					assert.Equal(t, len(pods), bound)
				}
			})
		})
	}
}

// slowAPI takes its time to bind.
type slowAPI struct {
	*fakeAPI
	took time.Duration
}

func (a *slowAPI) Bind(ctx context.Context, binding *v1.Binding) error {
	err := a.fakeAPI.Bind(ctx, binding)
	follow.Pause(context.WithoutCancel(ctx), a.took)
	return err
}

// Answers that come too late halve the Bindings under way, and good ones bring them back.
func TestTurnsAfterSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		round := func(slow bool) (n int) {
			for len(turns.places) < maxPosts {
				require.True(t, turns.take(t.Context()))
				n++
			}
			for range n {
				turns.give(slow)
			}
			return n
		}
		assert.Equal(t, maxPosts, round(true))
		assert.Equal(t, maxPosts/2, round(true), "of answers that come together the first counts")
		assert.Equal(t, maxPosts/2, round(false))
		assert.Equal(t, maxPosts/2+1, round(false))
		for range 10 {
			assert.True(t, follow.Pause(t.Context(), slowFor))
			round(true)
		}
		assert.Equal(t, leastPosts, round(false))
		for range maxPosts {
			round(false)
		}
		assert.Equal(t, maxPosts, round(false))
		assert.Empty(t, turns.places)
	})
}
