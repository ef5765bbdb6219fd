package decide

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
)

func TestPodWithANode(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		require.NoError(t, c.create("p", "3", "a"))
		assert.Equal(t, "Binding on a", c.on(ref(newPod("p"))))
		assertOutcome(t, gates.Refused, c.create("q", "2", "a"))
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
	cases := map[string]types.UID{"by its name": "", "with a made-up UID": "made-up"}
	eachCluster(t, cases, func(t *testing.T, c *apiCluster, uid types.UID) {
		p := newPod("p")
		promised := ledger.PodRef{Namespace: p.Namespace, Name: p.Name, UID: uid}
		result, err := c.o.Ledger.Reserve(ledger.NewPlan([]ledger.Placement{{
			Pod: promised, Node: "a", Request: c.info(p).Request, Scheduler: "other", Caller: "for-other", PodToCome: true,
		}}, ledger.AllOrNothing, time.Now().Add(time.Minute)), false)
		require.NoError(t, err)
		require.Equal(t, 1, result.Granted)
		require.NoError(t, c.create("p", "3", "b"))
		assert.Equal(t, "Binding on b", c.on(ref(newPod("p"))))
	})
}

// A pod that is never created keeps its capacity until the API server cannot create it any more.
func TestPodThatIsNeverCreated(t *testing.T) {
	type testCase struct {
		meanwhile func(*apiCluster)
		want      string
	}
	eachCluster(t, map[string]testCase{
		"no pod":      {meanwhile: func(*apiCluster) {}, want: "none"},
		"unseen":      {meanwhile: func(c *apiCluster) { c.created("p", "3", "a") }, want: "Bound on a"},
		"another pod": {meanwhile: func(c *apiCluster) { c.api.put(again(sized("p", "3", 5))) }, want: "none"},
		"unknown":     {meanwhile: func(c *apiCluster) { c.away(errors.New("away")) }, want: "Binding on a"},
	}, func(t *testing.T, c *apiCluster, tc testCase) {
		require.NoError(t, c.create("p", "3", "a"))
		tc.meanwhile(c)
		pass(40 * time.Second)
		assert.Equal(t, "Binding on a", c.on(ref(newPod("p"))))
		pass(10 * time.Second)
		assert.Equal(t, tc.want, c.on(ref(newPod("p"))))
		_, patches := c.sent()
		assert.Zero(t, patches)
	})
}

// The API server asks a second time about a pod, as its answer was lost.
func TestPodIsReviewedAgain(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		c.nodes(20)
		p := sized("p", "3", 0)
		_, err := c.createPod(p, "a", "user")
		require.NoError(t, err)
		_, err = c.AdmitPod(t.Context(), p, "a", "user", false)
		require.NoError(t, err)
		assertOutcome(t, gates.Refused, c.create("q", "2", "a"))
		large := sized("q", "2", 0)
		large.Annotations = p.Annotations
		_, err = c.AdmitPod(t.Context(), large, "a", "user", false)
		assertOutcome(t, gates.Refused, err)
		list, _ := c.waiting.RefusalsAfter(0)
		require.NotEmpty(t, list)
		for _, r := range list {
			assert.Empty(t, r.Rejection.Pod.UID, "there is no pod that waits")
		}
		pass(createGrace + grace)
		assert.Equal(t, "none", c.on(ref(newPod("p"))))
	})
}

// Two pods of one name are being created, and the second comes when the first is gone again: each has what it was
// allowed.
func TestTwoPodsOfANameAreCreated(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		c.nodes(20)
		placementtest.GPUs(c.ledger, "a", "gpu-0", "gpu-1")
		told, err := c.createPod(claiming("p", "c"), "a", "user")
		require.NoError(t, err)
		require.Equal(t, "gpu-0", told[v1alpha1.ExtendedResourcesAnnotation])
		second := again(sized("p", "3", 0))
		_, err = c.createPod(second, "a", "user")
		require.NoError(t, err)
		assertOutcome(t, gates.Refused, c.create("q", "1", "a"))

		c.created("p", "1", "a")
		c.show("p")
		c.api.remove(newPod("p"))
		c.show("p")
		assert.Equal(t, "none", c.on(ref(newPod("p"))))
		assert.Equal(t, "Binding on a", c.on(ref(second)))
		assertOutcome(t, gates.Refused, c.create("q", "2", "a"))
		second.Spec.NodeName = "a"
		c.api.put(second)
		c.show("p")
		assert.Equal(t, "Bound on a", c.on(ref(second)))
	})
}

