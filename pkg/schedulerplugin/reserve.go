package schedulerplugin

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// errNoCycle is the error of the later extension points where PreFilter has not run.
var errNoCycle = errors.New("GlobalReserve: PreFilter has not run; enable the plugin under multiPoint")

// Reserve implements fwk.ReservePlugin. Where a pod group is only tried out, the pod
// is remembered for the pods of the group that come after it, and the server is not asked.
func (p *Plugin) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return fwk.AsStatus(errNoCycle)
	}
	placement, err := p.claiming(c, pod, node)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("reserving capacity: %w", err))
	}
	var revision uint64 // the ledger's when it was asked
	switch {
	case state.IsPodGroupSchedulingCycle():
		c.group.add(placement)
		return nil
	case p.isGang(c, pod):
		c.reserved, revision, err = c.group.reserve(p.server, pod.UID)
	default:
		var made []bool
		made, revision, err = p.server.arbiter.KeepAll([]ledger.Placement{*placement}, p.server.ttl)
		c.reserved = err == nil && made[0]
	}
	if err == nil {
		p.waker.settled(c.pod.Ref.UID)
		return nil
	}
	return p.notReserved(c, err, revision)
}

// claiming asks for the capacity of a pod on a node for which the framework has chosen devices of its ResourceClaims:
// its status says what they take of the node's own resources.
func (p *Plugin) claiming(c *cycle, pod *v1.Pod, node string) (*ledger.Placement, error) {
	if len(pod.Status.NodeAllocatableResourceClaimStatuses) == 0 {
		return c.on(node), nil
	}
	request, err := resources.ForClaimingPod(p.server.ledger.Table(), pod)
	if err != nil {
		return nil, err
	}
	info := *c.pod
	info.Claiming = &request
	placement := p.server.question.For(&info, node)
	return &placement, nil
}

// notReserved says what becomes of a pod for which the arbiter has kept no capacity, at a revision.
func (p *Plugin) notReserved(c *cycle, err error, revision uint64) *fwk.Status {
	reason, refused := refusal(err)
	if !refused { // the lease was lost since it was asked
		return p.wait(c.pod)
	}
	if !p.gangRefused(c, reason, revision) {
		// Somebody was faster. There may be capacity on another node, so the pod is tried again.
		p.waker.again(c.pod, reason, 0)
	}
	return refuse(reason)
}

// wait registers a pod to be tried again when decisions can be made.
func (p *Plugin) wait(pod *cluster.Pod) *fwk.Status {
	p.waker.await(pod)
	return notNow()
}

// Unreserve implements fwk.ReservePlugin.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, _ *v1.Pod, node string) {
	c := cycleOf(state)
	switch {
	case c == nil:
	case state.IsPodGroupSchedulingCycle():
		c.group.remove(c.pod.Ref.UID)
	case c.reserved, c.group.gaveBack(c.pod.Ref.UID):
		c.reserved = false
		p.server.arbiter.Release(c.on(node))
	}
}

// Bind implements fwk.BindPlugin.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, _ *v1.Pod, node string) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return fwk.AsStatus(errNoCycle)
	}
	c.bound = true
	err := p.server.arbiter.BindKnown(ctx, c.pod, node)
	switch reason, _ := refusal(err); {
	case err == nil:
		p.waker.gangSettled(c.gang)
		return nil
	case reason.OfGang():
		// Of another pod, kube-scheduler's own back-off is right: Reserve had granted it.
		p.gangRefused(c, reason, p.server.ledger.Revision())
		return refuse(reason)
	default:
		return fwk.AsStatus(err)
	}
}

// PostBind implements fwk.PostBindPlugin. It logs a configuration in which pods are bound past the plugin, once.
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
				"Their capacity may be given away if the ledger's server changes before they are bound: enable GlobalReserve " +
				"under bind, and disable DefaultBinder")
		})
	}
}
