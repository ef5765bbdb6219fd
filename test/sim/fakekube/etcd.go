package fakekube

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/feature"
)

// Etcd is an etcd in memory, as far as kube-apiserver uses one. It is safe for concurrent use.
type Etcd struct {
	mu sync.Mutex // guards what follows
	// revision is that of the latest change, and compacted the latest of those that are forgotten.
	revision, compacted int64
	current             map[string]*mvccpb.KeyValue // none is changed in place
	history             []*clientv3.Event           // those after compacted, in order, each with what was before
	leases              map[clientv3.LeaseID]time.Time
	watches             map[*watching]bool
	observe             func(Change)
}

// NewEtcd returns one without keys.
func NewEtcd() *Etcd {
	return &Etcd{
		revision: 1, compacted: 1, current: map[string]*mvccpb.KeyValue{}, leases: map[clientv3.LeaseID]time.Time{},
		watches: map[*watching]bool{}, observe: func(Change) {},
	}
}

// client returns a client of it, which is closed when ctx ends, and whose watches lag, in nanoseconds.
func (e *Etcd) client(ctx context.Context, lag *atomic.Int64) *kubernetes.Client {
	c := clientv3.NewCtxClient(ctx)
	c.KV, c.Watcher, c.Lease = kv{e: e}, watcher{e, lag}, lessor{e: e}
	all := &kubernetes.Client{Client: c}
	all.Kubernetes = writer{Client: all, e: e}
	return all
}

// Compact forgets what was before the latest change: watches and lists from earlier revisions fail from now on.
func (e *Etcd) Compact() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.compacted, e.history = e.revision, nil
}

// at returns the keys from start and before end as they were at a revision; e.mu is held.
func (e *Etcd) at(revision int64, start, end string) ([]*mvccpb.KeyValue, error) {
	within := func(key []byte) bool { return string(key) >= start && string(key) < end }
	found := map[string]*mvccpb.KeyValue{}
	for key, value := range e.current {
		if within(value.Key) {
			found[key] = value
		}
	}
	switch {
	case revision > e.revision:
		return nil, rpctypes.ErrFutureRev
	case revision != 0 && revision < e.compacted:
		return nil, rpctypes.ErrCompacted
	case revision != 0:
		for _, event := range slices.Backward(e.history) {
			key := string(event.Kv.Key)
			if event.Kv.ModRevision <= revision {
				break
			}
			delete(found, key)
			if event.PrevKv != nil && within(event.Kv.Key) {
				found[key] = event.PrevKv
			}
		}
	}
	list := make([]*mvccpb.KeyValue, 0, len(found))
	for _, value := range found {
		list = append(list, value)
	}
	slices.SortFunc(list, func(a, b *mvccpb.KeyValue) int { return strings.Compare(string(a.Key), string(b.Key)) })
	return list, nil
}

// change puts a value, or deletes the key where there is none; e.mu is held.
func (e *Etcd) change(key string, value []byte, lease clientv3.LeaseID) *mvccpb.KeyValue {
	before := e.current[key]
	e.revision++
	event := &clientv3.Event{PrevKv: before, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: e.revision}}
	if value == nil {
		event.Type = clientv3.EventTypeDelete
		delete(e.current, key)
	} else {
		event.Kv.Value, event.Kv.Lease, event.Kv.Version = value, int64(lease), 1
		if event.Kv.CreateRevision = e.revision; before != nil {
			event.Kv.CreateRevision, event.Kv.Version = before.CreateRevision, before.Version+1
		}
		e.current[key] = event.Kv
	}
	e.history = append(e.history, event)
	e.observe(Change{Key: key, Before: before.GetValue(), After: value})
	for w := range e.watches {
		w.wake()
	}
	return event.Kv
}

// expire deletes the keys whose lease is over; e.mu is held. Nobody needs that to be sooner than the next write.
func (e *Etcd) expire() {
	now := time.Now()
	for id, ends := range e.leases {
		if now.Before(ends) {
			continue
		}
		delete(e.leases, id)
		for key, value := range e.current {
			if value.Lease == int64(id) {
				e.change(key, nil, 0)
			}
		}
	}
}