// A pod is created only if it records what it is granted: whoever reads its annotations later believes them.
func TestPodThatTellsSomethingElse(t *testing.T) {
	eachCluster(t, map[string]func(map[string]string){
		"nothing":             func(told map[string]string) { clear(told) },
		"another caller":      func(told map[string]string) { told[v1alpha1.CallerAnnotation] = "another" },
		"other devices":       func(told map[string]string) { told[v1alpha1.ExtendedResourcesAnnotation] = "gpu-1" },
		"a reservation":       func(told map[string]string) { told[v1alpha1.MatchedReservationAnnotation] = "ns/r/0" },
		"one of another time": func(told map[string]string) { told[v1alpha1.MatchedReservationUIDAnnotation] = "u" },
	}, func(t *testing.T, c *apiCluster, change func(map[string]string)) {
		placementtest.GPUs(c.ledger, "a", "gpu-0", "gpu-1")
		p := claiming("p", "c")
		early := p.DeepCopy()
		early.UID = ""
		said, err := c.PlanPod(t.Context(), early, "a", "user", false)
		require.NoError(t, err)
		p.Annotations = said.Annotations
		p.Annotations[v1alpha1.ExtendedResourceClaimsAnnotation] = "c"
		told := p.DeepCopy()
		change(told.Annotations)
		told.Annotations[v1alpha1.ExtendedResourceClaimsAnnotation] = "c"
		_, err = c.AdmitPod(t.Context(), told, "a", "user", false)
		assertOutcome(t, gates.NotAnnotated, err)
		assert.Equal(t, "none", c.on(ref(p)), "nothing is kept for it")
		_, err = c.AdmitPod(t.Context(), p, "a", "user", false)
		require.NoError(t, err)
	})
}

// Creations that always fail keep a small share of the nodes for a small share of the time, and others are not
// concerned.
func TestCreationsThatAlwaysFail(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		nodes := map[string]string{"greedy": "a", "other": "b"}
		in := func(namespace, name, caller string) error {
			p := sized(name, "1", 0)
			p.Namespace, p.UID = namespace, types.UID(namespace+name)
			_, err := c.createPod(p, nodes[namespace], caller)
			return err
		}
		require.NoError(t, in("greedy", "p0", "tenant"))
		err := in("greedy", "p1", "another of its accounts")
		assertOutcome(t, gates.Busy, err)
		assert.ErrorContains(t, err,
			"pods of namespace greedy that were allowed to be created with a node are not there yet: 1, which is its share")
		pass(createGrace + grace)
		err = in("greedy", "p2", "one more")
		assertOutcome(t, gates.Busy, err)
		assert.ErrorContains(t, err, "the next may be created at 2000-01-01T00:07:")
		require.NoError(t, in("other", "p", "tenant"), "another namespace")
		pass(failedPause - time.Minute)
		assertOutcome(t, gates.Busy, in("greedy", "p3", "tenant"))
		pass(time.Minute)
		require.NoError(t, in("greedy", "p4", "tenant"))
	})
}

// What a caller has created in several namespaces, and that nobody has seen, is on a share of the nodes together.
func TestCreationsOfACallerThatFail(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		c.nodes(20)
		created := 0
		for ; created < 20; created++ {
			p := sized("p", "1m", 0)
			p.Namespace, p.UID = fmt.Sprint("ns-", created), types.UID(fmt.Sprint(created))
			if _, err := c.createPod(p, "a", "tenant"); err != nil {
				assertOutcome(t, gates.Busy, err)
				assert.ErrorContains(t, err, "pods of tenant that were allowed to be created with a node are not there yet: 5")
				break
			}
		}
		assert.Equal(t, 5, created, "a quarter of the nodes")
		require.NoError(t, c.create("p", "1m", "a"), "another caller")
	})
}

