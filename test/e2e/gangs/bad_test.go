//go:build e2e

package gangs

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// Gangs that cannot be whole, or of which nobody can tell how many pods they need: the first member is refused with a
// reason that names the gang, nothing is kept for it, and others are bound as ever.
func TestBadGangs(t *testing.T) {
	c := newCluster(t, 3, short)
	inGroup := func(name string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Labels = testbed.Pairs(clusterload.PodGroupLabel, name) }
	}
	c.createPodGroup("of-a-million", 1_000_000)
	for name, test := range map[string]struct {
		reason  string
		members [2]func(*corev1.Pod)
	}{
		"a million":           {"1000000", [2]func(*corev1.Pod){inGang("million", "1000000"), inGang("million", "1000000")}},
		"more than there are": {"3", [2]func(*corev1.Pod){inGang("more", "3"), inGang("more", "3")}},
		"no number":           {gangMinAnnotation, [2]func(*corev1.Pod){inGang("some", "some"), inGang("some", "some")}},
		"negative":            {gangMinAnnotation, [2]func(*corev1.Pod){inGang("negative", "-1"), inGang("negative", "-1")}},
		"no PodGroup": {
			"podgroups.scheduling.x-k8s.io default/missing",
			[2]func(*corev1.Pod){inGroup("missing"), inGroup("missing")},
		},
		"PodGroup: a million": {"1000000", [2]func(*corev1.Pod){inGroup("of-a-million"), inGroup("of-a-million")}},
	} {
		t.Run(name, func(t *testing.T) {
			inner := *c
			inner.T = t
			c := &inner
			defer c.clear()
			for i, member := range test.members {
				c.CreatePod(fmt.Sprint("member-", i), byHand, memberCPU, member)
			}
			c.CreatePod("single", byHand, "4")
			c.Eventually(func(t *assert.CollectT) { // until the server has seen all members
				err := c.bindNow(c.T.Context(), "member-0", "node-0")
				assert.ErrorContains(t, err, test.reason)
				assert.ErrorContains(t, err, "gang")
			})
			c.requireNothingKept()
			require.NoError(t, c.bindNow(t.Context(), "single", "node-0"), "all of the node is free")
			c.RequireNeverOvercommitted()
		})
	}
}

// A gang that needs no more than one pod is none.
func TestGangsOfOnePod(t *testing.T) {
	c := newCluster(t, 10, short)
	pods := make([]*corev1.Pod, 1000)
	for i := range pods {
		pods[i] = testbed.NewPod(fmt.Sprint("pod-", i), byHand, "1m", inGang(fmt.Sprint("gang-", i), strconv.Itoa(i%2)))
	}
	c.Create(pods...)
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(testbed.Writers)
	for i, pod := range pods {
		group.Go(func() error { return c.bindNow(ctx, pod.Name, c.nodes[i%len(c.nodes)]) })
	}
	require.NoError(t, group.Wait())
	c.requireNothingKept()
	c.RequireNeverOvercommitted()
}

// Gangs of one name in two namespaces are two gangs: a member in the one does nothing for the other.
func TestGangOfAnotherNamespace(t *testing.T) {
	c := newCluster(t, 1, short)
	other := *c
	other.Cluster = c.In(t, "other")
	c.createMembers(&gang{name: "gang", minimum: 2}, "here-0", "here-1")
	other.createMembers(&gang{name: "gang", minimum: 2}, "there-0")
	other.CreatePod("named", byHand, memberCPU, inGang(c.Namespace+"/gang", "2"))
	for _, name := range []string{"there-0", "named"} {
		require.ErrorContains(t, other.bindNow(t.Context(), name, "node-0"), "gang")
	}
	c.bindSoon("here-0") // not before the server has seen both
	for _, name := range []string{"there-0", "named"} {
		require.ErrorContains(t, other.bindNow(t.Context(), name, "node-0"), "gang")
	}
	c.bindSoon("here-1")
	c.requireNothingKept()
}

// The minimum changes while members are bound. Where it grows, more is kept at the next binding; where it shrinks to
// what is bound, nothing is kept any more.
func TestMinimumChangesWhileBound(t *testing.T) {
	for name, minimum := range map[string]int{"grows": 8, "shrinks": 2} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 3, long)
			g := &gang{name: "gang", minimum: 4}
			for i := range 8 {
				g.members = append(g.members, fmt.Sprint("gang-", i))
			}
			c.createMembers(g, g.members...)
			c.bindFirst(g, 2)
			c.changeMinimum(g, minimum)
			if minimum > 2 {
				c.bindFirst(g, 3)
			}
			c.fillWithSingles()
			if minimum > 2 {
				c.awaitKept(minimum)
				c.startBinder(atOnce, g)
				c.requireWhole(g)
			}
			c.awaitFull()
			c.requireNothingKept()
			c.RequireNeverOvercommitted()
		})
	}
}

// bindFirst has the first so many members of a gang bound.
func (c *cluster) bindFirst(g *gang, count int) {
	c.T.Helper()
	for _, name := range g.members[:count] {
		c.Eventually(func(t *assert.CollectT) {
			c.bindMember(c.T.Context(), name)
			assert.NotEmpty(t, c.Pod(name).Spec.NodeName)
		})
	}
}

// changeMinimum has all members say that their gang needs another number.
func (c *cluster) changeMinimum(g *gang, minimum int) {
	c.T.Helper()
	g.minimum = minimum
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, gangMinAnnotation, minimum)
	group, ctx := errgroup.WithContext(context.WithoutCancel(c.T.Context()))
	for _, name := range g.members {
		group.Go(func() error {
			_, err := c.Client().CoreV1().Pods(c.Namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		})
	}
	require.NoError(c.T, group.Wait())
	c.awaitMinimum(g.name, minimum)
}

// awaitMinimum waits until the server knows how many members a gang needs.
func (c *cluster) awaitMinimum(name string, minimum int) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		answer, err := c.Ledger.Gangs(c.T.Context())
		require.NoError(t, err)
		i := slices.IndexFunc(answer.Gangs, func(known reserver.Gang) bool {
			return known.Namespace == c.Namespace &&
				known.Name == name
		})
		if assert.GreaterOrEqual(t, i, 0) {
			assert.Equal(t, minimum, answer.Gangs[i].Minimum, "that the server knows")
		}
	})
}
