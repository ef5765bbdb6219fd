package decide

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// running makes a pod that runs on a node.
func (c *apiCluster) running(name, cpu, node string, changes ...func(*v1.Pod)) *v1.Pod {
	p := sized(name, cpu, 1)
	p.Spec.NodeName = node
	for _, change := range changes {
		change(p)
	}
	c.api.change(func() { c.api.touch(p) })
	c.api.put(p)
	c.show(name)
	return p
}

func asking(cpu string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec = *p.Spec.DeepCopy()
		p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse(cpu)
	}
}

// resizing is what the API server asks where a pod is to ask for so much CPU, as it has the pod now.
func (c *apiCluster) resizing(name, cpu string) *ResizeQuery {
	before := c.api.read("ns", name)
	after := before.DeepCopy()
	asking(cpu)(after)
	return &ResizeQuery{Before: before, Pod: after}
}

func (c *apiCluster) resize(name, cpu string) error {
	_, err := c.AdmitResize(context.Background(), c.resizing(name, cpu))
	return err
}

// write does what the API server does with a resize that was allowed.
func (c *apiCluster) write(q *ResizeQuery, p *v1.Pod) bool {
	if c.api.read("ns", p.Name).ResourceVersion != q.Before.ResourceVersion {
		return false
	}
	c.edit(p, func(p *v1.Pod) { p.Spec = q.Pod.Spec })
	return true
}

// cpu is what a pod's allocation counts for.
func (c *apiCluster) cpu(p *v1.Pod) int64 {
	allocation, ok := c.ledger.Allocation(ref(p))
	require.True(c.t, ok)
	return allocation.Request.Value(resources.CPU)
}

func TestResize(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		p, other := c.running("p", "1", "a"), c.running("other", "2", "a")
		require.True(t, c.ledger.ObserveSlot(slot(1)), "the rest of the node is kept")
		assertOutcome(t, gates.Refused, c.resize("p", "2"))
		assert.ErrorContains(t, c.resize("p", "2"), `pod ns/p cannot grow where it is: node "a" has too little cpu`)
		assert.ErrorContains(t, c.resize("p", "2"), "ask for less, or replace the pod")
		assert.EqualValues(t, 1000, c.cpu(p))
		refusals, _ := c.waiting.RefusalsAfter(0)
		require.Len(t, refusals, 3)
		assert.Equal(t, []string{requeue.Resize, "InsufficientResource", "a"},
			[]string{refusals[0].Path, refusals[0].Reason, refusals[0].Rejection.Node})
		assert.Empty(t, c.waiting.Waiters(func(string) bool { return true }), "it has its node")
		require.NotZero(t, c.ledger.ReleaseSlots("ns", "r"))

		trial := c.resizing("p", "2")
		trial.DryRun = true
		_, err := c.AdmitResize(t.Context(), trial)
		require.NoError(t, err)
		assert.EqualValues(t, 1000, c.cpu(p), "a dry run takes nothing")
		assert.Empty(t, c.allowances.of)
		trial = c.resizing("p", "3")
		trial.DryRun = true
		_, err = c.AdmitResize(t.Context(), trial)
		assertOutcome(t, gates.Refused, err)

		q := c.resizing("p", "2")
		for range 2 { // the API server calls twice
			_, err = c.AdmitResize(t.Context(), q)
			require.NoError(t, err)
		}
		assert.EqualValues(t, 2000, c.cpu(p))
		assert.Equal(t, map[string]int{"ns": 1}, c.allowances.in)
		assertOutcome(t, gates.Refused, c.resize("other", "2100m"))
		require.True(t, c.write(q, p))
		c.show("p")
		pass(afterGrace)
		assert.EqualValues(t, 2000, c.cpu(p))
		assert.Empty(t, c.allowances.in)
		gets, patches := c.sent()
		assert.Zero(t, gets+patches, "the watch has told it all")

		require.NoError(t, c.resize("other", "1"))
		assert.EqualValues(t, 2000, c.cpu(other), "until it is seen")
		assert.Empty(t, c.allowances.of)
	})
}

