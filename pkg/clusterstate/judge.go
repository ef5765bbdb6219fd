package clusterstate

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// judgeAll settles suspicions and returns those that were true. It asks the API
// server for maxLookups objects at most; the rest stay suspects, as do those that
// could not be read, which the error tells of. c.mu is held.
func (c *Comparer) judgeAll(ctx context.Context, suspects []suspicion, maxLookups int) ([]Difference, error) {
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
		delete(c.suspects, s)
		if d != nil {
			differences = append(differences, *d)
		}
	}
	return differences, errors.Join(errs...)
}

// judge settles one suspicion: nil is for one that is not true, or no more.
func (c *Comparer) judge(ctx context.Context, s suspicion) (*Difference, error) {
	if s.node != "" {
		var live *nodeRecord
		before := c.cache.nodes.get(s.node)
		if s.live {
			var err error
			if live, err = c.fetchNode(ctx, s.node); err != nil {
				return nil, err
			}
		}
		return c.judgeNode(s, live, before), nil
	}
	var live *podRecord
	if s.live {
		var err error
		if live, err = c.fetchPod(ctx, s.pod); err != nil {
			return nil, err
		}
	}
	return c.judgePod(s, live), nil
}

// fetchPod reads a pod from the API server, past every cache; nil is a pod that
// is gone.
func (c *Comparer) fetchPod(ctx context.Context, ref ledger.PodRef) (*podRecord, error) {
	pod, err := c.client.CoreV1().Pods(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading pod %s: %w", ref, err)
	case ref.UID != "" && pod.UID != ref.UID:
		return nil, nil
	default:
		return newPodRecord(c.ledger.Table(), pod), nil
	}
}

// fetchNode reads a node from the API server; nil is a node that is gone.
func (c *Comparer) fetchNode(ctx context.Context, name string) (*nodeRecord, error) {
	node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	default:
		return newNodeRecord(c.ledger.Table(), node), nil
	}
}

// judgePod compares once more, with nothing changing meanwhile, and repairs. live
// is what the API server said, where it was asked.
func (c *Comparer) judgePod(s suspicion, live *podRecord) *Difference {
	d, change := c.settlePod(s, live)
	if change != nil {
		c.cache.tell(*change)
	}
	return d
}

func (c *Comparer) settlePod(s suspicion, live *podRecord) (*Difference, *podChange) {
	c.cache.apply.Lock()
	defer c.cache.apply.Unlock()
	record := c.evidence(s, live)
	var pod *podinfo.Info
	if record != nil {
		pod = &record.Info
	}
	view, ok := c.ledger.Claim(s.pod)
	claim := orNil(view, ok)
	kind := diagnosePod(claim, pod)
	if kind == "" || (!s.live && needsLive(kind, pod)) || inFlight(kind, claim, pod) {
		return nil, nil
	}
	table := c.ledger.Table()
	d := &Difference{
		Kind: kind, Pod: s.pod, Live: s.live,
		Ledger: describeClaim(table, claim), Cluster: describePod(table, pod),
	}
	if claim != nil {
		d.Node = claim.Node
	} else {
		d.Node = pod.Node
	}
	change := c.repairPod(s.pod, record)
	if change != nil && record != nil && record.Bound() && change.observed == ledger.ObservedNothing {
		return nil, change // the ledger knows something newer, so it was right
	}
	view, ok = c.ledger.Claim(s.pod)
	d.Repaired = diagnosePod(orNil(view, ok), pod) == ""
	return d, change
}

// evidence is the newest known state of a pod, nil where it is gone: what the
// API server said, unless the cache has overtaken that; without such an answer,
// what the cache has. The cache's lock is held.
func (c *Comparer) evidence(s suspicion, live *podRecord) *podRecord {
	held := c.cache.pods.get(podKey{s.pod.Namespace, s.pod.Name})
	if held != nil && s.pod.UID != "" && held.Ref.UID != s.pod.UID {
		held = nil
	}
	if !s.live {
		return held
	}
	if live != nil && held != nil && older(live.ResourceVersion, held.ResourceVersion) {
		return held
	}
	return live
}

// inFlight reports whether a claim is ahead of its pod because a bind has not
// ended: the binder will learn how it does. A pod that is gone ends it here.
func inFlight(kind Kind, claim *ledger.ClaimView, pod *podinfo.Info) bool {
	return kind == StaleClaim && claim.State == ledger.Binding && pod != nil && !pod.Finished
}

// repairPod makes the cache and the ledger take a proven state of a pod; nil is
// a pod that is gone. It returns nil where nothing can be done. The cache's lock
// is held.
func (c *Comparer) repairPod(ref ledger.PodRef, record *podRecord) *podChange {
	if record == nil {
		change := c.cache.applyRemovePod(ref, 0)
		return &change
	}
	if record.Node == "" && !record.Finished {
		// Bound in the ledger, not bound in the cluster. Taking the claim away
		// would need a removal of the pod, after which the ledger refuses it.
		return nil
	}
	if change, ok := c.cache.applyPod(record); ok {
		return &change
	}
	return nil
}

// judgeNode compares once more, with nothing changing meanwhile, and repairs.
// before is what the cache held when the API server was asked.
func (c *Comparer) judgeNode(s suspicion, live, before *nodeRecord) *Difference {
	c.cache.apply.Lock()
	defer c.cache.apply.Unlock()
	record := c.cache.nodes.get(s.node)
	if s.live {
		if record != before {
			return nil // the cache has overtaken the answer
		}
		if live == nil || record == nil || !older(live.version, record.version) {
			record = live
		}
	}
	table := c.ledger.Table()
	view, _, ok := c.ledger.Node(s.node)
	kind := diagnoseNode(table, orNil(view, ok), record)
	if kind == "" {
		return nil
	}
	d := &Difference{
		Kind: kind, Node: s.node, Live: s.live,
		Ledger: describeView(table, orNil(view, ok)), Cluster: describeNode(table, record),
	}
	if record != nil {
		c.cache.applyNode(record)
	} else {
		c.cache.applyRemoveNode(s.node)
	}
	view, _, ok = c.ledger.Node(s.node)
	d.Repaired = diagnoseNode(table, orNil(view, ok), record) == ""
	return d
}
