package clusterstate

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// podKey finds a pod the way people name it.
type podKey struct{ namespace, name string }

func keyOf(r *podRecord) podKey { return podKey{r.Ref.Namespace, r.Ref.Name} }

// podShards is how many parts the pods are kept in. With 150,000 pods a walk
// over all of them then holds each lock for some ten microseconds.
const podShards = 64

// podStore keeps all pods. Writers are serialized by Cache.apply.
type podStore struct {
	seed   maphash.Seed
	shards [podShards]podShard

	mu      sync.RWMutex          // guards what follows
	pending map[podKey]*podRecord // those without a node that have not finished
	claimed map[podKey]*podRecord // those that name claims of devices
	counts  Stats
}

type podShard struct {
	mu   sync.RWMutex
	pods map[podKey]*podRecord
}

func newPodStore() *podStore {
	s := &podStore{seed: maphash.MakeSeed(), pending: map[podKey]*podRecord{}, claimed: map[podKey]*podRecord{}}
	for i := range s.shards {
		s.shards[i].pods = map[podKey]*podRecord{}
	}
	return s
}

func (s *podStore) shard(k podKey) *podShard {
	return &s.shards[maphash.Comparable(s.seed, k)%podShards]
}

// get returns the pod of a name, nil where there is none.
func (s *podStore) get(k podKey) *podRecord {
	shard := s.shard(k)
	shard.mu.RLock()
	defer shard.mu.RUnlock()
	return shard.pods[k]
}

// set puts r in the place of held, which is what get returned before.
func (s *podStore) set(held, r *podRecord) {
	k := keyOf(r)
	shard := s.shard(k)
	shard.mu.Lock()
	shard.pods[k] = r
	shard.mu.Unlock()
	s.account(k, held, r)
}

// remove takes held, which is what get returned before, out.
func (s *podStore) remove(held *podRecord) {
	k := keyOf(held)
	shard := s.shard(k)
	shard.mu.Lock()
	delete(shard.pods, k)
	shard.mu.Unlock()
	s.account(k, held, nil)
}

// account keeps the counts and the pending pods in step with a change; either
// record may be nil.
func (s *podStore) account(k podKey, from, to *podRecord) {
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

func (r *podRecord) pending() bool { return r.Node == "" && !r.Finished }

func (c *Stats) add(r *podRecord, n int) {
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

func (s *podStore) stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.counts
}

func (s *podStore) pendingPods() []*podinfo.Info {
	s.mu.RLock()
	defer s.mu.RUnlock()
	pods := make([]*podinfo.Info, 0, len(s.pending))
	for _, r := range s.pending {
		pods = append(pods, &r.Info)
	}
	return pods
}

// naming returns the pods of a namespace that name a claim of devices.
func (s *podStore) naming(claim podKey) []*podRecord {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var found []*podRecord
	for k, r := range s.claimed {
		if k.namespace == claim.namespace && slices.Contains(r.Devices.Claims, claim.name) {
			found = append(found, r)
		}
	}
	return found
}

// all returns every pod. It is not one moment's state: each shard is.
func (s *podStore) all() []*podRecord {
	records := make([]*podRecord, 0, s.stats().Pods)
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
