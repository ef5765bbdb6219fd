package arbiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/arbiter/question/questiontest"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

func TestPodWithANode(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		require.NoError(t, c.create("p", "3", "a"))
		assert.Equal(t, "Binding on a", c.on(named("p")))
		assertOutcome(t, Refused, c.create("q", "2", "a"))
		c.created("p", "3", "a")
		c.show("p")
		assert.Equal(t, "Bound on a", c.on(ref(newPod("p"))), "the allocation has got its pod's UID")
		pass(time.Minute)
		gets, _ := c.sent()
		assert.Zero(t, gets)
		assert.Equal(t, "Bound on a", c.on(ref(newPod("p"))))
	})
}

// What another scheduler reserved for a name keeps no pod of that name from being created with a node.
func TestPodWithANodeThatWasPromised(t *testing.T) {
	for name, uid := range map[string]types.UID{"by its name": "", "with a made-up UID": "made-up"} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *apiCluster) {
				p := newPod("p")
				promised := ledger.PodRef{Namespace: p.Namespace, Name: p.Name, UID: uid}
				_, err := c.Reserve(as(t.Context(), "for-other"), &Gang{
					Scheduler: "other", Caller: "for-other", Mode: ledger.AllOrNothing,
					Pods: []GangPod{{Ref: promised, Node: "a", Request: c.info(p).Request}},
				})
				require.NoError(t, err)
				require.NoError(t, c.create("p", "3", "b"))
				assert.Equal(t, "Binding on b", c.on(named("p")))
			})
		})
	}
}

// A former pod of the name, which the watch does not know to be gone, does not come to have what the one that is being
// created has: that would be given back with it. Whoever reserves may name any UID.
func TestFormerPodHasNothingOfThePodBeingCreated(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		p := c.add("p", "1")
		c.api.remove(p)
		require.NoError(t, c.create("p", "3", "a"))
		_, err := c.Reserve(as(t.Context(), "for-scheduler"), &Gang{
			Scheduler: "scheduler", Caller: "for-scheduler", Mode: ledger.AllOrNothing,
			Pods: []GangPod{{Ref: ledger.PodRef{Namespace: "ns", Name: "p", UID: "made-up"}, Node: "b", Request: c.info(p).Request}},
		})
		require.NoError(t, err)
		c.show("p") // that it is gone
		assert.Equal(t, "Binding on a", c.on(named("p")))
		assertOutcome(t, Refused, c.create("q", "2", "a"))
	})
}

// A pod that is never created keeps its capacity until the API server cannot create it any more.
func TestPodThatIsNeverCreated(t *testing.T) {
	cases := map[string]struct {
		meanwhile func(*apiCluster)
		want      string
	}{
		"no pod":       {meanwhile: func(*apiCluster) {}, want: "none"},
		"unseen":       {meanwhile: func(c *apiCluster) { c.created("p", "3", "a") }, want: "Bound on a"},
		"another pod":  {meanwhile: func(c *apiCluster) { c.created("p", "3", "") }, want: "none"},
		"another node": {meanwhile: func(c *apiCluster) { c.created("p", "3", "b") }, want: "none"},
		"unknown":      {meanwhile: func(c *apiCluster) { c.away(errors.New("away")) }, want: "Binding on a"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *apiCluster) {
				require.NoError(t, c.create("p", "3", "a"))
				tc.meanwhile(c)
				pass(40 * time.Second)
				assert.Equal(t, "Binding on a", c.on(named("p")))
				pass(10 * time.Second)
				assert.Equal(t, tc.want, c.on(named("p")))
				_, patches := c.sent()
				assert.Zero(t, patches)
			})
		})
	}
}

// Another webhook adds a container, so the API server asks once more. A pod of the same name is created at the same
// time, for more than there is: its refusal must not give back the capacity of the first, which may still be created.
func TestPodIsReviewedAgain(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		require.NoError(t, c.create("p", "1", "a"))
		require.NoError(t, c.create("p", "3", "a"))
		assertOutcome(t, Refused, c.create("q", "2", "a")) // it counts for 3 now
		require.NoError(t, c.create("p", "2", "a"))
		assertOutcome(t, Refused, c.create("q", "2", "a")) // and goes on doing so
		assertOutcome(t, Refused, c.create("p", "5", "a"))
		require.Equal(t, "Binding on a", c.on(named("p")))
		assertOutcome(t, Refused, c.create("q", "2", "a")) // still
		require.NoError(t, c.create("r", "1", "a"), "and for no more")
		c.created("p", "3", "a")
		c.show("p")
		assert.Equal(t, "Bound on a", c.on(ref(newPod("p"))))
	})
}

