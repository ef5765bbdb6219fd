package sim

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

const (
	// appLabel is on pods that use the Reservations of users, and maxApps is how many values it has.
	appLabel = "app"
	maxApps  = 4
	// maxReservations is how many names the Reservations of users have.
	maxReservations = 6
)

func (c *Cluster) appName() string { return fmt.Sprintf("app-%d", c.random.IntN(maxApps)) }

// createReservation creates a Reservation as users do.
func (c *Cluster) createReservation(ctx context.Context) {
	r := &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("rsv-%d", c.random.IntN(maxReservations))},
		Spec: v1alpha1.ReservationSpec{
			Preemptible: c.random.IntN(3) == 0,
			TTL:         &metav1.Duration{Duration: time.Duration(5+c.random.IntN(maxTTL-5)) * time.Second},
			Consumers: &v1alpha1.ConsumerSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: c.appName()}},
			},
		},
	}
	for i := range 1 + c.random.IntN(3) {
		slot := v1alpha1.Slot{Name: fmt.Sprintf("slot-%d", i), Requests: c.newRequests()}
		if c.random.IntN(3) == 0 {
			slot.NodeName = c.nodeName()
		}
		switch c.random.IntN(6) {
		case 0:
			slot.Requests[gpu] = oneDevice
		case 1:
			slot.Devices = []v1alpha1.SlotDevices{{ResourceName: string(gpu), Count: 1, MatchProperties: c.model()}}
		}
		r.Spec.Slots = append(r.Spec.Slots, slot)
	}
	_, err := c.objects.Reservations(r.Namespace).Create(ctx, r, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return
	}
	c.must(err, "creating a Reservation")
	c.note("user", "creates reservation %s for %s", r.Name, r.Spec.Consumers.Selector.MatchLabels[appLabel])
}

// deleteReservation deletes a Reservation of users.
func (c *Cluster) deleteReservation(ctx context.Context) {
	name := fmt.Sprintf("rsv-%d", c.random.IntN(maxReservations))
	c.note("user", "deletes reservation %s", name)
	c.must(c.objects.Reservations("default").Delete(ctx, name, metav1.DeleteOptions{}), "deleting a Reservation")
}

// empty deletes all pods and Reservations: nothing must be kept for anybody then.
func (c *Cluster) empty(ctx context.Context) {
	c.note("driver", "everything is deleted")
	for _, pod := range c.choose(func(*v1.Pod) bool { return true }) {
		c.must(c.admin.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0)), "deleting a pod")
	}
	claims := c.objects.ExtendedResourceClaims("default")
	c.must(claims.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}), "deleting the claims")
	resourceClaims := c.admin.ResourceV1().ResourceClaims("default")
	c.must(resourceClaims.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}), "deleting ResourceClaims")
	all := c.objects.Reservations("default")
	c.must(all.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}), "deleting the Reservations")
	c.deletePodGroups(ctx)
	time.Sleep(keptTime)
	c.collectGarbage(ctx)
	time.Sleep(quietStep)
	c.startServers(ctx)
	if c.leader() == nil {
		c.fail("no server decides after everything was deleted")
		return
	}
	c.compare(ctx)
	if left, err := claims.List(ctx, metav1.ListOptions{}); err != nil || len(left.Items) > 0 {
		c.fail("claim %v is still there, after everything was deleted: %v", left.Items, err)
	}
	for _, s := range c.servers {
		for path, list := range map[string]string{
			"/v1/allocations": "Allocations", "/v1/reservations": "Reservations", "/v1/gangs": "Gangs", "/v1/pending": "Pods",
		} {
			answer := map[string]any{}
			if !s.alive() {
				continue
			}
			if err := s.running.ask(ctx, admin, "GET", path, nil, &answer); err != nil {
				c.fail("%s does not answer %s: %v", s.name, path, err)
				return
			}
			if left, _ := answer[list].([]any); len(left) > 0 || answer[list] == nil {
				c.fail("%s still has in %s, after everything was deleted: %v", s.name, path, answer)
			}
		}
	}
}
