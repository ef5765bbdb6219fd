package schedulerplugin

import (
	"context"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
)

// PreEnqueue implements fwk.PreEnqueuePlugin: while the scheduler starts, or another process has the ledger, pods are
// kept out of its queue. Each would be tried in vain, and its status be written.
func (p *Plugin) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	if p.server.deciding() {
		return nil
	}
	if info, err := p.read(pod); err == nil {
		return p.wait(info)
	}
	return nil // PreFilter says what is wrong with it
}

// PreFilter implements fwk.PreFilterPlugin. A pod that has capacity on a node already is
// kept to that node: among many nodes the scheduler might not look at it else.
func (p *Plugin) PreFilter(_ context.Context, state fwk.CycleState, pod *v1.Pod,
	nodes []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	l := p.server.ledger
	// Before anything is decided, so that capacity freed meanwhile is not missed.
	c := &cycle{revision: l.Revision(), refused: &atomic.Bool{}, group: groupOf(state)}
	info, err := p.read(pod)
	if err != nil {
		p.log.WithError(err).WithField("pod", klog.KObj(pod).String()).
			Warn("A pod is refused on every node: its request cannot be counted")
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, placement.Uncountable)
	}
	c.pod = info
	if !p.server.deciding() {
		return nil, p.wait(info)
	}
	c.placement = p.server.question.For(info, "")
	c.gang = gangOf(pod, info)
	state.Write(stateKey, c)
	if p.server.arbiter.MayHave(&c.placement) != nil {
		p.waker.waiting.Await(info, c.revision, nil, true)
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, otherwise) // its victims would die in vain
	}
	if status := p.gangWaits(c); status != nil {
		return nil, status
	}
	home, ok := l.PlaceOf(info.Ref)
	if ok {
		if slot, kept := l.InMemory(info.Ref); !kept || !slot.Movable {
			p.refused(c, ledger.AllocatedElsewhere) // it cannot be anywhere else, and Filter is not called for other nodes
			return &fwk.PreFilterResult{NodeNames: sets.New(home)}, nil
		}
		// It may be bound elsewhere, and what is kept for it may change places while nodes are looked at.
		p.waker.tryAgain(info)
	}
	if kept := p.keptFor(c, nodes); kept != nil {
		return &fwk.PreFilterResult{NodeNames: kept}, nil
	}
	if !ok {
		c.survey(l, len(nodes))
	}
	return nil, nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// Filter implements fwk.FilterPlugin.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return fwk.NewStatus(fwk.Error,
			"GlobalReserve: Filter without PreFilter; enable the plugin for both, or under multiPoint")
	}
	var reason ledger.Reason
	switch name := node.Node().Name; {
	case !c.whatif.empty() || c.group.isOn(name):
		reason = p.fitsImagined(c, name)
	case c.surveyed:
		reason = c.refusals[name] // Fits where it is not there
	default:
		reason = fits(p.server.ledger, &c.placement, name)
	}
	if reason == ledger.Fits {
		return nil
	}
	p.refused(c, reason)
	return refuse(reason)
}

// maxRefusals is up to how many nodes without capacity are noted before Filter is called; it asks node by node where
// there are more, which are mostly nodes that the scheduler's own plugins have refused by then.
const maxRefusals = 512

// survey looks at all nodes at once, where the ledger and the scheduler have the same
// number of them: one that only the scheduler knows would be taken for one with capacity.
func (c *cycle) survey(l ledger.Reader, nodes int) {
	refusals, known, ok := l.Refusals(&c.placement, maxRefusals)
	if ok && known == nodes {
		c.surveyed, c.refusals = true, refusals
	}
}

// fits asks the ledger about one node.
func fits(l ledger.Reader, placement *ledger.Placement, node string) ledger.Reason {
	nodes, verdicts := [1]string{node}, [1]ledger.Verdict{}
	return l.AppendFit(verdicts[:0], placement, nodes[:])[0].Reason
}

// refused registers the pod to be woken when there is capacity for it that there was not at the
// cycle's revision. reason is that of a node. Whether all nodes refuse the pod is not known yet; if one does
// not, Reserve forgets it again.
func (p *Plugin) refused(c *cycle, reason ledger.Reason) {
	if !c.refused.Load() && c.refused.CompareAndSwap(false, true) {
		p.waker.waiting.Await(c.pod, c.revision, nil, reason.OfLimit())
		if !slices.Equal(p.server.question.Matcher.Candidates(c.pod), c.placement.Slots) {
			p.waker.waiting.Wake(c.pod) // it was looked at without a reservation that it may use by now
		}
	}
}

// preferredScore is what the pod's best node scores, and preferredStep what each one
// after it scores less, down to half of it.
const (
	preferredScore = fwk.MaxScore
	preferredStep  = 5
)

// PreScore implements fwk.PreScorePlugin: it finds the nodes that keep capacity the pod
// may use. For most pods there are none, and nothing to score.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	c.preferred = c.preferred[:0]
	if l := p.server.ledger; len(c.placement.Slots) > 0 || l.HasSlots() {
		for _, slot := range l.PreferredSlots(&c.placement) {
			c.preferred = append(c.preferred, slot.Node)
		}
	}
	if len(c.preferred) == 0 {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score implements fwk.ScorePlugin.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	c := cycleOf(state)
	if c == nil {
		return fwk.MinScore, nil
	}
	i := slices.Index(c.preferred, node.Node().Name)
	if i < 0 {
		return fwk.MinScore, nil
	}
	return max(preferredScore-int64(i)*preferredStep, preferredScore/2), nil
}

// ScoreExtensions implements fwk.ScorePlugin: the scores are in the framework's range as they are.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }

// SignPod implements fwk.SignPlugin. What Filter says depends on what the pod asks
// for and on the ledger. Pods that capacity is kept for are looked at one by one, and so are
// those with claims of devices: of two that are alike only one may get it.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	info, err := p.read(pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, placement.Uncountable)
	}
	if info.Devices.Asks() {
		return nil, fwk.NewStatus(fwk.Unschedulable, "GlobalReserve: the pod claims devices")
	}
	if _, home := p.server.ledger.PlaceOf(info.Ref); home || len(p.server.question.Matcher.Candidates(info)) > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, "GlobalReserve: capacity is kept for the pod")
	}
	return []fwk.SignFragment{{Key: "GlobalReserve.Request()", Value: signature{
		Request: info.Request, Ready: p.server.deciding(),
	}}}, nil
}

// signature is what the plugin's answers for a pod depend on. A column stands for the
// same resource as long as the scheduler runs.
type signature struct {
	Request any
	Ready   bool
}