// Two pods of one name are being created, and either may come: both keep what they were allowed until one is seen.
func TestTwoPodsOfANameAreCreated(t *testing.T) {
	create := func(c *apiCluster, p *v1.Pod) (string, error) {
		p.UID, p.ResourceVersion = "", ""
		delete(p.Annotations, v1alpha1.ExtendedResourcesAnnotation)
		said, err := c.AdmitPod(context.Background(), p, "a", "user", false)
		return said.Annotations[v1alpha1.ExtendedResourcesAnnotation], err
	}
	onPort := func(name, cpu string, port int32) *v1.Pod {
		p := sized(name, cpu, 0)
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: port, ContainerPort: port}}
		return p
	}
	t.Run("the second asks for less, and for something else", func(t *testing.T) {
		inCluster(t, func(t *testing.T, c *apiCluster) {
			for _, p := range []*v1.Pod{onPort("p", "3", 80), onPort("p", "1", 81), onPort("p", "3", 80), onPort("p", "2", 81)} {
				_, err := create(c, p)
				require.NoError(t, err)
				assertOutcome(t, Refused, c.create("q", "2", "a"))
				_, err = create(c, onPort("q", "1", 80))
				assertOutcome(t, Refused, err)
			}
			_, err := create(c, onPort("r", "1", 82))
			require.NoError(t, err, "it counts for no more than both")
		})
	})
	t.Run("the second has no claims of devices, or others", func(t *testing.T) {
		inCluster(t, func(t *testing.T, c *apiCluster) {
			questiontest.GPUs(c.ledger, "a", "gpu-0", "gpu-1")
			given, err := create(c, claiming("p", "c"))
			require.NoError(t, err)
			require.Equal(t, "gpu-0", given)
			given, err = create(c, newPod("p"))
			require.NoError(t, err)
			require.Empty(t, given)
			_, err = create(c, claiming("p", "other"))
			assertOutcome(t, InFlight, err)
			given, err = create(c, claiming("p", "c"))
			require.NoError(t, err)
			require.Equal(t, "gpu-0", given)
			given, err = create(c, claiming("q", "d"))
			require.NoError(t, err)
			require.Equal(t, "gpu-1", given, "the device is given twice")
		})
	})
	t.Run("another webhook adds claims", func(t *testing.T) {
		inCluster(t, func(t *testing.T, c *apiCluster) {
			questiontest.GPUs(c.ledger, "a", "gpu-0")
			_, err := create(c, newPod("p"))
			require.NoError(t, err)
			given, err := create(c, claiming("p", "c"))
			require.NoError(t, err)
			require.Equal(t, "gpu-0", given)
		})
	})
}

// Random bindings, repeats, failures, deletions and outages: at no moment may the API server carry
// out a binding for which the ledger has no allocation, nor a node have more than it offers.
func TestRandomAdmissions(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *apiCluster) { c.random(rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func (c *apiCluster) random(r *rand.Rand) {
	var inFlight []*v1.Binding
	pods := []*v1.Pod{c.add("p0", "1")}
	for range 400 {
		p := pods[r.IntN(len(pods))]
		switch r.IntN(10) {
		case 0, 1:
			pods = append(pods, c.add(fmt.Sprintf("p%d", len(pods)), fmt.Sprint(1+r.IntN(3))))
		case 2, 3, 4:
			asked := ref(p)
			if r.IntN(2) == 0 {
				asked.UID = ""
			}
			if allowed, err := c.ask(asked, []string{"a", "b"}[r.IntN(2)]); err == nil {
				inFlight = append(inFlight, allowed)
			}
		case 5, 6:
			if len(inFlight) > 0 {
				i := r.IntN(len(inFlight))
				_ = c.carryOut(inFlight[i])
				inFlight = append(inFlight[:i], inFlight[i+1:]...)
			}
		case 7:
			c.show(p.Name)
		case 8:
			c.api.remove(p)
		case 9:
			c.away([]error{nil, nil, nil, errors.New("away")}[r.IntN(4)])
			pass(time.Duration(r.IntN(4000)) * time.Millisecond)
			c.away(nil)
		}
		c.checkTruth()
	}
}

// checkTruth fails if pods are bound at the API server beyond what nodes offer, or without an allocation.
func (c *apiCluster) checkTruth() {
	used := map[string]int64{}
	var bound []*v1.Pod
	c.api.change(func() {
		for _, p := range c.api.pods {
			if p.Spec.NodeName != "" {
				bound = append(bound, p.DeepCopy())
			}
		}
	})
	for _, p := range bound {
		used[p.Spec.NodeName] += p.Spec.Containers[0].Resources.Requests.Cpu().Value()
		state := c.on(ref(p))
		require.True(c.t, strings.HasSuffix(state, " on "+p.Spec.NodeName), "pod %s is on %s, its allocation is %s", p.Name, p.Spec.NodeName, state)
	}
	for node, cpus := range used {
		require.LessOrEqual(c.t, cpus, int64(4), "node %s", node)
	}
}
