package decide

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// noVersion is newer than any state the API server has.
const noVersion = 999_999_999

// sized returns a pod of the API server's.
func sized(name, cpu string, version int) *v1.Pod {
	p := newPod(name)
	p.ResourceVersion = strconv.Itoa(version)
	p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse(cpu)
	return p
}

// query asks about a pod with a copy of it that says something else.
func (w *world) query(p *v1.Pod, version uint64, forge func(*v1.Pod)) *PodQuery {
	return &PodQuery{Ref: ref(p), Version: version, Copy: func() (*cluster.Pod, error) {
		forged := p.DeepCopy()
		forge(forged)
		return w.info(forged), nil
	}}
}

// small makes a pod ask for next to nothing.
func small(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1m") }

// important makes a pod one of a high priority.
func important(p *v1.Pod) { p.Spec.Priority = new(int32(100)) }

// indexed makes a pod one that may use the reservations of index i.
func indexed(p *v1.Pod) {
	p.Annotations = map[string]string{v1alpha1.ReservationIndexAnnotation: "i"}
}

// consumedByIndex makes a reservation one for pods of index i.
func consumedByIndex(r *v1alpha1.Reservation) { r.Spec.Consumers = &v1alpha1.ConsumerSpec{Index: "i"} }

// reasons is what filter says of nodes.
func (w *world) reasons(q *PodQuery, nodes ...string) (*Advice, map[string]ledger.Reason) {
	w.t.Helper()
	advice, err := w.Filter(w.t.Context(), q, nodes, &Scratch{})
	require.NoError(w.t, err)
	said := map[string]ledger.Reason{}
	for i, v := range advice.Verdicts {
		said[nodes[i]] = v.Reason
	}
	return advice, said
}

// anywhere runs a test with a watch that has brought the pods, and with one that has not.
func anywhere(t *testing.T, pods func() []*v1.Pod, test func(t *testing.T, w *world, pods []*v1.Pod)) {
	cases := map[string]bool{"the watch has brought the pods": true, "the watch has not": false}
	bubble.Each(t, cases, func(t *testing.T, brought bool) {
		pods := pods()
		w := newWorld(t, pods...)
		if !brought {
			w.forget()
		}
		test(t, w, pods)
	})
}

// Whoever sends a copy cannot say with it what a pod may have: where the API server has the pod, nobody looks at the
// copy.
func TestCopiesOfKnownPodsCountForNothing(t *testing.T) {
	anywhere(t, func() []*v1.Pod { return []*v1.Pod{sized("p", "3", 5)} }, func(t *testing.T, w *world, pods []*v1.Pod) {
		q := &PodQuery{Ref: ref(pods[0]), Version: noVersion, Copy: func() (*cluster.Pod, error) {
			t.Error("the copy was asked for")
			return nil, errForbidden
		}}
		own := w.info(pods[0]).Request
		advice, err := w.Filter(t.Context(), q, []string{"a"}, &Scratch{})
		require.NoError(t, err)
		assert.True(t, advice.Known)
		assert.Equal(t, own, advice.Pod.Request)
		pod, _, err := w.Prioritize(t.Context(), q, []string{"a"})
		require.NoError(t, err)
		assert.Equal(t, own, pod.Request)

		var victims []types.UID
		for k := range 4 {
			victim := newPod(fmt.Sprint(k))
			w.observeOn(victim, "a")
			victims = append(victims, victim.UID)
		}
		for count, fits := range []bool{false, false, false, true, true} {
			pod, got, err := w.Preempt(t.Context(), q, map[string][]types.UID{"a": victims[:count]})
			require.NoError(t, err)
			assert.Equal(t, own, pod.Request)
			assert.Equal(t, map[string]bool{"a": fits}, got, "%d of four victims", count)
		}
	})
}

// TestFind looks for a pod that the API server has at version 7 and the watch has brought at version 5.
func TestFind(t *testing.T) {
	const soon = 30 * time.Millisecond
	type testCase struct {
		setup   func(w *world, p *v1.Pod)
		later   func(w *world, p *v1.Pod) // soon after the question
		version uint64
		byName  bool          // no UID is named
		want    uint64        // version
		outcome gates.Outcome // of the *Error
		wrong   bool          // an *UncountableError
		waited  time.Duration
		gets    int
	}
	bubble.Each(t, map[string]testCase{
		"the watch has brought it":     {version: 5, want: 5},
		"the watch has brought more":   {version: 4, want: 5},
		"nobody names a version":       {want: 5},
		"the watch is a moment behind": {version: 7, later: (*world).catchUp, want: 7, waited: soon},
		"the watch is far behind":      {version: 7, want: 7, waited: maxLag, gets: 1},
		"there is no such version":     {version: noVersion, want: 7, waited: maxLag, gets: 1},
		"another request named a version": {
			setup: func(w *world, p *v1.Pod) { w.pods.named(p.UID, 7) }, want: 7,
			waited: maxLag, gets: 1,
		},
		"the watch brings other pods only": {
			version: 7, later: func(w *world, _ *v1.Pod) { w.store.Seen(8) }, want: 7, waited: soon, gets: 1,
		},
		"the watch has brought nothing": {setup: func(w *world, _ *v1.Pod) { w.forget() }, want: 7, gets: 1},
		"the watch has brought nothing, and a version is named": {
			setup: func(w *world, _ *v1.Pod) { w.forget() }, later: (*world).catchUp, version: 7, want: 7, waited: soon,
		},
		"a former pod of the name": {setup: former(func(*v1.Pod) {}), version: 5, want: 7, gets: 1},
		"a name alone, and a former one was bound": {
			setup: former(func(p *v1.Pod) { p.Spec.NodeName = "a" }), byName: true, want: 7, gets: 1,
		},
		"a name alone, and a former one has finished": {
			setup: former(func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }), byName: true, want: 7, gets: 1,
		},
		"a name alone, and a former one is being deleted": {
			setup: former(func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), byName: true, want: 7, gets: 1,
		},
		"no such pod": {setup: func(w *world, p *v1.Pod) { w.forget(); w.api.remove(p) }, outcome: gates.PodGone, gets: 1},
		"another pod of the name": {setup: func(w *world, p *v1.Pod) {
			w.forget()
			other := p.DeepCopy()
			other.UID = "other"
			w.api.put(other)
		}, outcome: gates.UIDMismatch, gets: 1},
		"the API server fails": {
			setup:   func(w *world, _ *v1.Pod) { w.api.get = fail(1, errInternal) },
			version: 7, outcome: gates.Failed, waited: maxLag, gets: 1,
		},
		"the API server hangs": {
			setup:   func(w *world, _ *v1.Pod) { w.forget(); w.api.get = fail(1, context.DeadlineExceeded) },
			outcome: gates.Failed, waited: RequestTimeout(bindTimeout), gets: 1,
		},
		"a 404 that is not the API server's": {
			setup:   func(w *world, _ *v1.Pod) { w.forget(); w.api.get = fail(1, errNoRoute) },
			outcome: gates.Failed, gets: 1,
		},
		"the watch has brought one that cannot be counted": {
			setup: func(w *world, p *v1.Pod) { uncountable(p); w.bring(p) },
			wrong: true, version: 7,
		},
		"one that cannot be counted is read": {
			setup: func(w *world, p *v1.Pod) { uncountable(p); w.forget() },
			wrong: true, gets: 1,
		},
	}, func(t *testing.T, tt testCase) {
		p := sized("p", "1", 5)
		w := newWorld(t, p)
		p.ResourceVersion = "7"
		asked, want := ref(p), ref(p)
		if tt.byName {
			asked.UID = ""
		}
		if tt.setup != nil {
			tt.setup(w, p)
		}
		if tt.later != nil {
			time.AfterFunc(soon, func() { tt.later(w, p) })
		}
		start := time.Now()
		info, err := w.pods.find(t.Context(), asked, tt.version)
		assert.Equal(t, tt.waited, time.Since(start))
		assert.Equal(t, tt.gets, w.api.gets)
		switch {
		case tt.outcome != "":
			assertOutcome(t, tt.outcome, err)
		case tt.wrong:
			require.ErrorAs(t, err, new(*UncountableError))
			assert.ErrorContains(t, err, "cpu")
		default:
			require.NoError(t, err)
			assert.Equal(t, want, info.Ref)
			assert.Equal(t, tt.want, info.ResourceVersion)
		}
	})
}

