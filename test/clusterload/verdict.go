package clusterload

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Violation is a moment at which a node had more bound than it offers. Each amount of a node and
// resource is recorded once, however many events repeat it.
type Violation struct {
	At time.Time
	// ResourceVersion is that of the pod or node whose event showed it.
	ResourceVersion string
	Node            string
	Resource        corev1.ResourceName
	// Used and Allocatable are in milli-CPU for cpu, else in the resource's own unit.
	Used, Allocatable int64
}

// String says it in one line.
func (v Violation) String() string {
	return fmt.Sprintf("%s: %d of %d %s bound (resource version %s)",
		v.Node, v.Used, v.Allocatable, v.Resource, v.ResourceVersion)
}

// Peak is the worst that was seen since the start or the last Reset.
type Peak struct {
	// OvercommittedNodes is the most nodes that had too much bound at the same moment.
	OvercommittedNodes int
	// CPUNode is the node with the most CPU bound against what it offers, CPUUsed and
	// CPUAllocatable those amounts in milli-CPU.
	CPUNode                 string
	CPUUsed, CPUAllocatable int64
}

func (p *Peak) raise(a *account) {
	p.OvercommittedNodes = max(p.OvercommittedNodes, a.overcommitted())
	for _, n := range a.nodes {
		used, allocatable := n.used[resources.CPU], n.allocatable[resources.CPU]
		if allocatable > 0 && float64(used)*float64(p.CPUAllocatable) > float64(p.CPUUsed)*float64(allocatable) ||
			p.CPUAllocatable == 0 && used > 0 {
			p.CPUNode, p.CPUUsed, p.CPUAllocatable = n.name, used, allocatable
		}
	}
}

// Violations returns every moment a node was overcommitted, in the order seen. Empty means: at no
// time since the start or the last Reset, if Gaps is 0.
func (w *Watcher) Violations() []Violation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.violations)
}

// Rebinds returns the pods whose node changed after they were bound, in words.
func (w *Watcher) Rebinds() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.account.rebinds)
}

// Peak returns the worst that was seen since the start or the last Reset.
func (w *Watcher) Peak() Peak {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.peak
}

// Gaps tells how often events were lost because the API server no longer had them, which happens
// when it is restarted. What the state was after a gap is known, but not each moment within.
func (w *Watcher) Gaps() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gaps
}

// Reset forgets violations, peak and gaps, for the next run on the same cluster.
func (w *Watcher) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violations, w.peak, w.gaps = nil, Peak{}, 0
	w.peak.raise(w.account)
}

// Snapshot is the state of the cluster after one event.
type Snapshot struct {
	// Pods counts all that exist, Bound those with a node that have not finished, Pending those that wait for a node.
	Pods, Bound, Pending int
	// Refused counts the bound pods that had no capacity left when they arrived at their node: a
	// kubelet would have failed them with OutOfcpu or the like.
	Refused int
	// OvercommittedNodes counts the nodes that have more bound than they offer.
	OvercommittedNodes int
	// Gangs holds every gang of pods, by namespace and name.
	Gangs []Gang
	// FittingPods lists the pods that wait although they would fit.
	FittingPods []FittingPod
	// LastBind is when a pod last got a node, LastChange when one last did that, appeared, finished or went.
	LastBind, LastChange time.Time
}

// Gang is the state of a gang of pods that is to run whole or not at all.
type Gang struct {
	Namespace, Name string
	// Size is how many pods the gang is made of; Bound how many of them have a node, and Refused
	// how many of those had no capacity left there.
	Size, Bound, Refused int
}

// Whole tells whether every pod of the gang can run.
func (g Gang) Whole() bool { return g.Bound == g.Size && g.Refused == 0 }

// Half tells whether some pods of the gang have a node and yet the gang cannot run.
func (g Gang) Half() bool { return g.Bound > 0 && !g.Whole() }

// CountGangs returns how many gangs are whole and how many are half; the others wait.
func (s Snapshot) CountGangs() (whole, half int) {
	for _, g := range s.Gangs {
		switch {
		case g.Whole():
			whole++
		case g.Half():
			half++
		}
	}
	return whole, half
}

// Snapshot returns the state after the last event.
func (w *Watcher) Snapshot() Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := Snapshot{
		Pods: len(w.account.pods), OvercommittedNodes: w.account.overcommitted(),
		FittingPods: w.account.fittingPods(), LastBind: w.lastBind, LastChange: w.lastChange,
	}
	gangs := map[[2]string]*Gang{}
	for _, p := range w.account.pods {
		switch {
		case p.node != "":
			s.Bound++
		case isPending(p.pod):
			s.Pending++
		}
		if p.node != "" && p.refused {
			s.Refused++
		}
		countGang(gangs, p)
	}
	for _, g := range gangs {
		s.Gangs = append(s.Gangs, *g)
	}
	slices.SortFunc(s.Gangs, func(x, y Gang) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return s
}

func countGang(gangs map[[2]string]*Gang, p *podState) {
	name, size, err := gangOf(p.pod)
	if err != nil || name == "" {
		return
	}
	key := [2]string{p.pod.Namespace, name}
	g, known := gangs[key]
	if !known {
		g = &Gang{Namespace: p.pod.Namespace, Name: name, Size: size}
		gangs[key] = g
	}
	if p.node == "" {
		return
	}
	g.Bound++
	if p.refused {
		g.Refused++
	}
}
