package gangsched

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

func oneNode(cpu string) []*corev1.Node { return []*corev1.Node{testNode("n", cpu)} }

func TestGangWaitsUntilItIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := testGang("g", 3, "1")
		c := newCluster(t, oneNode("3"), pods[:2]...)
		s := &server{onBind: c.bindAsked}
		c.run(s)
		assert.Empty(t, s.reserves)

		c.create(pods[2])
		assert.Equal(t, map[string]string{"g-0": "n", "g-1": "n", "g-2": "n"}, c.bound())
	})
}

func TestGrantedGangIsBoundThroughTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		single := testPod("single", "1") // not in a gang: another scheduler's business
		foreign := testGang("foreign", 1, "1")[0]
		foreign.Spec.SchedulerName = "somebody-else"
		c := newCluster(t, oneNode("8"), append(testGang("g", 2, "1"), single, foreign)...)
		s := &server{onBind: c.bindAsked}
		c.run(s)
		assert.Equal(t, map[string]string{"g-0": "n", "g-1": "n"}, c.bound())

		require.Len(t, s.reserves, 1)
		assert.Equal(t, testScheduler, s.reserves[0].SchedulerName)
		assert.Equal(t, []string{"g-0", "g-1"}, names(s.reserves[0].Pods))
		assert.Equal(t, []string{"n", "n"}, s.reserves[0].Nodes)
		assert.NotEmpty(t, s.reserves[0].RequestID)
		assert.Positive(t, s.reserves[0].TTLSeconds)
		assert.Empty(t, s.unreserves)
		require.Len(t, s.binds, 2)
		assert.EqualValues(t, "uid-g-0", s.binds[0].PodUID)
		for _, action := range c.client.Actions() {
			assert.NotEqual(t, "binding", action.GetSubresource(), "the server binds, not the scheduler")
		}
	})
}

func TestRefusalLeadsToAnotherPlan(t *testing.T) {
	rejected := func(pod, reason, resource string, free int64) reserver.Rejection {
		return reserver.Rejection{Namespace: "default", Pod: pod, Node: "a", Reason: reason, Resource: resource, Free: free}
	}
	cases := map[string]struct {
		rejections []reserver.Rejection
		want       map[string]string
	}{
		// What the answer calls free was left after the plan's own first pod, which therefore still fits on a.
		"too little for the second pod": {
			rejections: []reserver.Rejection{rejected("g-1", "InsufficientResource", "cpu", 1000)},
			want:       map[string]string{"g-0": "a", "g-1": "b"},
		},
		"too little for both": {
			rejections: []reserver.Rejection{
				rejected("g-0", "InsufficientResource", "cpu", 1000),
				rejected("g-1", "InsufficientResource", "cpu", 1000),
			},
			want: map[string]string{"g-0": "b", "g-1": "b"},
		},
		"a reason that is no amount": {
			rejections: []reserver.Rejection{rejected("g-0", "NodeUnknown", "", 0)},
			want:       map[string]string{"g-0": "b", "g-1": "b"},
		},
		"a resource the scheduler has never seen": {
			rejections: []reserver.Rejection{rejected("g-1", "InsufficientResource", "example.com/gpu", 0)},
			want:       map[string]string{"g-0": "b", "g-1": "b"},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Best fit prefers a, which has less capacity.
				c := newCluster(t, []*corev1.Node{testNode("a", "4"), testNode("b", "8")}, testGang("g", 2, "2")...)
				s := &server{
					onBind: c.bindAsked,
					onReserve: func(try int, _ *reserver.Request) *reserver.Answer {
						if try == 1 {
							return refusal(test.rejections...)
						}
						return &reserver.Answer{Revision: 1}
					},
				}
				c.run(s)
				assert.Equal(t, test.want, c.bound())
				require.Len(t, s.reserves, 2)
				assert.Equal(t, []string{"a", "a"}, s.reserves[0].Nodes)
				assert.NotEqual(t, s.reserves[0].RequestID, s.reserves[1].RequestID, "another plan is another request")
			})
		})
	}
}

func TestRefusedGangIsNotBoundInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, oneNode("8"), testGang("g", 2, "1")...)
		s := &server{onReserve: func(int, *reserver.Request) *reserver.Answer {
			return refusal(reserver.Rejection{
				Namespace: "default", Pod: "g-1", Node: "n", Reason: "InsufficientResource", Resource: "cpu",
			})
		}}
		c.run(s)
		assert.Greater(t, len(s.reserves), 2, "it looks again after a while, for capacity that no event announces")
		assert.Empty(t, c.bound())
	})
}