// former has the watch bring a pod that had the name before, as it was last.
func former(last func(*v1.Pod)) func(w *world, p *v1.Pod) {
	return func(w *world, p *v1.Pod) {
		before := p.DeepCopy()
		before.UID, before.ResourceVersion = "former", "6"
		last(before)
		w.bring(before)
	}
}

func (w *world) catchUp(p *v1.Pod) { w.bring(p) }

func uncountable(p *v1.Pod) {
	p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("-1")
}

// A watch that is far behind does not make every pod wait.
func TestNobodyWaitsAfterOneWaitInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pods []*v1.Pod
		for k := range 10 {
			pods = append(pods, sized(fmt.Sprint(k), "1", 5))
		}
		w := newWorld(t, pods...)
		for k, p := range pods {
			p.ResourceVersion = "7"
			start := time.Now()
			info, err := w.pods.find(t.Context(), ref(p), 7)
			require.NoError(t, err)
			assert.EqualValues(t, 7, info.ResourceVersion)
			want := time.Duration(0)
			if k == 0 || k == 5 {
				want = maxLag
			}
			assert.Equal(t, want, time.Since(start), "pod %d", k)
			if k == 4 {
				<-time.After(lagPause)
			}
		}
		assert.Equal(t, 10, w.api.gets)
	})
}

// The end of a request ends its waiting.
func TestFindEndsWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sized("p", "1", 5)
		w := newWorld(t, p)
		w.api.get = fail(1, context.DeadlineExceeded)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := w.pods.find(ctx, ref(p), 7)
		assertOutcome(t, gates.Failed, err)
		assert.Equal(t, time.Millisecond, time.Since(start))
	})
}
