package ledger

import "k8s.io/apimachinery/pkg/types"

// tombstones remembers the UIDs of the last pods that went, with the resource
// version they went at, in a ring of fixed size.
type tombstones struct {
	version map[types.UID]uint64
	ring    []types.UID
	next    int
}

func newTombstones(size int) tombstones {
	return tombstones{version: make(map[types.UID]uint64, size), ring: make([]types.UID, size)}
}

func (t *tombstones) has(uid types.UID) bool {
	if uid == "" || len(t.version) == 0 {
		return false
	}
	_, ok := t.version[uid]
	return ok
}

// add remembers uid; version is the newest resource version known of the pod.
func (t *tombstones) add(uid types.UID, version uint64) {
	if uid == "" {
		return
	}
	if old, ok := t.version[uid]; ok {
		t.version[uid] = max(old, version)
		return
	}
	if evicted := t.ring[t.next]; evicted != "" {
		delete(t.version, evicted)
	}
	t.ring[t.next] = uid
	t.next = (t.next + 1) % len(t.ring)
	t.version[uid] = version
}

// forget takes back a tombstone that an observation newer than it disproved.
// The UID stays in the ring; evicting it later is harmless.
func (t *tombstones) forget(uid types.UID) { delete(t.version, uid) }

// newerOrSame reports whether the pod went at resource version v or later, so
// that an observation of version v tells nothing new. Unknown versions (0) are
// taken for new: whoever cannot tell the order reports in order.
func (t *tombstones) newerOrSame(uid types.UID, v uint64) bool {
	return v != 0 && v <= t.version[uid]
}
