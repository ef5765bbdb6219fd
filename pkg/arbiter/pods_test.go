package arbiter

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
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
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

// anywhere runs a test with a watch that has brought the pods, and with one that
// has not.
func anywhere(t *testing.T, pods func() []*v1.Pod, test func(t *testing.T, w *world, pods []*v1.Pod)) {
	for name, brought := range map[string]bool{"the watch has brought the pods": true, "the watch has not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pods := pods()
				w := newWorld(t, pods...)
				if !brought {
					w.forget()
				}
				test(t, w, pods)
				w.end()
			})
		})
	}
}

func TestForgedAmountsDoNotPreempt(t *testing.T) {
	anywhere(t, func() []*v1.Pod { return []*v1.Pod{sized("p", "3", 5)} }, func(t *testing.T, w *world, pods []*v1.Pod) {
		var victims []types.UID
		for k := range 4 {
			victim := newPod(fmt.Sprint(k))
			victim.Spec.NodeName = "a"
			w.observe(victim)
			victims = append(victims, victim.UID)
		}
		for count, fits := range []bool{false, false, false, true, true} {
			pod, got, err := w.Preempt(t.Context(), w.query(pods[0], noVersion, small), map[string][]types.UID{"a": victims[:count]})
			require.NoError(t, err)
			assert.Equal(t, w.info(pods[0]).Request, pod.Request)
			assert.Equal(t, map[string]bool{"a": fits}, got, "%d of four victims", count)
		}
	})
}

// Whether a pod may end a preemptible slot is said by its own priority.
func TestForgedPriorityEndsNothing(t *testing.T) {
	for name, own := range map[string]bool{"its own": true, "forged": false} {
		t.Run(name, func(t *testing.T) {
			one := func() []*v1.Pod {
				p := sized("p", "3", 5)
				if own {
					important(p)
				}
				return []*v1.Pod{p}
			}
			anywhere(t, one, func(t *testing.T, w *world, pods []*v1.Pod) {
				kept := slot(4)
				kept.Preemptible = true
				require.True(t, w.ledger.ObserveSlot(kept))
				want := ledger.InsufficientResource
				for look := range looksBeforePreempting {
					advice, said := w.reasons(w.query(pods[0], noVersion, important), "a")
					if own && look == looksBeforePreempting-1 {
						want = ledger.Fits
					}
					assert.Equal(t, want, said["a"], "look %d", look)
					assert.Equal(t, own && want != ledger.Fits, advice.TryAgain)
				}
				assert.Equal(t, own, w.preemptors.isAllowed(pods[0].UID))
				if own {
					require.NoError(t, w.bindPod(pods[0], "a"))
					assert.Zero(t, w.ledger.Stats().Slots)
				} else {
					assertOutcome(t, Refused, w.bindPod(pods[0], "a"))
					assert.Equal(t, 1, w.ledger.Stats().Slots)
				}
			})
		})
	}
}

// Which reservation a pod may use is said by its own annotations and labels.
func TestForgedAnnotationUsesNothing(t *testing.T) {
	for name, own := range map[string]bool{"its own": true, "forged": false} {
		t.Run(name, func(t *testing.T) {
			two := func() []*v1.Pod {
				p, q := sized("p", "3", 5), sized("q", "3", 6)
				indexed(q)
				if own {
					indexed(p)
				}
				return []*v1.Pod{p, q}
			}
			anywhere(t, two, func(t *testing.T, w *world, pods []*v1.Pod) {
				w.offer(consumedByIndex)
				require.True(t, w.ledger.ObserveSlot(slot(4)))
				forged := w.query(pods[0], noVersion, indexed)
				_, said := w.reasons(forged, "a", "b")
				_, scores, err := w.Prioritize(t.Context(), forged, []string{"a", "b"})
				require.NoError(t, err)
				_, others := w.reasons(w.query(pods[1], 6, indexed), "a", "b")
				bound := w.bindPod(pods[0], "a")
				if own {
					assert.Equal(t, map[string]ledger.Reason{"a": ledger.Fits, "b": ledger.AllocatedElsewhere}, said)
					assert.Equal(t, []int64{10, 0}, scores)
					assert.Equal(t, map[string]ledger.Reason{"a": ledger.Fits, "b": ledger.Fits}, others, "the slot is the first pod's")
					require.NoError(t, bound)
					return
				}
				assert.Equal(t, map[string]ledger.Reason{"a": ledger.InsufficientResource, "b": ledger.Fits}, said)
				assert.NotEqual(t, []int64{10, 0}, scores)
				assert.Equal(t, map[string]ledger.Reason{"a": ledger.Fits, "b": ledger.AllocatedElsewhere}, others, "the slot is free to be planned for")
				assertOutcome(t, Refused, bound)
			})
		})
	}
}

