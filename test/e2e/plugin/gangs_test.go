//go:build e2e

package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	gangSize = 4
	// kubeGangs are those that kube-scheduler places as pod groups, and otherGangs those that it knows nothing of.
	kubeGangs, otherGangs = 3, 2
	// alone are the pods of the scheduler beside. 10 CPUs are left beside them: those of 2.5 gangs.
	alone     = 4
	gangsCPUs = 14
	beside    = "beside"
	// manyTries is how many pods are not refused within testbed.Never, unless without a pause: of two gangs, each tried
	// once or twice.
	manyTries = 50
)

// kube-scheduler places pod groups, and gangs that it knows nothing of pod by pod, while a second one takes capacity
// for single pods: with the plugin, and behind the extender as it is shipped. Gangs run whole or not at all, as many
// as fit; those that wait are tried again when one ends.
func TestGangsStayWhole(t *testing.T) {
	s := setup{nodes: gangsCPUs / 2, cpu: "2", plane: &withGangs}
	t.Run("plugin", func(t *testing.T) {
		c := newCluster(t, s)
		c.StartKubeScheduler(beside, "default-scheduler.yaml", "schedulerName: default-scheduler", "schedulerName: "+beside)
		c.gangsStayWhole(scheduler)
	})
	t.Run("extender", func(t *testing.T) {
		c := &cluster{Cluster: testbed.NewCluster(t, withGangs.StartT(t))}
		c.nodes = c.AddNodes(s.nodes, nodeOf(s.cpu))
		c.StartServer(clusterload.ServerOptions{})
		c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
		c.StartKubeScheduler(beside, "default-scheduler.yaml", "schedulerName: default-scheduler", "schedulerName: "+beside)
		c.gangsStayWhole("default-scheduler")
	})
}

func (c *cluster) gangsStayWhole(name string) {
	c.T.Helper()
	var pods []*corev1.Pod
	for i := range kubeGangs {
		pods = append(pods, c.gangOf(fmt.Sprint("kube-", i), name)...)
	}
	for i := range otherGangs {
		pods = append(pods, c.annotatedGang(fmt.Sprint("other-", i), name)...)
	}
	c.Create(append(testbed.NewPods(alone, "alone", beside, "1"), pods...)...)
	first := c.awaitWhole()
	before := c.refusals()
	controlplane.Never(c.T, func() bool { return c.refusals() > before+manyTries }, testbed.Never, testbed.Poll,
		"gangs that wait are tried all the time")
	for i := range gangSize {
		c.Delete(fmt.Sprintf("%s-%d", first[0], i))
	}
	assert.NotContains(c.T, c.awaitWhole(), first[0], "another gang runs in its place")
	c.RequireNeverOvercommitted()
	assert.Zero(c.T, c.Watcher.Gaps(), "events were lost: the verdict is not complete")
	c.awaitClaims(0)
}

// refusals is how many pods were refused when they were to be reserved or bound.
func (c *cluster) refusals() int {
	return c.Metric("globalreserve_decisions_total", "result", "refused")
}

// gangOf are the pods of a new pod group that is a gang.
func (c *cluster) gangOf(gang, scheduler string) []*corev1.Pod {
	c.T.Helper()
	_, err := c.Client().SchedulingV1beta1().PodGroups(c.Namespace).Create(c.T.Context(), &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: gang},
		Spec: schedulingv1beta1.PodGroupSpec{
			SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{
				Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: gangSize},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(c.T, err)
	return testbed.NewPods(gangSize, gang, scheduler, "1", func(p *corev1.Pod) {
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &gang}
	})
}

// annotatedGang are the pods of a gang that only they tell of.
func (c *cluster) annotatedGang(gang, scheduler string) []*corev1.Pod {
	return testbed.NewPods(gangSize, gang, scheduler, "1",
		testbed.Annotated(v1alpha1.GangAnnotation, gang, v1alpha1.GangMinAnnotation, fmt.Sprint(gangSize)))
}