// A process before this one has died with capacity reserved for the gang: the pods go there.
func TestCapacityLeftFromBeforeIsUsed(t *testing.T) {
	nodes := []*corev1.Node{testNode("a", "8"), testNode("b", "8")}
	left := reserver.Rejection{Namespace: "default", Pod: "g-1", Node: "a", Reason: "AllocatedElsewhere", AllocatedOn: "b"}
	cases := map[string]struct {
		left       reserver.Rejection
		usable     bool
		want       map[string]string
		unreserved []string
	}{
		"usable":     {left: left, usable: true, want: map[string]string{"g-0": "b", "g-1": "b"}},
		"not usable": {left: left, want: map[string]string{"g-0": "a", "g-1": "a"}, unreserved: []string{"b"}},
		"on a node that is gone": {
			left: reserver.Rejection{
				Namespace: "default", Pod: "g-1", Node: "a", Reason: "AllocatedElsewhere",
				AllocatedOn: "gone",
			},
			want: map[string]string{"g-0": "a", "g-1": "a"}, unreserved: []string{"gone"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, nodes, testGang("g", 2, "1")...)
				s := &server{
					onBind: c.bindAsked,
					onReserve: func(try int, r *reserver.Request) *reserver.Answer {
						switch {
						case try == 1:
							return refusal(tc.left)
						case slices.Contains(r.Nodes, "b") && !tc.usable:
							return refusal(reserver.Rejection{
								Namespace: "default", Pod: "g-1", Node: "b", Reason: "InsufficientResource", Resource: "cpu", Free: -1,
							})
						default:
							return &reserver.Answer{Revision: 1}
						}
					},
				}
				c.run(s)
				assert.Equal(t, tc.want, c.bound())
				var given []string
				for _, u := range s.unreserves {
					given = append(given, u.Nodes...)
				}
				assert.Equal(t, tc.unreserved, given)
			})
		})
	}
}

func TestPodDeletedBetweenReserveAndBind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, oneNode("8"), testGang("g", 2, "1")...)
		s := &server{onReserve: func(try int, _ *reserver.Request) *reserver.Answer {
			if try == 1 { // a slow answer is asked for again
				err := c.client.CoreV1().Pods("default").Delete(context.Background(), "g-1", metav1.DeleteOptions{})
				assert.NoError(t, err)
			}
			<-time.After(time.Second) // the scheduler sees it
			return &reserver.Answer{Revision: 1}
		}}
		c.run(s)
		assert.Equal(t, []string{"g-0", "g-1"}, names(s.unreserves[0].Pods), "all of the capacity is given back")
		assert.Empty(t, s.binds)
		assert.Empty(t, c.bound())
	})
}

func TestBindFailsHalfWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, oneNode("8"), testGang("g", 3, "1")...)
		s := &server{onBind: func(try int, r *extenderv1.ExtenderBindingArgs) error {
			if try == 2 {
				return errors.New("the API server refused it")
			}
			return c.bindAsked(try, r)
		}}
		c.run(s)
		assert.Equal(t, map[string]string{"g-0": "n", "g-1": "n", "g-2": "n"}, c.bound())

		require.Len(t, s.unreserves, 1)
		assert.Equal(t, []string{"g-1", "g-2"}, names(s.unreserves[0].Pods), "what is not bound is given back")
		require.Len(t, s.reserves, 2)
		assert.Equal(t, []string{"g-1", "g-2"}, names(s.reserves[1].Pods), "what is bound is not planned again")
	})
}

// lateNews is an informer's store that shows a pod without its node to whoever reads, and delivers the
// event of its bind before the reader goes on.
type lateNews struct {
	cache.Indexer
	deliver func()
}

func (l lateNews) ByIndex(index, key string) ([]any, error) {
	defer l.deliver()
	return l.Indexer.ByIndex(index, key)
}

func (l lateNews) List() []any {
	defer l.deliver()
	return l.Indexer.List()
}

// What the scheduler read before the event, it must not hold against what it knows after it.
func TestPodThatShowsItsNodeMeanwhile(t *testing.T) {
	s := &server{onBind: func(int, *extenderv1.ExtenderBindingArgs) error { return nil }}
	scheduler, err := New(Options{Client: fake.NewClientset(), SchedulerName: testScheduler, GlobalReserve: s})
	require.NoError(t, err)
	pods := testGang("g", 2, "1")
	for _, pod := range pods {
		require.NoError(t, scheduler.podIndex.Add(pod))
	}
	scheduler.podIndex = lateNews{Indexer: scheduler.podIndex, deliver: func() {
		scheduler.podChanged(boundTo(pods[0].DeepCopy(), "n"))
	}}
	scheduler.pods = corelisters.NewPodLister(scheduler.podIndex)
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	require.NoError(t, nodes.Add(testNode("n", "2")))
	scheduler.nodes = corelisters.NewNodeLister(nodes)

	scheduler.assume(pods[0].UID, "n")
	result, err := scheduler.attempt(t.Context(), "default/g")
	require.NoError(t, err)
	assert.Equal(t, placed, result)
	require.Len(t, s.binds, 1)
	assert.Equal(t, "g-1", s.binds[0].PodName, "what is bound is not planned again")

	scheduler.assume(pods[0].UID, "n")
	v, err := scheduler.view(scheduler.knownNodes())
	require.NoError(t, err)
	cpu, known := v.table.Lookup(corev1.ResourceCPU)
	require.True(t, known)
	assert.Zero(t, v.nodes["n"].free[cpu], "both pods have their capacity")
}

// Without a server the scheduler binds itself.
func TestGangWithoutCapacityWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocker := boundTo(testPod("blocker", "3"), "n")
		c := newCluster(t, oneNode("4"), append([]*corev1.Pod{blocker}, testGang("g", 2, "1")...)...)
		c.run(nil)
		assert.Len(t, c.bound(), 1, "the one in the way")

		err := c.client.CoreV1().Pods("default").Delete(t.Context(), "blocker", metav1.DeleteOptions{})
		require.NoError(t, err)
		c.settle()
		assert.Equal(t, map[string]string{"g-0": "n", "g-1": "n"}, c.bound())
	})
}

func TestMistakesAreExplained(t *testing.T) {
	_, err := New(Options{})
	require.ErrorContains(t, err, "give the schedulerName")
	_, err = NewClient("127.0.0.1:23456")
	require.ErrorContains(t, err, "give one such as http://")
}