// What was granted and is not written is given back, and then it cannot be written any more. Where nothing can be
// known, the capacity stays taken.
func TestResizeThatDoesNotHappen(t *testing.T) {
	type testCase struct {
		meanwhile func(*apiCluster, *v1.Pod)
		taken     time.Duration // for how long at least; 0: until the watch may show it
		want      int64
		patches   int
		mayFollow bool // the API server has abandoned it, or has no such pod
	}
	eachCluster(t, map[string]testCase{
		"nothing happens": {meanwhile: func(*apiCluster, *v1.Pod) {}, want: 1000, patches: 1},
		"something else was written": {
			meanwhile: func(c *apiCluster, p *v1.Pod) { c.edit(p, func(p *v1.Pod) { p.Labels = map[string]string{"x": "y"} }) },
			want:      1000,
		},
		"it was written, and the watch is behind": {
			meanwhile: func(c *apiCluster, p *v1.Pod) { c.edit(p, asking("3")) }, want: 3000,
		},
		"less was written": {meanwhile: func(c *apiCluster, p *v1.Pod) { c.edit(p, asking("2")) }, want: 2000},
		"the pod is gone":  {meanwhile: func(c *apiCluster, p *v1.Pod) { c.api.remove(p) }, want: 1000, mayFollow: true},
		"the API server is away": {meanwhile: func(c *apiCluster, _ *v1.Pod) {
			c.away(errReset)
			time.AfterFunc(40*time.Second, func() { c.away(nil) })
		}, taken: 39 * time.Second, want: 1000, patches: 1},
		"another webhook does not let the pod be patched": {meanwhile: func(c *apiCluster, _ *v1.Pod) {
			c.api.change(func() { c.api.patch = apierrors.NewForbidden(podKind, "p", errReset) })
		}, taken: 44 * time.Second, want: 1000, mayFollow: true},
	}, func(t *testing.T, c *apiCluster, tc testCase) {
		p := c.running("p", "1", "a")
		q := c.resizing("p", "3")
		_, err := c.AdmitResize(t.Context(), q)
		require.NoError(t, err)
		tc.meanwhile(c, p)
		pass(max(tc.taken, grace-time.Second))
		assert.EqualValues(t, 3000, c.cpu(p))
		pass(10 * time.Second)
		assert.Equal(t, tc.want, c.cpu(p))
		assert.Empty(t, c.allowances.in)
		if tc.mayFollow {
			return
		}
		_, patches := c.sent()
		assert.Equal(t, tc.patches, patches)
		assert.False(t, c.write(q, p), "it would be asked about again")
	})
}

// A bind of this server has the UID as its only precondition: a resize that is written meanwhile must be in its
// account.
func TestResizeOfPodThatIsBound(t *testing.T) {
	cases := map[string]bool{"allowed before the bind begins": true, "during the bind": false}
	eachCluster(t, cases, func(t *testing.T, c *apiCluster, before bool) {
		p := c.add("p", "1")
		ask := func() { assert.NoError(t, c.resize("p", "3")) }
		if before {
			ask()
		}
		c.api.bind = func(int) reply {
			if !before {
				c.api.mu.Unlock()
				defer c.api.mu.Lock()
				ask()
			}
			assert.EqualValues(t, 3000, c.cpu(p))
			return honest
		}
		_, err := c.Bind(t.Context(), ref(p), "a")
		require.NoError(t, err)
	})
	inCluster(t, func(t *testing.T, c *apiCluster) {
		c.running("other", "2", "a")
		p := c.add("p", "1")
		require.NoError(t, c.resize("p", "3"), "it takes nothing yet")
		_, err := c.Bind(t.Context(), ref(p), "a")
		assertOutcome(t, gates.Refused, err)
		assert.Equal(t, "none", c.on(ref(p)))
		pass(afterGrace)
		assert.Empty(t, c.allowances.in)
	})
}

