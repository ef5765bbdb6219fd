package arbiter

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/arbiter/refused"
	"github.com/globalreserve/globalreserve/pkg/identity"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Of what a plugin elsewhere says only the names count: a pod that is not there, is another one, has its node or is being
// bound is no refusal, nor one that the nodes have capacity for. Of a foreign scheduler's nothing is remembered.
func TestToldRefusals(t *testing.T) { synctest.Test(t, toldRefusals) }

func toldRefusals(t *testing.T) {
	const caller = "for-scheduler"
	large, fits, bound, binding, foreign := sized("large", "3", 5), sized("fits", "0", 5), sized("bound", "3", 5), sized("binding", "2", 5), sized("foreign", "3", 5)
	bound.Spec.NodeName, foreign.Spec.SchedulerName = "a", "another"
	w := newWorld(t, large, fits, bound, binding, foreign)
	on := sized("on-b", "2", 3)
	on.Spec.NodeName = "b"
	w.observe(bound)
	w.observe(on)
	placement := w.question.Of(w.info(binding), "b")
	_, err := w.o.Ledger.StartBind(&placement)
	require.NoError(t, err)

	forged := ref(large)
	forged.UID = "uid-of-another"
	pods := []ledger.PodRef{ref(large), forged, {Namespace: "ns", Name: "unknown", UID: "u"}, ref(bound), ref(binding), ref(fits)}
	_, err = w.TellRefused(as(t.Context(), caller), append([]ledger.PodRef{ref(foreign)}, pods...))
	require.ErrorAs(t, err, new(*identity.DeniedError))
	list, _ := w.RefusalsAfter(0)
	require.Empty(t, list)

	told, err := w.TellRefused(as(t.Context(), caller), pods)
	require.NoError(t, err)
	assert.Equal(t, Told{Remembered: 1, Ignored: 5}, told)
	list, _ = w.RefusalsAfter(0)
	require.Len(t, list, 1)
	r := list[0]
	assert.Equal(t, []string{refused.Plugin, caller, "scheduler", "InsufficientResource"}, []string{r.Path, r.Caller, r.Scheduler, r.Reason})
	assert.Equal(t, ref(large), r.Rejection.Pod)
	assert.Equal(t, []refused.Count{{Reason: ledger.InsufficientResource, Nodes: 2}}, r.Reasons)
	assert.EqualValues(t, 3000, r.Rejection.Requested)
	assert.Len(t, w.refused.Waiting(), 1)

	w.undecided.Store(new("another server decides"))
	_, err = w.TellRefused(as(t.Context(), caller), pods)
	var undecided *Error
	require.True(t, errors.As(err, &undecided) && undecided.Outcome == NotReady, err)
}

// A scheduler's watch is often ahead of the server's, and it tells of a pod once: what the API server has of one that the watch
// has not brought counts.
func TestToldRefusalsOfNewPods(t *testing.T) {
	cases := map[string]struct {
		setup  func(w *world, p *v1.Pod)
		want   Told
		took   time.Duration
		denied bool
	}{
		"not brought yet": {setup: func(*world, *v1.Pod) {}, want: Told{Remembered: 1}},
		"its name was another one's": {
			setup: func(w *world, p *v1.Pod) {
				former := p.DeepCopy()
				former.UID = "former"
				w.bring(former)
			},
			want: Told{Remembered: 1},
		},
		"of another scheduler": {setup: func(_ *world, p *v1.Pod) { p.Spec.SchedulerName = "another" }, denied: true},
		"bound":                {setup: func(_ *world, p *v1.Pod) { p.Spec.NodeName = "a" }, want: Told{Ignored: 1}},
		"finished":             {setup: func(_ *world, p *v1.Pod) { p.Status.Phase = v1.PodFailed }, want: Told{Ignored: 1}},
		"gone":                 {setup: func(w *world, p *v1.Pod) { w.api.remove(p) }, want: Told{Ignored: 1}},
		"not to be counted":    {setup: func(_ *world, p *v1.Pod) { uncountable(p) }, want: Told{Ignored: 1}},
		"the API server fails": {
			setup: func(w *world, _ *v1.Pod) { w.api.get = fail(1, errInternal) }, want: Told{Dropped: 1},
		},
		"the API server hangs": {
			setup: func(w *world, _ *v1.Pod) { w.api.get = fail(1, context.DeadlineExceeded) },
			want:  Told{Dropped: 1}, took: toldReadTimeout,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				known, p := sized("known", "5", 5), sized("p", "5", 6)
				w := newWorld(t, known)
				w.api.put(p)
				tc.setup(w, p)
				began := time.Now()
				told, err := w.TellRefused(as(t.Context(), "for-scheduler"), []ledger.PodRef{ref(p), ref(known)})
				if tc.denied {
					require.ErrorAs(t, err, new(*identity.DeniedError))
					list, _ := w.RefusalsAfter(0)
					assert.Len(t, list, 1, "the one that is known")
					return
				}
				require.NoError(t, err)
				tc.want.Remembered++
				assert.Equal(t, tc.want, told)
				assert.Equal(t, tc.took, time.Since(began))
				assert.Equal(t, 1, w.api.gets)
				list, _ := w.RefusalsAfter(0)
				assert.Len(t, list, tc.want.Remembered)
			})
		})
	}
}