// kv is how keys are read.
type kv struct {
	clientv3.KV // has what kube-apiserver does not use
	e           *Etcd
}

// Get implements clientv3.KV.
func (k kv) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	op := clientv3.OpGet(key, opts...)
	end := string(op.RangeBytes())
	if end == "" {
		end = key + "\x00"
	}
	k.e.mu.Lock()
	defer k.e.mu.Unlock()
	list, err := k.e.at(op.Rev(), key, end)
	if err != nil {
		return nil, err
	}
	response := &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: k.e.revision}, Count: int64(len(list))}
	if limit := op.Limit(); limit > 0 && int64(len(list)) > limit {
		list, response.More = list[:limit], true
	}
	if !op.IsCountOnly() {
		response.Kvs = list
	}
	return response, nil
}

// features are what kube-apiserver takes etcd to have.
type features struct{ feature.FeatureSupportChecker }

// Supports implements feature.FeatureSupportChecker. With RequestWatchProgress, which each etcd of today has, lists
// come from what the API server remembers, and watches begin with one. Without RangeStream kv.Get is called.
func (features) Supports(f storage.Feature) bool { return f == storage.RequestWatchProgress }

func init() {
	feature.DefaultFeatureSupportChecker = features{feature.NewDefaultFeatureSupportChecker()}
}

// writer is how keys are written.
type writer struct {
	*kubernetes.Client
	e *Etcd
}

// OptimisticPut implements kubernetes.Interface.
func (w writer) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions,
) (kubernetes.PutResponse, error) {
	succeeded, value2, revision, err := w.write(ctx, key, value, expected, opts.LeaseID)
	response := kubernetes.PutResponse{Succeeded: succeeded, Revision: revision}
	if succeeded || opts.GetOnFailure {
		response.KV = value2
	}
	return response, err
}

// OptimisticDelete implements kubernetes.Interface.
func (w writer) OptimisticDelete(ctx context.Context, key string, expected int64, opts kubernetes.DeleteOptions,
) (kubernetes.DeleteResponse, error) {
	succeeded, value, revision, err := w.write(ctx, key, nil, expected, 0)
	response := kubernetes.DeleteResponse{Succeeded: succeeded, Revision: revision}
	if succeeded || opts.GetOnFailure {
		response.KV = value
	}
	return response, err
}

// write changes a key whose latest change is the expected one, and returns its value then.
func (w writer) write(ctx context.Context, key string, value []byte, expected int64, lease clientv3.LeaseID,
) (bool, *mvccpb.KeyValue, int64, error) {
	if err := ctx.Err(); err != nil {
		return false, nil, 0, err
	}
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	w.e.expire()
	now := w.e.current[key]
	if now == nil && expected != 0 || now != nil && now.ModRevision != expected {
		return false, now, w.e.revision, nil
	}
	changed := w.e.change(key, value, lease)
	if value == nil {
		changed = now
	}
	return true, changed, w.e.revision, nil
}

// lessor is how keys come to an end of their own.
type lessor struct {
	clientv3.Lease // has what kube-apiserver does not use
	e              *Etcd
}

// Grant implements clientv3.Lease.
func (l lessor) Grant(_ context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	id := clientv3.LeaseID(len(l.e.leases) + 1)
	for l.e.leases[id] != (time.Time{}) {
		id++
	}
	l.e.leases[id] = time.Now().Add(time.Duration(ttl) * time.Second)
	return &clientv3.LeaseGrantResponse{ID: id, TTL: ttl}, nil
}

// Close implements clientv3.Lease.
func (lessor) Close() error { return nil }

// Change is one change of one object.
type Change struct {
	// Key is where etcd has the object, such as /registry/pods/default/web-0.
	Key string
	// Before and After are the object as it is stored; nil where it was not, or is not.
	Before, After []byte
}

// Follow has every change from now on reported, in order, before anybody else hears of it. observe must be quick, and
// may not ask the API server.
func (e *Etcd) Follow(observe func(Change)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.observe = observe
}