// Resizes share a namespace's part of what may be pending.
func TestPendingResizesOfOneNamespace(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		c.o.MaxAllowances = 4
		for i := range 3 {
			c.running(fmt.Sprint("p", i), "100m", "a")
		}
		require.NoError(t, c.resize("p0", "200m"))
		require.NoError(t, c.resize("p1", "200m"))
		err := c.resize("p2", "200m")
		assertOutcome(t, gates.Busy, err)
		assert.ErrorContains(t, err, "pod ns/p2 was not resized: 2 bindings and pods of namespace ns")
		require.NoError(t, c.resize("p0", "300m"), "one of them again")
		require.NoError(t, c.resize("p2", "50m"), "less is always allowed")
		pass(afterGrace)
		assert.Empty(t, c.allowances.in)
	})
}

// More than the namespace's quota is refused whatever is free, and more than the limits of the caller that had the pod
// bound, or is about to; who asks for the resize is nothing to go by.
func TestResizeWithinTheLimits(t *testing.T) {
	twoCPUs := &ledger.Limits{Use: []resources.Amount{{Column: resources.CPU, Value: 2000}}}
	limit := func(c *apiCluster) {
		c.ledger.SetLimits(ledger.OfCaller, map[string]*ledger.Limits{"for-scheduler": twoCPUs})
	}
	grow := func(c *apiCluster, why string) {
		c.t.Helper()
		err := c.resize("p", "3")
		assertOutcome(c.t, gates.Refused, err)
		assert.ErrorContains(c.t, err, why)
		require.NoError(c.t, c.resize("p", "2"))
	}
	const ofCaller = `caller "for-scheduler" would use more cpu`
	inCluster(t, func(t *testing.T, c *apiCluster) {
		c.running("p", "1", "a")
		c.ledger.SetLimits(ledger.OfNamespace, map[string]*ledger.Limits{"ns": twoCPUs})
		grow(c, "ResourceQuota")
	})
	inCluster(t, func(t *testing.T, c *apiCluster) {
		c.running("p", "1", "a",
			func(p *v1.Pod) { p.Annotations = map[string]string{v1alpha1.CallerAnnotation: "for-scheduler"} })
		c.running("of-others", "1", "b")
		limit(c)
		grow(c, ofCaller)
		require.NoError(t, c.resize("of-others", "3"))
	})
	inCluster(t, func(t *testing.T, c *apiCluster) {
		p := c.add("p", "1")
		limit(c)
		c.api.bind = func(int) reply {
			c.api.mu.Unlock()
			defer c.api.mu.Lock()
			grow(c, ofCaller)
			return honest
		}
		_, err := c.Bind(as(t.Context(), "for-scheduler"), ref(p), "a")
		require.NoError(t, err)
	})
	inCluster(t, func(t *testing.T, c *apiCluster) { // allowed before it was known who will have it bound
		p := c.add("p", "1")
		limit(c)
		require.NoError(t, c.resize("p", "3"), "it takes nothing yet")
		_, err := c.Bind(as(t.Context(), "for-scheduler"), ref(p), "a")
		assertOutcome(t, gates.Refused, err)
		assert.Equal(t, "none", c.on(ref(p)))
	})
}

// Shrinking needs nobody; growing waits until decisions can be made.
func TestResizeWhileNothingCanBeDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.running("p", "2", "a")
		c.undecided.Store(new("not the leader"))
		assertOutcome(t, gates.NotReady, c.resize("p", "3"))
		require.NoError(t, c.resize("p", "1"))
		require.NoError(t, c.resize("p", "2"))
		c.undecided.Store(nil)
		c.ledger.RemovePod(ref(c.api.read("ns", "p")), 1)
		assertOutcome(t, gates.PodGone, c.resize("p", "3"))
		c.end()
		assertOutcome(t, gates.Stopping, c.resize("p", "3"))
		require.NoError(t, c.resize("p", "1"))
	})
}