// awaitWhole waits until every gang is whole or waits, and no other one would fit, and returns those that are whole.
func (c *cluster) awaitWhole() (whole []string) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		bound, waiting, single := map[string]int{}, 0, 0
		all := c.Pods()
		for i := range all {
			gang := all[i].Name[:strings.LastIndex(all[i].Name, "-")]
			switch isBound := all[i].Spec.NodeName != ""; {
			case gang == "alone" && isBound:
				single++
			case gang != "alone" && isBound:
				bound[gang]++
			case gang != "alone":
				waiting++
			}
		}
		whole = whole[:0]
		total := single
		for gang, count := range bound {
			assert.Equal(t, gangSize, count, gang)
			whole, total = append(whole, gang), total+count
		}
		assert.Less(t, gangsCPUs-total, gangSize, "another gang fits beside %v and %d single pods", whole, single)
		assert.True(t, single == alone || total == gangsCPUs, "another single pod fits beside %v and %d of them", whole,
			single)
		assert.NotZero(t, waiting, "there was room for all")
	})
	return whole
}

// kube-scheduler tries a pod group out, through Reserve, before any of it is real. As long as the group has
// no place, the ledger hears nothing of its pods; when it has one, all of them are reserved, and then they are bound.
func TestAPodGroupIsTriedOutWithoutSideEffects(t *testing.T) {
	t.Parallel() // beside the one that waits for the end of a lease
	c := newCluster(t, setup{nodes: 2, cpu: "2", plane: &withGangs})
	other := c.reserve("other", "1", c.nodes[0], time.Hour) // three of the four have capacity beside it
	heard := c.hear()
	c.Create(c.gangOf("member", scheduler)...)
	for i := range gangSize {
		c.AwaitRefused(fmt.Sprint("member-", i))
	}
	c.reserve("last", "1m", c.nodes[1], time.Hour) // whatever came before has been heard of with this
	assert.Empty(t, heard("last"))
	c.unreserve(&reserver.Request{
		SchedulerName: "somebody-else",
		Pods:          []*corev1.Pod{testbed.NewPod("last", scheduler, "1m")},
	})
	heard = c.hear()
	c.unreserve(other)
	for i := range gangSize {
		c.bound(fmt.Sprint("member-", i))
	}
	c.reserve("end", "0", c.nodes[0], time.Hour)
	news := heard("end")
	kept := slices.IndexFunc(news, func(what string) bool { return strings.Contains(what, "slot member") })
	require.GreaterOrEqual(t, kept, 0, news)
	assert.ElementsMatch(t, []string{
		"SlotPlaced slot member-0", "SlotPlaced slot member-1", "SlotPlaced slot member-2",
		"SlotPlaced slot member-3",
	},
		news[kept:min(kept+gangSize, len(news))], "all of them, before any is bound: %v", news)
	c.unreserve(&reserver.Request{
		SchedulerName: "somebody-else",
		Pods:          []*corev1.Pod{testbed.NewPod("end", scheduler, "0")},
	})
	c.RequireNeverOvercommitted()
	c.awaitClaims(0)
}

// hear follows the ledger from now on. What it returns waits for the slot of a pod, and tells of which other
// pods there were slots or allocations before.
func (c *cluster) hear() func(last string) []string {
	c.T.Helper()
	ctx, stop := context.WithTimeout(c.T.Context(), testbed.Soon)
	c.T.Cleanup(stop)
	changes := testbed.Changes(ctx, c.T, c.Ledger.URL)
	return func(last string) []string {
		var pods []string
		for e := range changes {
			switch {
			case e.Slot != nil && e.Slot.Slot.Slot.Pod == last:
				return pods
			case e.Slot != nil:
				pods = append(pods, e.Slot.Type+" slot "+e.Slot.Slot.Slot.Pod)
			case e.Allocation != nil:
				pods = append(pods, e.Allocation.Type+" allocation "+e.Allocation.Allocation.Pod)
			}
		}
		return append(pods, "the watch has ended")
	}
}