// TestFind looks for a pod that the API server has at version 7 and the watch has
// brought at version 5.
func TestFind(t *testing.T) {
	const soon = 30 * time.Millisecond
	tests := map[string]struct {
		setup   func(w *world, p *v1.Pod)
		later   func(w *world, p *v1.Pod) // soon after the question
		version uint64
		want    uint64  // version
		outcome Outcome // of the *Error
		wrong   bool    // an *UncountableError
		waited  time.Duration
		gets    int
	}{
		"the watch has brought it":        {version: 5, want: 5},
		"the watch has brought more":      {version: 4, want: 5},
		"nobody names a version":          {want: 5},
		"the watch is a moment behind":    {version: 7, later: (*world).catchUp, want: 7, waited: soon},
		"the watch is far behind":         {version: 7, want: 7, waited: maxLag, gets: 1},
		"there is no such version":        {version: noVersion, want: 7, waited: maxLag, gets: 1},
		"another request named a version": {setup: func(w *world, p *v1.Pod) { w.pods.named(p.UID, 7) }, want: 7, waited: maxLag, gets: 1},
		"the watch brings other pods only": {
			version: 7, later: func(w *world, _ *v1.Pod) { w.store.Seen(8) }, want: 7, waited: soon, gets: 1,
		},
		"the watch has brought nothing": {setup: func(w *world, _ *v1.Pod) { w.forget() }, want: 7, gets: 1},
		"the watch has brought nothing, and a version is named": {
			setup: func(w *world, _ *v1.Pod) { w.forget() }, later: (*world).catchUp, version: 7, want: 7, waited: soon,
		},
		"a former pod of the name": {
			setup: func(w *world, p *v1.Pod) {
				former := p.DeepCopy()
				former.UID, former.ResourceVersion = "former", "6"
				w.bring(former)
			},
			version: 5, want: 7, gets: 1,
		},
		"no such pod": {
			setup:   func(w *world, p *v1.Pod) { w.forget(); w.api.remove(p) },
			outcome: PodGone, gets: 1,
		},
		"another pod of the name": {
			setup: func(w *world, p *v1.Pod) {
				w.forget()
				other := p.DeepCopy()
				other.UID = "other"
				w.api.put(other)
			},
			outcome: UIDMismatch, gets: 1,
		},
		"the API server fails": {
			setup:   func(w *world, _ *v1.Pod) { w.api.get = fail(1, errInternal) },
			version: 7, outcome: Failed, waited: maxLag, gets: 1,
		},
		"the API server hangs": {
			setup:   func(w *world, _ *v1.Pod) { w.forget(); w.api.get = fail(1, context.DeadlineExceeded) },
			outcome: Failed, waited: RequestTimeout(bindTimeout), gets: 1,
		},
		"a 404 that is not the API server's": {
			setup:   func(w *world, _ *v1.Pod) { w.forget(); w.api.get = fail(1, errNoRoute) },
			outcome: Failed, gets: 1,
		},
		"the watch has brought one that cannot be counted": {
			setup: func(w *world, p *v1.Pod) { uncountable(p); w.bring(p) },
			wrong: true, version: 7,
		},
		"one that cannot be counted is read": {
			setup: func(w *world, p *v1.Pod) { uncountable(p); w.forget() },
			wrong: true, gets: 1,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := sized("p", "1", 5)
				w := newWorld(t, p)
				p.ResourceVersion = "7"
				asked := ref(p)
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
				var u *UncountableError
				switch {
				case tt.outcome != "":
					assertOutcome(t, tt.outcome, err)
				case tt.wrong:
					require.ErrorAs(t, err, &u)
					assert.Equal(t, asked, u.Pod)
					assert.ErrorContains(t, err, "cpu")
				default:
					require.NoError(t, err)
					assert.Equal(t, asked, info.Ref)
					assert.Equal(t, tt.want, info.ResourceVersion)
				}
			})
		})
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
		assertOutcome(t, Failed, err)
		assert.Equal(t, time.Millisecond, time.Since(start))
	})
}
