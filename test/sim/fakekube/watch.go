package fakekube

import (
	"context"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// progressInterval is how often a watch says how far it is where nothing changes, as clusters configure etcd for
// kube-apiserver.
const progressInterval = 5 * time.Second

// watcher is how changes are heard of.
type watcher struct {
	*Etcd
	lag *atomic.Int64
}

// watching is one watch.
type watching struct {
	start, end string
	next       int64 // the revision that is to be looked at next
	progress   bool  // the watch is to say how far it is; guarded by Etcd.mu
	changed    chan struct{}
}

func (w *watching) wake() {
	select {
	case w.changed <- struct{}{}:
	default: // it has not looked since
	}
}

// Watch implements clientv3.Watcher. The events begin at the revision that is asked for, or with the next change.
func (w watcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	op := clientv3.OpGet(key, opts...)
	one := &watching{start: key, end: string(op.RangeBytes()), next: op.Rev(), changed: make(chan struct{}, 1)}
	if one.end == "" {
		one.end = key + "\x00"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.next == 0 {
		one.next = w.revision + 1
	}
	w.watches[one] = true
	one.wake()
	responses := make(chan clientv3.WatchResponse)
	go w.run(ctx, one, responses)
	return responses
}

// run sends what a watch is to hear until ctx ends.
func (w watcher) run(ctx context.Context, one *watching, responses chan<- clientv3.WatchResponse) {
	defer close(responses)
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watches, one)
	}()
	interval := time.NewTicker(progressInterval)
	defer interval.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-interval.C:
			w.mu.Lock()
			one.progress = true
			w.mu.Unlock()
		case <-one.changed:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(w.lag.Load())):
		}
		for _, response := range w.take(one) {
			select {
			case <-ctx.Done():
				return
			case responses <- response:
			}
			if response.Canceled {
				return
			}
		}
	}
}

// take returns what a watch has not heard yet.
func (w watcher) take(one *watching) []clientv3.WatchResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	header := pb.ResponseHeader{Revision: w.revision}
	if one.next <= w.compacted {
		return []clientv3.WatchResponse{{Header: &header, CompactRevision: w.compacted, Canceled: true}}
	}
	var responses []clientv3.WatchResponse
	var events []*clientv3.Event
	for _, event := range w.history[min(one.next-w.compacted-1, int64(len(w.history))):] {
		if key := string(event.Kv.Key); key >= one.start && key < one.end {
			events = append(events, event)
		}
	}
	one.next = max(one.next, w.revision+1)
	if len(events) > 0 {
		responses = append(responses, clientv3.WatchResponse{Header: &header, Events: events})
	}
	if one.progress {
		one.progress = false
		responses = append(responses, clientv3.WatchResponse{Header: &header})
	}
	return responses
}

// RequestProgress implements clientv3.Watcher: all watches say how far they are.
func (w watcher) RequestProgress(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.watches {
		one.progress = true
		one.wake()
	}
	return nil
}

// Close implements clientv3.Watcher. Watches end with their contexts.
func (watcher) Close() error { return nil }
