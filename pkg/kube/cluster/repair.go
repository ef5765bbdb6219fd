package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// judgeAll settles suspicions and returns those that were true. It asks the API server for maxLookups objects at most.
// The rest stay suspects, as do those that could not be read, which the error reports.
func (c *Comparer) judgeAll(ctx context.Context, suspects []suspicion) ([]Difference, error) {
	since := c.ledger.Revision()
	var differences []Difference
	var errs []error
	lookups := 0
	for _, s := range suspects {
		if s.live {
			if lookups >= maxLookups {
				continue
			}
			lookups++
		}
		d, err := c.judge(ctx, s)
		if err != nil {
			errs = append(errs, err)
			if ctx.Err() != nil {
				break
			}
			continue
		}
		if d == nil || d.Repaired {
			delete(c.suspects, s) // any other is there at the next look too
		}
		if d != nil {
			differences = append(differences, *d)
		}
	}
	if len(differences) > 0 {
		c.cache.options.OnCatchUp(since)
	}
	return differences, errors.Join(errs...)
}

// judge settles one suspicion. It returns nil for a suspicion that is not true, or not true any more.
func (c *Comparer) judge(ctx context.Context, s suspicion) (*Difference, error) {
	if s.node != "" {
		return c.judgeNode(ctx, s)
	}
	if !s.live {
		d, sure := c.judgePod(s, answer{})
		if sure {
			return d, nil
		}
		s.live = true
	}
	before := c.cache.find(podKey{s.pod.Namespace, s.pod.Name})
	live, err := c.fetchPod(ctx, s.pod)
	if err != nil {
		return nil, err
	}
	d, _ := c.judgePod(s, answer{pod: live, before: before})
	return d, nil
}

// answer is what the API server said of a pod, nil where it is gone, and what the cache held when it was asked.
type answer struct{ pod, before *Pod }

// fetchPod reads a pod from the API server, past every cache; nil is a pod that is gone.
func (c *Comparer) fetchPod(ctx context.Context, ref ledger.PodRef) (*Pod, error) {
	pod, err := c.client.CoreV1().Pods(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading pod %s: %w", ref, err)
	case ref.UID != "" && pod.UID != ref.UID:
		return nil, nil
	default:
		return c.cache.reader.Compact(pod), nil
	}
}

// fetchNode reads a node from the API server; nil is a node that is gone.
func (c *Comparer) fetchNode(ctx context.Context, name string) (*Node, error) {
	node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	default:
		return compactNode(c.ledger.Table(), node), nil
	}
}

// judgePod compares once more, with nothing changing meanwhile, and repairs. sure
// is false where only the API server knows which side is right.
func (c *Comparer) judgePod(s suspicion, live answer) (d *Difference, sure bool) {
	d, change, sure := c.settlePod(s, live)
	if change != nil {
		c.cache.tell(*change)
	}
	return d, sure
}

func (c *Comparer) settlePod(s suspicion, live answer) (d *Difference, change *podChange, sure bool) {
	c.cache.apply.Lock()
	defer c.cache.apply.Unlock()
	record := c.cache.find(podKey{s.pod.Namespace, s.pod.Name})
	shown := record != nil && record.Ref.UID == s.pod.UID
	if s.live {
		if record != live.before {
			return nil, nil, true // the cache has overtaken the answer
		}
		record = live.pod
	} else if record != nil && s.pod.UID != "" && record.Ref.UID != s.pod.UID {
		record = nil
	}
	table, allocation := c.ledger.Table(), allocationOf(c.ledger.Reader, s.pod)
	kind := diagnosePod(table, allocation, record)
	if kind == "" || (!s.live && needsLive(kind, record)) || inFlight(kind, allocation, record, shown) {
		return nil, nil, true
	}
	d = &Difference{
		Kind: kind, Pod: s.pod, Live: s.live,
		Ledger: describeAllocation(table, allocation), Cluster: describePod(table, record),
	}
	if allocation != nil {
		d.Node = allocation.Node
	} else {
		d.Node = record.Node
	}
	change = c.repairPod(s.pod, record)
	if ignored := change != nil && record.Bound() && change.observed == ledger.ObservedNothing; ignored {
		// By what the ledger has recorded, the pod is beyond this state.
		if !s.live {
			return nil, change, false
		}
		// The API server says it is not: a state without a version is taken for new.
		o := c.cache.observation(record)
		o.ResourceVersion = 0
		change.observed = c.ledger.ObservePod(o)
	}
	d.Repaired = diagnosePod(table, allocationOf(c.ledger.Reader, s.pod), record) == ""
	return d, change, true
}

// inFlight reports whether an allocation is ahead of its pod because a bind has not ended: the arbiter will learn how
// the bind ends. Where the watch has shown the pod, and it is gone, the bind has ended. A pod that the watch has not
// shown may still be created.
func inFlight(kind Kind, allocation *ledger.AllocationView, pod *Pod, shown bool) bool {
	return kind == StaleAllocation && allocation.State == ledger.Binding &&
		(pod != nil && !pod.Finished || pod == nil && !shown)
}

// repairPod makes the cache and the ledger take a proven state of a pod; nil is a pod that is gone. It returns nil
// where nothing can be done. The cache's lock is held.
func (c *Comparer) repairPod(ref ledger.PodRef, record *Pod) *podChange {
	if record == nil {
		// No pod has this UID again, so whatever a watch that is behind still brings of it is old.
		change := c.cache.applyRemovePod(ref, nil, math.MaxUint64)
		return &change
	}
	if record.Node == "" && !record.Finished {
		// Bound in the ledger, not bound in the cluster. Taking the allocation away
		// would need a removal of the pod, after which the ledger refuses it.
		return nil
	}
	if change, ok := c.cache.applyPod(record); ok {
		return &change
	}
	return nil
}

// judgeNode compares once more, with nothing changing meanwhile, and repairs.
func (c *Comparer) judgeNode(ctx context.Context, s suspicion) (*Difference, error) {
	before := c.cache.byName.get(s.node)
	record := before
	if s.live {
		var err error
		if record, err = c.fetchNode(ctx, s.node); err != nil {
			return nil, err
		}
	}
	c.cache.apply.Lock()
	defer c.cache.apply.Unlock()
	if c.cache.byName.get(s.node) != before {
		return nil, nil // it changed meanwhile
	}
	return c.settleNode(s, record), nil
}

// settleNode compares the ledger's node with the cluster's and repairs. The cache's lock is held.
func (c *Comparer) settleNode(s suspicion, record *Node) *Difference {
	table, known := c.ledger.Table(), knownNode(c.ledger.Reader, s.node)
	kind := diagnoseNode(known, record.observation())
	if kind == "" {
		return nil
	}
	d := &Difference{
		Kind: kind, Node: s.node, Live: s.live,
		Ledger: describeNode(table, known), Cluster: describeNode(table, record.observation()),
	}
	if record != nil {
		c.cache.applyNode(record)
	} else {
		c.cache.applyRemoveNode(s.node)
	}
	d.Repaired = diagnoseNode(knownNode(c.ledger.Reader, s.node), record.observation()) == ""
	return d
}
