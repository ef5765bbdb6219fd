package cluster

import (
	"context"
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// podKey identifies a pod by namespace and name.
type podKey struct{ namespace, name string }

func keyOf(r *Pod) podKey { return podKey{r.Ref.Namespace, r.Ref.Name} }

// podShards is how many parts the pods are kept in. With 150,000 pods a walk
// over all of them then holds each lock for some ten microseconds.
const podShards = 64

// Pods are the pods of a cluster in compact form, as far as the watch has brought them. Make one with NewPods. Lookups
// are safe for concurrent use. Only the Cache writes, with Cache.apply held, so that the ledger has the change, too.
type Pods struct {
	seed   maphash.Seed
	shards [podShards]shard[podKey, Pod]

	mu        sync.RWMutex          // guards what follows
	pending   map[podKey]*Pod       // those without a node that have not finished
	claimants cache.ThreadSafeStore // see newClaimants
	gangs     gangs
	repelling repelling

	reached
}

// NewPods returns an empty store.
func NewPods() *Pods {
	s := &Pods{
		seed: maphash.MakeSeed(), pending: map[podKey]*Pod{}, claimants: newClaimants(), gangs: newGangs(),
		repelling: newRepelling(),
	}
	for i := range s.shards {
		s.shards[i].kept = map[podKey]*Pod{}
	}
	return s
}

func (s *Pods) shard(k podKey) *shard[podKey, Pod] {
	return &s.shards[maphash.Comparable(s.seed, k)%podShards]
}

// find returns the pod of a name, nil where there is none.
func (s *Pods) find(k podKey) *Pod { return s.shard(k).get(k) }

// Put stores a state of a pod, in the place of the one that had its name.
func (s *Pods) Put(r *Pod) {
	k := keyOf(r)
	s.shard(k).set(k, r)
	s.list(k, r)
}

// Remove removes a pod, which must be the one that is held under its name.
func (s *Pods) Remove(held *Pod) {
	k := keyOf(held)
	s.shard(k).remove(k)
	s.list(k, nil)
}

// list keeps the lists of some pods in step with a change; r is nil where the pod is gone.
func (s *Pods) list(k podKey, r *Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, k)
	if r != nil && r.Node == "" && !r.Finished {
		s.pending[k] = r
	}
	s.setClaimant(k, r)
	s.gangs.set(k, r)
	s.repelling.set(k, r)
}

// Pod returns the pod of a name; ok is false where there is none. The result is shared and must not be changed. A pod
// whose request cannot be counted (see PodError) is shown to ask for the resource Uncountable.
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
func (s *Pods) PendingPods() iter.Seq[*Pod] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Values(slices.AppendSeq(make([]*Pod, 0, len(s.pending)), maps.Values(s.pending)))
}

// allPods returns every pod. It is not one moment's state: each shard is.
func (s *Pods) allPods() []*Pod {
	var records []*Pod
	for i := range s.shards {
		records = s.shards[i].appendAll(records)
	}
	return records
}

// WaitForPods returns nil once the store, and the ledger with it, has all changes of pods up to a resource version, or
// the error of ctx if that ends first. A caller that has a pod which is newer than what the watch has brought may know
// that other pods are gone, while the ledger still counts them.
func (s *Pods) WaitForPods(ctx context.Context, version uint64) error { return s.wait(ctx, version) }

// Seen records that all changes of pods up to a resource version are in.
func (s *Pods) Seen(version uint64) { s.record(version) }

// shard is what is kept of objects of one kind, or part of it. Writers are serialized by Cache.apply.
type shard[K comparable, R any] struct {
	mu   sync.RWMutex // guards what follows
	kept map[K]*R
}

// get returns what is kept under a key, nil where there is nothing.
func (s *shard[K, R]) get(key K) *R {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.kept[key]
}

func (s *shard[K, R]) set(key K, r *R) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[key] = r
}

func (s *shard[K, R]) remove(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, key)
}

func (s *shard[K, R]) appendAll(dst []*R) []*R {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.AppendSeq(dst, maps.Values(s.kept))
}
