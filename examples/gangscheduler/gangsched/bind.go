package gangsched

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// giveBackTimeout bounds the giving back of capacity, which is tried even when the scheduler stops.
const giveBackTimeout = 5 * time.Second

// bindAll binds the pods of a plan one after the other. When one fails, those after it are not tried and their capacity
// is given back; those before it are bound, which nothing can undo. The gang is tried again for what is left of it.
func (s *Scheduler) bindAll(ctx context.Context, plan []placement) error {
	for i := range plan {
		if err := s.bind(ctx, &plan[i]); err != nil {
			s.giveBack(ctx, plan[i:])
			return fmt.Errorf("bind pod %s/%s to %s, as %d of %d: %w",
				plan[i].pod.Namespace, plan[i].pod.Name, plan[i].node, i+1, len(plan), err)
		}
	}
	return nil
}

// bind binds one pod. With GlobalReserve that is the server's part: an allocation is held in its memory and
// is gone if the server is restarted between our reserve and our bind. A bind through POST /bind is
// safe against that, because the server then reserves again before it binds, or refuses; one of our
// own would land on capacity that may have been promised to somebody else in between.
func (s *Scheduler) bind(ctx context.Context, p *placement) error {
	// Before the call: the informer may show the bound pod before the call returns.
	s.assume(p.pod.UID, p.node)
	var err error
	if s.server != nil {
		err = s.server.Bind(ctx, &extenderv1.ExtenderBindingArgs{
			PodNamespace: p.pod.Namespace, PodName: p.pod.Name, PodUID: p.pod.UID, Node: p.node,
		})
	} else {
		// The UID is a precondition: a new pod of the same name is not bound in its place.
		err = s.client.CoreV1().Pods(p.pod.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.pod.Namespace, Name: p.pod.Name, UID: p.pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: p.node},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		s.forget(p.pod.UID)
	}
	return err
}

// giveBack returns reserved capacity that will not be used. Where that fails it comes back by itself when
// the reservation's time is over.
func (s *Scheduler) giveBack(ctx context.Context, plan []placement) {
	if s.server == nil || len(plan) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	if _, err := s.server.Unreserve(ctx, s.request(plan)); err != nil {
		s.log.WithError(err).Warn("capacity stays reserved until its time is over")
	}
}

// request is the wire form of a plan.
func (s *Scheduler) request(plan []placement) *reserver.Request {
	request := &reserver.Request{SchedulerName: s.name}
	for i := range plan {
		request.Pods = append(request.Pods, plan[i].pod)
		request.Nodes = append(request.Nodes, plan[i].node)
	}
	return request
}
