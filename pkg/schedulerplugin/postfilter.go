package schedulerplugin

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// PostFilter implements fwk.PostFilterPlugin: where no node is left for a pod, and the ledger has refused some, it
// reports that to the arbiter, which remembers refusals. It never finds a node.
func (p *Plugin) PostFilter(_ context.Context, state fwk.CycleState, _ *v1.Pod,
	statuses fwk.NodeToStatusReader,
) (*fwk.PostFilterResult, *fwk.Status) {
	nothing := fwk.NewStatus(fwk.Unschedulable)
	c := cycleOf(state)
	if c == nil || !c.refused.Load() {
		return nil, nothing
	}
	var nodes []string
	for _, code := range []fwk.Code{fwk.Unschedulable, fwk.UnschedulableAndUnresolvable} {
		refused, err := statuses.NodesForStatusCode(p.handle.SnapshotSharedLister().NodeInfos(), code)
		if err != nil {
			p.log.WithError(err).Warn("It is not known which nodes were refused to a pod")
			return nil, nothing
		}
		for _, node := range refused {
			if name := node.Node().Name; statuses.Get(name).Plugin() == Name {
				nodes = append(nodes, name)
			}
		}
	}
	if len(nodes) > 0 {
		p.server.arbiter.PluginRefused(c.pod, nodes)
	}
	return nil, nothing
}
