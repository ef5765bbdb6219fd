package decide

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// A version that the API server does not have costs one live read, and not one for each later look.
func TestVersionThatDoesNotExist(t *testing.T) {
	one := func() []*v1.Pod { return []*v1.Pod{sized("p", "1", 5)} }
	anywhere(t, one, func(t *testing.T, w *world, pods []*v1.Pod) {
		p := pods[0]
		_, err := w.pods.find(t.Context(), ref(p), noVersion)
		require.NoError(t, err)
		assert.Equal(t, 1, w.api.gets)
		<-time.After(lagPause)
		start := time.Now()
		for _, version := range []uint64{0, 5, 4} {
			info, err := w.pods.find(t.Context(), ref(p), version)
			require.NoError(t, err)
			assert.EqualValues(t, 5, info.ResourceVersion)
		}
		assert.Equal(t, 1, w.api.gets)
		assert.Zero(t, time.Since(start))

		p.ResourceVersion = "9"
		w.bring(p)
		info, err := w.pods.find(t.Context(), ref(p), 0)
		require.NoError(t, err)
		assert.EqualValues(t, 9, info.ResourceVersion, "what the watch brings later is newer")
		assert.Equal(t, 1, w.api.gets)
	})
}

// What was read live is not forgotten for something older that the watch brings.
func TestReadIsNewerThanWhatTheWatchBrings(t *testing.T) {
	bubble.Each(t, map[string]uint64{"a version was named": 6, "none was": 0}, func(t *testing.T, version uint64) {
		p := sized("p", "3", 7)
		w := newWorld(t, p)
		w.forget()
		_, err := w.pods.find(t.Context(), ref(p), version)
		require.NoError(t, err)
		w.bring(sized("p", "1", 6))
		info, err := w.pods.find(t.Context(), ref(p), 0)
		require.NoError(t, err)
		assert.EqualValues(t, 7, info.ResourceVersion)
	})
}

// A live read under way says nothing of a version that is named meanwhile.
func TestVersionNamedDuringRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sized("p", "1", 5)
		w := newWorld(t, p)
		p.ResourceVersion = "7"
		w.api.get = func(n int) error {
			if n == 0 {
				w.pods.named(p.UID, 9)
			}
			return nil
		}
		info, err := w.pods.find(t.Context(), ref(p), 7)
		require.NoError(t, err)
		assert.EqualValues(t, 7, info.ResourceVersion)
		w.bring(p)
		p.ResourceVersion = "9"
		info, err = w.pods.find(t.Context(), ref(p), 0)
		require.NoError(t, err)
		assert.EqualValues(t, 9, info.ResourceVersion)
	})
}

// Requests about pods whose UID nobody knows yet have nothing to do with each other.
func TestVersionOfPodWithoutUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := sized("p", "1", 5), sized("q", "1", 6)
		w := newWorld(t, p, q)
		_, err := w.pods.find(t.Context(), ledger.PodRef{Namespace: "ns", Name: "p"}, noVersion)
		require.NoError(t, err)
		<-time.After(lagPause)
		start := time.Now()
		info, err := w.pods.find(t.Context(), ledger.PodRef{Namespace: "ns", Name: "q"}, 6)
		require.NoError(t, err)
		assert.Equal(t, q.UID, info.Ref.UID)
		assert.Zero(t, time.Since(start))
	})
}

// A pod that filter finds bound before the watch has brought that is counted, once.
func TestFilterCountsBoundPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := sized("p", "3", 5), sized("q", "3", 6)
		w := newWorld(t, p, q)
		p.ResourceVersion, p.Spec.NodeName = "7", "a"
		for range 2 {
			w.reasons(w.query(p, 7, small), "a")
		}
		_, said := w.reasons(w.query(q, 6, small), "a", "b")
		assert.Equal(t, map[string]ledger.Reason{"a": ledger.InsufficientResource, "b": ledger.Fits}, said)
		w.bring(p)
		w.observe(p)
		assert.Equal(t, 1, w.ledger.Stats().Allocations[ledger.Bound])
	})
}

// Where the API server says nothing of a pod, advice is given on the caller's copy, and nothing is done for it.
func TestAdviceByTheCopy(t *testing.T) {
	unknown := map[string]func(w *world, p *v1.Pod){
		"the API server is away": func(w *world, _ *v1.Pod) { w.api.get = func(int) error { return errRefused } },
		"it has no such pod":     func(w *world, p *v1.Pod) { w.api.remove(p) },
		"it has another one": func(w *world, p *v1.Pod) {
			other := p.DeepCopy()
			other.UID = "other"
			w.api.put(other)
		},
	}
	bubble.Each(t, unknown, func(t *testing.T, setup func(w *world, p *v1.Pod)) {
		p, q := sized("p", "3", 5), sized("q", "3", 6)
		indexed(q)
		w := newWorld(t, p, q)
		w.forget()
		w.bring(q)
		setup(w, p)
		w.offer(consumedByIndex)
		require.True(t, w.ledger.ObserveSlot(slot(4)))
		forge := func(p *v1.Pod) { important(p); indexed(p) }

		advice, said := w.reasons(w.query(p, 5, forge), "a", "b")
		assert.False(t, advice.Known)
		assert.False(t, advice.ComesBack)
		assert.Equal(t, ref(p), advice.Pod.Ref)
		assert.Equal(t, map[string]ledger.Reason{"a": ledger.Fits, "b": ledger.Fits}, said, "its choice is not narrowed down")
		_, _, err := w.Prioritize(t.Context(), w.query(p, 5, forge), []string{"a", "b"})
		require.NoError(t, err)
		_, others := w.reasons(w.query(q, 6, indexed), "a", "b")
		assert.Equal(t, map[string]ledger.Reason{"a": ledger.Fits, "b": ledger.AllocatedElsewhere}, others,
			"nobody is kept away from the slot")
	})
	bubble.Each(t, unknown, func(t *testing.T, setup func(w *world, p *v1.Pod)) { // it preempts nothing
		p := sized("p", "3", 5)
		w := newWorld(t, p)
		w.forget()
		setup(w, p)
		kept := slot(4)
		kept.Preemptible = true
		require.True(t, w.ledger.ObserveSlot(kept))
		for range looksBeforePreempting + 1 {
			advice, said := w.reasons(w.query(p, 5, important), "a")
			assert.False(t, advice.Known)
			assert.False(t, advice.TryAgain)
			assert.Equal(t, ledger.InsufficientResource, said["a"])
		}
		assert.Equal(t, 1, w.waiting.CountLook(ref(p)), "none was counted")
	})
}

// The caller gets the error of its copy.
func TestCopyThatCannotBeRead(t *testing.T) {
	wrong := errors.New("Pod: not a pod")
	p := sized("p", "1", 5)
	w := newWorld(t)
	q := &PodQuery{Ref: ref(p), Version: 5, Copy: func() (*cluster.Pod, error) { return nil, wrong }}
	_, err := w.Filter(t.Context(), q, []string{"a"}, &Scratch{})
	require.ErrorIs(t, err, wrong)
	_, _, err = w.Prioritize(t.Context(), q, []string{"a"})
	require.ErrorIs(t, err, wrong)
	_, _, err = w.Preempt(t.Context(), q, map[string][]types.UID{"a": nil})
	require.ErrorIs(t, err, wrong)

	q.Copy = func() (*cluster.Pod, error) { return nil, &UncountableError{Cause: wrong} }
	advice, err := w.Filter(t.Context(), q, []string{"a"}, &Scratch{})
	require.NoError(t, err)
	require.ErrorIs(t, advice.Refused, wrong)
}
