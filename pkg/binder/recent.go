package binder

import (
	"container/list"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// Recent remembers the pods of the last filter calls by UID. A scheduler's
// watch is often ahead of ours, so a pod may be asked about, and bound, before
// the informer knows it.
type Recent struct {
	size int

	// mu guards the rest.
	mu    sync.Mutex
	byUID map[types.UID]*list.Element
	order *list.List // of *podinfo.Info, the last used first
}

// NewRecent returns a Recent for at most size pods.
func NewRecent(size int) *Recent {
	return &Recent{size: max(size, 1), byUID: map[types.UID]*list.Element{}, order: list.New()}
}

// Add remembers a pod, and forgets the one not used for longest if there are
// too many.
func (r *Recent) Add(info *podinfo.Info) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.byUID[info.Ref.UID]; ok {
		e.Value = info
		r.order.MoveToFront(e)
		return
	}
	r.byUID[info.Ref.UID] = r.order.PushFront(info)
	if len(r.byUID) > r.size {
		oldest := r.order.Remove(r.order.Back()).(*podinfo.Info)
		delete(r.byUID, oldest.Ref.UID)
	}
}

// Get returns the pod of a UID, and false where it is not remembered.
func (r *Recent) Get(uid types.UID) (*podinfo.Info, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.byUID[uid]
	if !ok {
		return nil, false
	}
	r.order.MoveToFront(e)
	return e.Value.(*podinfo.Info), true
}
