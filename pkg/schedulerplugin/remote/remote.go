package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/arbiter/matcher"
	"github.com/globalreserve/globalreserve/pkg/arbiter/question"
	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/deviceclaims"
	"github.com/globalreserve/globalreserve/pkg/follow"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/mirror"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
)

// Time limits. All pods of a scheduler wait while one is reserved, so that gives up
// soon; a bind may wait for the API server, and runs beside others.
const (
	reserveTry   = 2 * time.Second
	reserveFor   = 2 * time.Second
	bindTry      = 15 * time.Second
	bindFor      = 10 * time.Second
	unreserveFor = 3 * time.Second
	catchUpFor   = 2 * time.Second
	// reconnectAfter is how soon it is tried again to get the watch back: pods wait.
	reconnectAfter = 500 * time.Millisecond
)

// Options configures the backend.
type Options struct {
	Log logrus.FieldLogger
}

// Backend returns how the plugin makes its backend.
func (o Options) Backend() schedulerplugin.NewBackend {
	return func(ctx context.Context, args *schedulerplugin.Args, handle fwk.Handle, s schedulerplugin.Scheduler) (schedulerplugin.Backend, error) {
		reserving, err := newClient(args, reserveTry, reserveFor)
		if err != nil {
			return nil, err
		}
		binding, err := newClient(args, bindTry, bindFor)
		if err != nil {
			return nil, err
		}
		objects, err := newObjects(handle.KubeConfig())
		if err != nil {
			return nil, err
		}
		watcher, err := binding.Watch(ctx, reserver.WatchOptions{})
		if err != nil {
			return nil, fmt.Errorf("watching the ledger: %w", err)
		}
		b := &backend{
			mirror:    mirror.New(mirror.Options{IgnoredResources: args.IgnoredResources, Log: o.Log}),
			reserving: reserving, binding: binding, ttl: args.ReservationTTL.Duration, log: o.Log,
		}
		b.health = &health{mirror: b.mirror, clock: clock.RealClock{}, started: time.Now()}
		definitions := follow.NewDefinitions(objects.Discovery(), v1alpha1.SchemeGroupVersion, o.Log)
		reservations := &reservations{matcher: &matcher.Matcher{}, matched: s.Matched, log: o.Log}
		claims := deviceclaims.NewReader(objects, definitions.Kind("extendedresourceclaims"), s.ClaimChanged, o.Log)
		b.question = &question.Maker{
			Reader: cluster.Reader{Table: b.Ledger().Table()}, Matcher: reservations.matcher, Devices: claims.Devices,
		}
		for _, run := range []func(context.Context) error{
			definitions.Run, reservations.watch(objects, definitions.Kind("reservations")), claims.Run,
			func(ctx context.Context) error { return b.mirror.Run(ctx, watcher) },
		} {
			b.running.Go(func() { _ = run(ctx) }) // the mirror's health says where its watch has ended
		}
		return b, nil
	}
}

func newClient(args *schedulerplugin.Args, try, all time.Duration) (*client.Client, error) {
	return client.New(client.Options{
		URL: args.RemoteURL, CAFile: args.CAFile, CertFile: args.CertFile, KeyFile: args.KeyFile, TokenFile: args.TokenFile,
		Timeout: try, RetryFor: all, MaxReconnect: reconnectAfter,
	})
}

// backend implements schedulerplugin.Backend.
type backend struct {
	mirror    *mirror.Mirror
	question  *question.Maker
	reserving *client.Client
	binding   *client.Client
	health    *health
	ttl       time.Duration
	log       logrus.FieldLogger
	running   sync.WaitGroup
}

// Wait implements schedulerplugin.Backend.
func (b *backend) Wait() error {
	b.running.Wait()
	b.reserving.Close()
	b.binding.Close()
	return nil
}

// Ledger implements schedulerplugin.Backend.
func (b *backend) Ledger() ledger.Reader { return b.mirror.Ledger() }

// Question implements schedulerplugin.Backend.
func (b *backend) Question() *question.Maker { return b.question }

// Ready implements schedulerplugin.Backend.
func (b *backend) Ready() error { return b.health.ready() }

// Reserve implements schedulerplugin.Backend.
func (b *backend) Reserve(ctx context.Context, pod *v1.Pod, p *ledger.Placement) (made bool, err error) {
	if err := b.health.ready(); err != nil {
		return false, err
	}
	made = !b.heldByAnother(p)
	answer, err := b.reserving.Reserve(ctx, &reserver.Request{
		SchedulerName: p.Scheduler, Pods: []*v1.Pod{slim(pod)}, Nodes: []string{p.Node},
		TTLSeconds: int64((b.ttl + time.Second - 1) / time.Second), Durable: ptr.To(false),
	})
	if answer != nil {
		b.mirror.Seen(answer.Revision)
	}
	if err == nil {
		return made, nil
	}
	if unknown := (*reserver.UnknownOutcomeError)(nil); errors.As(err, &unknown) {
		// An answer from memory takes no time, so a server that owes it cannot be relied on. It may
		// have been done: Unreserve gives it back then.
		b.health.failed(err)
		return true, &schedulerplugin.UnavailableError{Kind: schedulerplugin.Away, Cause: err}
	}
	return false, b.explain(err)
}

