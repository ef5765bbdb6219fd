package arbiter

import (
	"context"
	"errors"
	"time"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/identity"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

const (
	// toldRate is how many pods a second are looked at because a scheduler plugin elsewhere has refused them, of all callers
	// together, and toldBurst how many at once: each is asked about all nodes. As many are read live beside that: a name that
	// somebody made up costs a read, and must not cost a look at a pod that is there.
	toldRate  = 200
	toldBurst = 200
	// toldReadTimeout is for all live reads of one request: whoever tells waits for them, and has more to tell.
	toldReadTimeout = time.Second
)

// Told counts the pods that a scheduler plugin elsewhere says it has refused.
type Told struct {
	// Remembered are refusals now. Ignored are of no pod that waits, or nothing is in the pod's way. Dropped were too many, or
	// the API server did not say in time whether they are there.
	Remembered, Ignored, Dropped int
}

// TellRefused remembers that a scheduler plugin elsewhere has left pods no node. The caller says which pods; whether nodes
// refuse them, and why, says the ledger. The caller's watch is often ahead of ours, and it tells of a pod once: those that ours
// has not brought are read live, after the others are remembered. Where the caller may not act for the scheduler of one,
// nothing is remembered, nor read; where that shows only when one is read, nothing is remembered of those that were read.
func (a *Arbiter) TellRefused(ctx context.Context, pods []ledger.PodRef) (told Told, err error) {
	if err := a.o.Ledger.Ready(); err != nil {
		return told, err
	}
	var brought []found
	var unknown []ledger.PodRef
	seen := map[ledger.PodRef]bool{}
	for _, ref := range pods {
		switch info, err := a.pods.watched(ref); {
		case seen[ref]:
		case info != nil || err != nil:
			brought = append(brought, found{info: info, err: err})
		default:
			unknown = append(unknown, ref)
		}
		seen[ref] = true
	}
	if err := a.rememberTold(ctx, brought, &told); err != nil {
		return told, err
	}
	err = a.rememberTold(ctx, a.readTold(ctx, unknown, &told), &told)
	return told, err
}

// readTold reads pods live, and drops those that are too many.
func (a *Arbiter) readTold(ctx context.Context, pods []ledger.PodRef, told *Told) []found {
	g := &Gang{}
	for _, ref := range pods {
		if a.toldReads.AllowN(a.o.Ledger.Clock.Now(), 1) {
			g.Pods = append(g.Pods, GangPod{Ref: ref})
		} else {
			told.Dropped++
		}
	}
	ctx, cancel := context.WithTimeout(ctx, toldReadTimeout)
	defer cancel()
	return a.findAll(ctx, g)
}

// rememberTold remembers those of the pods that wait and that nodes refuse: none where the caller may not act for the scheduler
// of one that waits.
func (a *Arbiter) rememberTold(ctx context.Context, pods []found, told *Told) error {
	var waiting []*cluster.Pod
	for _, pod := range pods {
		switch {
		case errors.Is(pod.err, &Error{Outcome: Failed}):
			told.Dropped++
			continue
		case pod.err != nil || !a.waits(pod.info):
			told.Ignored++
			continue
		}
		if err := a.mayUse(ctx, pod.info.Scheduler); err != nil {
			return err
		}
		waiting = append(waiting, pod.info)
	}
	if len(waiting) == 0 {
		return nil
	}
	var nodes []string
	a.o.Ledger.VisitNodes(func(name string) { nodes = append(nodes, name) })
	caller := identity.Name(ctx)
	for _, pod := range waiting {
		switch {
		case !a.told.AllowN(a.o.Ledger.Clock.Now(), 1):
			told.Dropped++
		case a.PluginRefused(caller, pod.AskedBy(caller), nodes):
			told.Remembered++
		default:
			told.Ignored++
		}
	}
	return nil
}

// waits reports whether a pod waits for a node.
func (a *Arbiter) waits(pod *cluster.Pod) bool {
	_, allocated := a.o.Ledger.Allocation(pod.Ref) // it is being bound
	return pod.Node == "" && !pod.Finished && !pod.Deleting && !allocated
}
