package plugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// A pod goes to the node that keeps room for it, uses that room, and says so; another one cannot.
func TestReservedRoomIsUsed(t *testing.T) {
	eachMode(t, setup{nodes: 3, cpu: "4"}, func(t *testing.T, c *cluster) {
		const home = 2
		rsv := &v1alpha1.Reservation{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kept"},
			Spec: v1alpha1.ReservationSpec{
				TTL:       &metav1.Duration{Duration: soon * 10},
				Consumers: &v1alpha1.ConsumerSpec{Index: "team"},
				Slots: []v1alpha1.Slot{{
					Name: "s", NodeName: c.nodes[home], Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
				}},
			},
		}
		reservations := c.reservations.GlobalreserveV1alpha1().Reservations(namespace)
		_, err := reservations.Create(t.Context(), rsv, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			now, err := reservations.Get(t.Context(), rsv.Name, metav1.GetOptions{})
			return err == nil && now.Status.Phase == v1alpha1.ReservationAvailable
		}, soon, poll)
		for _, name := range []string{"stranger-0", "stranger-1", "stranger-2"} {
			c.create(newPod(name, "4"))
		}
		c.bound("stranger-0")
		c.bound("stranger-1")
		assert.Contains(t, c.refused("stranger-2"), "GlobalReserve: not enough room left on the node")
		c.create(newPod("member", "4", func(p *corev1.Pod) {
			p.Annotations = map[string]string{v1alpha1.ReservationIndexAnnotation: "team"}
		}))
		assert.Equal(t, c.nodes[home], c.bound("member"))
		assert.Equal(t, namespace+"/kept/s", c.pod("member").Annotations[v1alpha1.MatchedReservationAnnotation])
		assert.Empty(t, c.watcher.Violations())
	})
}

// kube-scheduler's preemption works on a node that is full, and evicts nobody for room that others
// have reserved.
func TestPreemption(t *testing.T) {
	eachMode(t, setup{nodes: 2, cpu: "4"}, func(t *testing.T, c *cluster) {
		c.createPriorities(map[string]int32{"low": 10})
		_, err := c.Client().SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: "preempting"}, Value: 1000,
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		of := func(class string) func(*corev1.Pod) {
			return func(p *corev1.Pod) { p.Spec.PriorityClassName = class }
		}
		c.reserve("other", "3", c.nodes[0], soon*10) // with 1 CPU left
		c.create(newPod("victim", "3", of("low")))
		require.Equal(t, c.nodes[1], c.bound("victim"))
		c.create(newPod("small", "1", of("low")))
		c.bound("small")
		c.create(newPod("urgent", "3", of("preempting")))
		assert.Equal(t, c.nodes[1], c.bound("urgent"), "evicting from the other node would not help")
		assert.Empty(t, c.watcher.Violations())
	})
}

// The room of a pod that is deleted is kept for a pod that waits, and wakes it: the ledger has the room
// before anybody can read whose it is.
func TestKeptRoomWakesThePodItIsFor(t *testing.T) {
	eachMode(t, setup{nodes: 1, cpu: "4"}, func(t *testing.T, c *cluster) {
		member := func(p *corev1.Pod) {
			p.Annotations = map[string]string{
				v1alpha1.ReservationAnnotation: "true", v1alpha1.ReservationIndexAnnotation: "team",
			}
		}
		c.create(newPod("first", "4", member))
		c.bound("first")
		c.create(newPod("stranger", "4"))
		c.refused("stranger")
		c.create(newPod("second", "4", member))
		c.refused("second")
		c.delete("first")
		at := time.Now()
		c.bound("second")
		assert.Less(t, time.Since(at), promptly)
		assert.Contains(t, c.pod("second").Annotations[v1alpha1.MatchedReservationAnnotation], namespace+"/first")
		assert.Empty(t, c.watcher.Violations())
	})
}