// ReserveAll implements schedulerplugin.Backend.
func (b *backend) ReserveAll(ctx context.Context, gang []schedulerplugin.Member) (made []bool, err error) {
	made = make([]bool, len(gang))
	for i := range gang {
		if made[i], err = b.Reserve(ctx, gang[i].Pod, &gang[i].Placement); err == nil {
			continue
		}
		for k := range made {
			if made[k] {
				b.Unreserve(ctx, &gang[k].Placement)
			}
		}
		return nil, err
	}
	return made, nil
}

// Advise implements schedulerplugin.Backend. The mirror knows of no gangs: the server refuses their binds.
func (b *backend) Advise(*cluster.Pod) ledger.Reason { return ledger.Fits }

// Refused implements schedulerplugin.Backend. The server is not told.
func (b *backend) Refused(*cluster.Pod, []string) {}

// heldByAnother reports whether what a pod has is not this scheduler's to end. A slot of its
// own was left by a cycle before, or has ended and the mirror has not heard of it.
func (b *backend) heldByAnother(p *ledger.Placement) bool {
	if slot, kept := b.mirror.Ledger().InMemory(p.Pod); kept {
		return slot.Scheduler != p.Scheduler
	}
	_, allocated := b.mirror.Ledger().Allocation(p.Pod)
	return allocated
}

// explain says in the plugin's own words what a request has met.
func (b *backend) explain(err error) error {
	var refused *reserver.RefusedError
	var unknown *reserver.UnknownOutcomeError
	var away *reserver.UnavailableError
	switch {
	case errors.As(err, &unknown):
		return err // also where its last try has found nobody: one before may have been carried out
	case errors.As(err, &refused):
		e := &schedulerplugin.RefusedError{Message: refused.Error(), Revision: refused.Answer.Revision}
		if len(refused.Answer.Rejections) > 0 {
			e.Reason = reasons[refused.Answer.Rejections[0].Reason] // zero for one that only newer servers have
			e.Message = refused.Answer.Rejections[0].Message
		}
		return e
	case errors.As(err, &away):
		b.health.failed(err)
		return &schedulerplugin.UnavailableError{Kind: schedulerplugin.Away, Cause: err}
	default:
		return err
	}
}

// reasons are the ledger's by their names on the wire.
var reasons = func() map[string]ledger.Reason {
	known := map[string]ledger.Reason{}
	for r := ledger.NodeUnknown; r <= ledger.CallerLimit; r++ {
		known[r.String()] = r
	}
	return known
}()

// slim is a pod without what a reservation does not ask for: the node that the
// scheduler assumes, volumes, environments.
func slim(pod *v1.Pod) *v1.Pod {
	return &v1.Pod{ObjectMeta: pod.ObjectMeta, Spec: v1.PodSpec{
		SchedulerName: pod.Spec.SchedulerName, Priority: pod.Spec.Priority, Tolerations: pod.Spec.Tolerations,
		Overhead: pod.Spec.Overhead, Resources: pod.Spec.Resources,
		Containers: containers(pod.Spec.Containers), InitContainers: containers(pod.Spec.InitContainers),
		HostNetwork: pod.Spec.HostNetwork,
	}}
}

func containers(all []v1.Container) []v1.Container {
	light := make([]v1.Container, len(all))
	for i := range all {
		light[i] = v1.Container{
			Name: all[i].Name, Ports: all[i].Ports, Resources: all[i].Resources, RestartPolicy: all[i].RestartPolicy,
		}
	}
	return light
}

// Unreserve implements schedulerplugin.Backend. It waits for the answer: the pod may
// be reserved on another node next.
func (b *backend) Unreserve(ctx context.Context, p *ledger.Placement) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unreserveFor)
	defer cancel()
	pod := &v1.Pod{}
	pod.Namespace, pod.Name, pod.UID = p.Pod.Namespace, p.Pod.Name, p.Pod.UID
	answer, err := b.reserving.Unreserve(ctx, &reserver.Request{
		SchedulerName: p.Scheduler, Pods: []*v1.Pod{pod}, Nodes: []string{p.Node},
	})
	if answer != nil {
		b.mirror.Seen(answer.Revision)
	}
	if err != nil {
		b.log.WithError(err).WithFields(logrus.Fields{"pod": p.Pod.String(), "node": p.Node}).
			Warn("The capacity of a pod could not be given back; it ends at its deadline")
	}
}

// Bind implements schedulerplugin.Backend.
func (b *backend) Bind(ctx context.Context, pod *cluster.Pod, node string) error {
	err := b.binding.Bind(ctx, &extenderv1.ExtenderBindingArgs{
		PodNamespace: pod.Ref.Namespace, PodName: pod.Ref.Name, PodUID: pod.Ref.UID, Node: node,
	})
	if err == nil {
		return nil
	}
	return b.explain(err)
}

// Caught implements schedulerplugin.Backend.
func (b *backend) Caught(ctx context.Context, revision uint64) {
	ctx, cancel := context.WithTimeout(ctx, catchUpFor)
	defer cancel()
	_ = b.mirror.WaitFor(ctx, revision) // the pod is tried again in any case
}