// Creations that have happened and that the watch has not shown yet hold up nobody: the API server is asked for them.
// It is not asked where that cannot help.
func TestCreationsInARow(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		for k := range 4 {
			name := fmt.Sprint("p", k)
			require.NoError(t, c.create(name, "1", "a"))
			c.created(name, "1", "a")
		}
		c.away(errors.New("away"))
		assertOutcome(t, gates.Busy, c.create("late", "1", "b"))
		c.away(nil)
		require.NoError(t, c.create("late", "1", "b"))
		pass(createGrace + grace)
		before, _ := c.sent()
		assertOutcome(t, gates.Busy, c.create("later", "1", "b"))
		after, _ := c.sent()
		assert.Equal(t, before, after)
	})
}

// A pod of the name that is there, and that the watch does not show yet, is no failed creation of its namespace.
func TestCreationOfANameThatIsTaken(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		c.nodes(20)
		require.NoError(t, c.create("p", "1", "a"))
		c.created("p", "1", "a")
		_, err := c.createPod(again(sized("p", "1", 0)), "a", "user")
		assertOutcome(t, gates.NameTaken, err)
		pass(createGrace + grace)
		require.NoError(t, c.create("q", "1", "a"))
	})
}

// Nobody waits for the answer any more: the API server has refused the pod.
func TestCreationThatWasGivenUp(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		p := newPod("p")
		p.Annotations = map[string]string{v1alpha1.CallerAnnotation: "user"}
		_, err := c.AdmitPod(gone, p, "a", "user", false)
		assertOutcome(t, gates.Failed, err)
		assert.Equal(t, "none", c.on(ref(p)))
	})
}

// What is kept for a name is neither lost by a creation that is refused, nor taken for another pod of the name.
func TestKeptForThePodThatIsCreated(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		c.nodes(20)
		placementtest.GPUs(c.ledger, "a", "gpu-0", "gpu-1")
		p := claiming("p", "c")
		info := c.info(p)
		placement := c.question.For(info, "a")
		placement.Pod.UID = ""
		plan := ledger.NewPlan([]ledger.Placement{placement}, ledger.AllOrNothing, time.Now().Add(time.Hour))
		require.Empty(t, c.ledger.Reserve(plan, time.Now()).Rejections)

		_, err := c.AdmitPod(t.Context(), p, "a", "user", false)
		assertOutcome(t, gates.NotAnnotated, err)
		_, kept := c.ledger.InMemory(ref(p))
		assert.True(t, kept)
		told, err := c.createPod(claiming("p", "c"), "a", "user")
		require.NoError(t, err)
		assert.Equal(t, "gpu-0", told[v1alpha1.ExtendedResourcesAnnotation])
		// Its creation fails. The next one is another pod.
		told, err = c.createPod(again(claiming("p", "d")), "a", "user")
		require.NoError(t, err)
		assert.Equal(t, "gpu-1", told[v1alpha1.ExtendedResourcesAnnotation])
	})
}

// A burst of pods with a node comes through one after another, as each is seen within milliseconds. Who waits for one
// that is not seen soon, or beside too many, is refused.
func TestBurstOfPodsWithANode(t *testing.T) {
	burst := func(c *apiCluster, pods int, seen time.Duration) (refused int) {
		errs := make(chan error, pods)
		for k := range pods {
			go func() {
				p := sized(fmt.Sprint("p", k), "10m", 0)
				_, err := c.createPod(p, "a", "user")
				if err == nil {
					pass(seen)
					p.Spec.NodeName = "a"
					c.observe(p)
				}
				errs <- err
			}()
		}
		for range pods {
			if err := <-errs; err != nil {
				assertOutcome(c.t, gates.Busy, err)
				refused++
			}
		}
		return refused
	}
	inCluster(t, func(t *testing.T, c *apiCluster) {
		assert.Zero(t, burst(c, 20, 5*time.Millisecond))
		pass(createGrace)
		_, patches := c.sent()
		assert.Zero(t, patches)
	})
	inCluster(t, func(t *testing.T, c *apiCluster) {
		start := time.Now()
		assert.Equal(t, 19, burst(c, 20, 2*time.Second), "one of them is not seen soon")
		assert.Less(t, time.Since(start), 3*time.Second)
	})
	inCluster(t, func(t *testing.T, c *apiCluster) {
		assert.Positive(t, burst(c, 2*maxBursting, 5*time.Millisecond))
	})
}
