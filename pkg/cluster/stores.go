package cluster

import (
	"hash/maphash"
	"iter"
	"slices"
	"sync"
)

// podKey finds a pod the way people name it.
type podKey struct{ namespace, name string }

func keyOf(r *Pod) podKey { return podKey{r.Ref.Namespace, r.Ref.Name} }

// podShards is how many parts the pods are kept in. With 150,000 pods a walk
// over all of them then holds each lock for some ten microseconds.
const podShards = 64

// Pods are the pods of a cluster in compact form, as far as the watch has brought
// them. Make one with NewPods. Lookups are safe for concurrent use; writers are
// serialized by Cache.apply.
type Pods struct {
	seed   maphash.Seed
	shards [podShards]podShard
	seen   reachedVersion

	mu      sync.RWMutex    // guards what follows
	pending map[podKey]*Pod // those without a node that have not finished
	claimed map[podKey]*Pod // those that name claims of devices
	counts  Stats
}

type podShard struct {
	mu   sync.RWMutex
	pods map[podKey]*Pod
}

// NewPods returns an empty store.
func NewPods() *Pods {
	s := &Pods{seed: maphash.MakeSeed(), pending: map[podKey]*Pod{}, claimed: map[podKey]*Pod{}}
	for i := range s.shards {
		s.shards[i].pods = map[podKey]*Pod{}
	}
	return s
}

func (s *Pods) shard(k podKey) *podShard {
	return &s.shards[maphash.Comparable(s.seed, k)%podShards]
}

// get returns the pod of a name, nil where there is none.
func (s *Pods) find(k podKey) *Pod {
	shard := s.shard(k)
	shard.mu.RLock()
	defer shard.mu.RUnlock()
	return shard.pods[k]
}

// Put takes in a state of a pod, in the place of the one that had its name, which
// is returned; nil where there was none.
func (s *Pods) Put(r *Pod) (former *Pod) {
	k := keyOf(r)
	shard := s.shard(k)
	shard.mu.Lock()
	former = shard.pods[k]
	shard.pods[k] = r
	shard.mu.Unlock()
	s.account(k, former, r)
	return former
}

// remove takes held, which is what get returned before, out.
func (s *Pods) drop(held *Pod) {
	k := keyOf(held)
	shard := s.shard(k)
	shard.mu.Lock()
	delete(shard.pods, k)
	shard.mu.Unlock()
	s.account(k, held, nil)
}

// account keeps the counts and the pending pods in step with a change; either
// record may be nil.
func (s *Pods) account(k podKey, from, to *Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.add(from, -1)
	s.counts.add(to, 1)
	if to != nil && to.pending() {
		s.pending[k] = to
	} else {
		delete(s.pending, k)
	}
	if to != nil && to.Devices != nil {
		s.claimed[k] = to
	} else {
		delete(s.claimed, k)
	}
}

func (r *Pod) pending() bool { return r.Node == "" && !r.Finished }

func (c *Stats) add(r *Pod, n int) {
	if r == nil {
		return
	}
	c.Pods += n
	switch {
	case r.Finished:
		c.Finished += n
	case r.Node != "":
		c.Bound += n
	default:
		c.Pending += n
	}
	if r.err != nil {
		c.Uncountable += n
	}
}

func (s *Pods) stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.counts
}

// Pod returns the pod of a name; ok is false where there is none. The
// result is shared and must not be changed. Of a pod whose request cannot be
// counted (see PodError) it says that it asks for the resource Uncountable.
func (s *Pods) Pod(namespace, name string) (pod *Pod, ok bool) {
	if r := s.find(podKey{namespace, name}); r != nil {
		return r, true
	}
	return nil, false
}

// PodError returns why the request of a pod cannot be counted, naming the field
// that is wrong; nil where it can, or where there is no such pod.
func (s *Pods) PodError(namespace, name string) error {
	if r := s.find(podKey{namespace, name}); r != nil {
		return r.err
	}
	return nil
}

// PendingPods yields, in no order, the pods that have no node and have not
// finished, those being deleted included. No lock is held while it yields.
func (s *Pods) PendingPods() iter.Seq[*Pod] { return slices.Values(s.pendingPods()) }

func (s *Pods) pendingPods() []*Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	pods := make([]*Pod, 0, len(s.pending))
	for _, r := range s.pending {
		pods = append(pods, r)
	}
	return pods
}

// naming returns the pods of a namespace that name a claim of devices.
func (s *Pods) naming(claim podKey) []*Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var found []*Pod
	for k, r := range s.claimed {
		if k.namespace == claim.namespace && slices.Contains(r.Devices.Claims, claim.name) {
			found = append(found, r)
		}
	}
	return found
}

// all returns every pod. It is not one moment's state: each shard is.
func (s *Pods) allPods() []*Pod {
	records := make([]*Pod, 0, s.stats().Pods)
	for i := range s.shards {
		shard := &s.shards[i]
		shard.mu.RLock()
		for _, r := range shard.pods {
			records = append(records, r)
		}
		shard.mu.RUnlock()
	}
	return records
}

// nodeStore keeps all nodes. Writers are serialized by Cache.apply.
type nodeStore struct {
	mu    sync.RWMutex
	nodes map[string]*nodeRecord
}

func newNodeStore() *nodeStore { return &nodeStore{nodes: map[string]*nodeRecord{}} }

func (s *nodeStore) get(name string) *nodeRecord {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.nodes[name]
}

func (s *nodeStore) set(r *nodeRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[r.Name] = r
}

func (s *nodeStore) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
}

func (s *nodeStore) len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.nodes)
}

func (s *nodeStore) all() []*nodeRecord {
	s.mu.RLock()
	defer s.mu.RUnlock()
	records := make([]*nodeRecord, 0, len(s.nodes))
	for _, r := range s.nodes {
		records = append(records, r)
	}
	return records
}