// manyPods returns n pods of names that begin with one.
func manyPods(name string, n int) (pods []*v1.Pod, refs []ledger.PodRef) {
	for i := range n {
		pods = append(pods, sized(fmt.Sprintf("%s-%d", name, i), "5", 5))
		refs = append(refs, ref(pods[i]))
	}
	return pods, refs
}

// What is told of beyond the rate is dropped, whoever tells. Nothing is looked at of a pod that does not wait.
func TestToldRefusalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods, refs := manyPods("large", 1000)
		wrong := sized("wrong", "5", 5)
		uncountable(wrong)
		w := newWorld(t, append(pods, wrong)...)
		tell := func(refs ...ledger.PodRef) Told {
			told, err := w.TellRefused(as(t.Context(), "for-scheduler"), refs)
			require.NoError(t, err)
			return told
		}
		assert.Equal(t, Told{Remembered: toldBurst, Dropped: 1000 - toldBurst}, tell(refs...))
		assert.Equal(t, Told{Dropped: 1000}, tell(refs...))
		assert.Equal(t, Told{Ignored: 1}, tell(ref(wrong)))
		<-time.After(time.Second / 2)
		assert.Equal(t, Told{Remembered: toldRate / 2, Dropped: 1000 - toldRate/2}, tell(refs...))
		<-time.After(time.Second / 2)
		assert.Equal(t, Told{Remembered: 1}, tell(refs[0], refs[0], refs[0]), "it is one pod")
		assert.Zero(t, w.api.gets)
	})
}

// Names of pods that are not there cost as many reads as there may be, one for each name. The pods of others are looked at all the same.
func TestMadeUpNamesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := sized("large", "5", 5)
		w := newWorld(t, large)
		_, none := manyPods("none", 1000)
		tell := func(caller string, refs ...ledger.PodRef) Told {
			told, err := w.TellRefused(as(t.Context(), caller), refs)
			require.NoError(t, err)
			return told
		}
		assert.Equal(t, Told{Ignored: 1}, tell("somebody", none[0], none[0], none[0]))
		assert.Equal(t, 1, w.api.gets, "it is one name")
		assert.Equal(t, Told{Ignored: toldBurst - 1, Dropped: 1001 - toldBurst}, tell("somebody", none...))
		assert.Equal(t, toldBurst, w.api.gets)
		assert.Equal(t, Told{Remembered: 1}, tell("for-scheduler", ref(large)))

		<-time.After(time.Second)
		_, err := w.TellRefused(as(t.Context(), "somebody"), append(none, ref(large)))
		require.ErrorAs(t, err, new(*identity.DeniedError))
		assert.Equal(t, toldBurst, w.api.gets, "nothing is read for who may not tell of what is known")
	})
}

// As many pods as the plugin tells of are looked at, be they all new.
func TestToldRefusalsAtTheRateOfThePlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for round := range 10 {
			pods, refs := manyPods(fmt.Sprintf("new-%d", round), 100)
			for _, p := range pods {
				w.api.put(p)
			}
			told, err := w.TellRefused(as(t.Context(), "for-scheduler"), refs)
			require.NoError(t, err)
			assert.Equal(t, Told{Remembered: 100}, told)
			<-time.After(time.Second / 2)
		}
	})
}

// Pods that are known do not wait for those that are read, and these all together wait a moment at most.
func TestToldRefusalsWhileTheAPIServerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := sized("large", "5", 5)
		w := newWorld(t, large)
		_, refs := manyPods("new", 100)
		w.api.get = func(int) error {
			list, _ := w.RefusalsAfter(0)
			assert.Len(t, list, 1)
			return context.DeadlineExceeded
		}
		began := time.Now()
		told, err := w.TellRefused(as(t.Context(), "for-scheduler"), append(refs, ref(large)))
		require.NoError(t, err)
		assert.Equal(t, Told{Remembered: 1, Dropped: 100}, told)
		assert.Equal(t, toldReadTimeout, time.Since(began))
	})
}
