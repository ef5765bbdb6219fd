package app

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/arbiter/matcher"
	"github.com/globalreserve/globalreserve/pkg/arbiter/notices"
	"github.com/globalreserve/globalreserve/pkg/arbiter/steering"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/controller"
	"github.com/globalreserve/globalreserve/pkg/reservations/deletedpods"
)

// buildConsumption sets up how pods come to use reserved room, and how the room
// of deleted pods comes to be reserved.
func (a *App) buildConsumption(clients Clients) {
	a.steering = steering.New(steering.Options{
		Ledger: a.ledger, Question: a.question, Log: a.log,
		Nominator: controller.APIPatcher{Pods: clients.Core.CoreV1()}, OnGivenUp: a.wakeups.Wake,
	})
	a.keeper = deletedpods.New(deletedpods.Options{
		Ledger: a.ledger.Observer, Store: a.objects, Matcher: tellingMatcher{a.matcher, a},
		Deployments: deletedpods.NewDeployments(clients.Metadata, a.log),
		Enabled:     a.reservations.Serving, Taken: a.reservations.Known, TTL: a.policies.ReservationTTL,
		Recorder: a.broadcaster.recorder(), Log: a.log,
	})
}

// tellingMatcher is the matcher as the keeper of deleted pods' room uses it: that room is in
// the ledger before it is known who may use it, so those who wake pods have to be told.
type tellingMatcher struct {
	*matcher.Matcher
	app *App
}

// Set implements deletedpods.Matcher.
func (m tellingMatcher) Set(rsv *v1alpha1.Reservation) error {
	err := m.Matcher.Set(rsv)
	m.app.wakeups.Matched(rsv.Namespace)
	m.app.mu.Lock()
	defer m.app.mu.Unlock()
	for _, f := range m.app.onMatched {
		f(rsv.Namespace)
	}
	return err
}

func (a *App) buildWakeups(client kubernetes.Interface) {
	a.wakeups = controller.NewWakeups(controller.WakeupOptions{
		Ledger: a.ledger.Reader, Patcher: controller.APIPatcher{Pods: client.CoreV1()}, Pods: pendingPods{a.cache, a}, Log: a.log,
		OnWakeup: a.metrics.ObserveWakeup, Question: a.question, Steer: a.steer,
		Ready: func(ctx context.Context) error {
			if err := a.waitForObjects(ctx); err != nil {
				return err
			}
			return a.health.waitOpen(ctx)
		},
	})
}

// settled tells those who remember pending pods that one is bound, or gone.
func (a *App) settled(pod types.UID) {
	a.wakeups.Settled(pod)
	a.arbiter.Settled(pod)
}

// newOnRefused makes what tells pods that were refused all nodes what keeps them waiting.
func (a *App) newOnRefused() func(pod *cluster.Pod, offered []string) {
	notices := notices.New(a.ledger, a.question, a.broadcaster.recorder())
	return func(pod *cluster.Pod, offered []string) {
		notices.Refused(pod, offered)
		a.devices.Refused(pod)
	}
}

// waitForObjects returns when reservations and devices are in the ledger, and pods and nodes with them, or
// ctx ends.
func (a *App) waitForObjects(ctx context.Context) error {
	if err := a.devices.WaitForSync(ctx); err != nil {
		return err
	}
	return a.reservations.WaitForSync(ctx)
}

func (a *App) steer(pod *cluster.Pod) bool { return a.steering.Wake(pod) }
