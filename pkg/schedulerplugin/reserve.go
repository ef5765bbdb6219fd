package schedulerplugin

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// errNoCycle is what the later extension points say where PreFilter has not run.
var errNoCycle = errors.New("GlobalReserve: PreFilter has not run; enable the plugin under multiPoint")

// Reserve implements fwk.ReservePlugin. Where a pod group is only tried out, the pod
// is remembered for the pods of the group that come after it, and nobody is asked.
func (p *Plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	c := cycleOf(state)
	switch {
	case c == nil:
		return fwk.AsStatus(errNoCycle)
	case c.bypass:
		return nil
	case state.IsPodGroupSchedulingCycle():
		c.group.add(pod, c.on(node))
		return nil
	}
	made, err := p.take(ctx, c, pod, node)
	c.reserved = made
	if err == nil {
		p.waker.settled(c.pod.Ref.UID)
		return nil
	}
	return p.notReserved(c, err)
}

// take asks the backend for a pod's capacity: with those of all others that were placed together with it, where it is the
// first of them.
func (p *Plugin) take(ctx context.Context, c *cycle, pod *v1.Pod, node string) (made bool, err error) {
	if p.isGang(c, pod) {
		return c.group.reserve(ctx, p.backend, pod.UID)
	}
	return p.backend.Reserve(ctx, pod, c.on(node))
}

// notReserved says what becomes of a pod for which Reserve has failed.
func (p *Plugin) notReserved(c *cycle, err error) *fwk.Status {
	var refused *RefusedError
	switch {
	case errors.As(err, &refused) && p.gangRefused(c, refused):
		return refuse(refused.Reason)
	case errors.As(err, &refused):
		// Somebody was faster. There may be capacity on another node, so the pod is tried
		// again as soon as Filter would see what Reserve has seen.
		p.waker.again(c.pod, refused, 0)
		return refuse(refused.Reason)
	case asUnavailable(err) == nil:
		return fwk.AsStatus(fmt.Errorf("reserving capacity: %w", err))
	case p.mayBypass(c):
		c.bypass = true
		return nil
	default:
		return p.wait(c, asUnavailable(err))
	}
}

// wait has a pod tried again when decisions can be made.
func (p *Plugin) wait(c *cycle, why *UnavailableError) *fwk.Status {
	p.waker.await(c.pod, why.Kind)
	return notNow(why)
}

// Unreserve implements fwk.ReservePlugin.
func (p *Plugin) Unreserve(ctx context.Context, state fwk.CycleState, _ *v1.Pod, node string) {
	c := cycleOf(state)
	switch {
	case c == nil:
	case state.IsPodGroupSchedulingCycle():
		c.group.remove(c.pod.Ref.UID)
	case c.reserved, c.group.gaveBack(c.pod.Ref.UID):
		c.reserved = false
		p.backend.Unreserve(ctx, c.on(node))
	}
}

// Bind implements fwk.BindPlugin.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return fwk.AsStatus(errNoCycle)
	}
	c.bound = true
	if !c.bypass {
		err := p.backend.Bind(ctx, c.pod, node)
		var refused *RefusedError
		switch away := asUnavailable(err); {
		case err == nil:
			p.waker.gangSettled(c.gang)
			return nil
		case away != nil && p.mayBypass(c):
		case away != nil:
			return p.wait(c, away)
		case errors.As(err, &refused) && p.gangRefused(c, refused):
			return refuse(refused.Reason)
		case refused != nil: // though it was granted at Reserve: kube-scheduler's own back-off is right then
			return refuse(refused.Reason)
		default:
			return fwk.AsStatus(err)
		}
	}
	p.log.WithField("pod", c.pod.Ref.String()).WithField("node", node).
		Warn("Binding a pod without asking the ledger, because it is not available: the node may get overcommitted")
	return fwk.AsStatus(p.bindDirectly(ctx, pod, node))
}

// mayBypass reports whether a pod may be bound without asking the ledger: not where that
// alone knows which devices the pod is to have.
func (p *Plugin) mayBypass(c *cycle) bool {
	return p.args.FailurePolicy == Ignore && !c.pod.Devices.Asks()
}

// bindDirectly binds a pod as a scheduler does that knows nothing of the ledger.
func (p *Plugin) bindDirectly(ctx context.Context, pod *v1.Pod, node string) error {
	binding := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	}
	return p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
}

// PostBind implements fwk.PostBindPlugin. It tells of a configuration in which pods are
// bound past the plugin, once.
func (p *Plugin) PostBind(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	p.waker.settled(pod.UID)
	c := cycleOf(state)
	if c == nil {
		return
	}
	c.reserved = false
	if !c.bound {
		p.boundByOthers.Do(func() {
			p.log.WithField("profile", p.handle.ProfileName()).Error("Another plugin binds the pods of this profile. " +
				"Their capacity may be given away if the ledger's server changes before they are bound: enable GlobalReserve under bind, and disable DefaultBinder")
		})
	}
}
