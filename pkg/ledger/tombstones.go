package ledger

import "k8s.io/apimachinery/pkg/types"

// tombstones remembers the UIDs of the last pods that went, with the resource version they went at: at least the last
// size of them, at most twice as many. They are forgotten in bulk, which costs less than one by one.
type tombstones struct {
	size            int
	recent, earlier map[types.UID]uint64 // recent slots at most size
}

func newTombstones(size int) tombstones {
	return tombstones{size: size, recent: make(map[types.UID]uint64, size), earlier: make(map[types.UID]uint64, size)}
}

// at returns the resource version the pod went at.
func (t *tombstones) at(uid types.UID) (version uint64, gone bool) {
	recent, isRecent := t.recent[uid]
	earlier, isEarlier := t.earlier[uid]
	return max(recent, earlier), isRecent || isEarlier
}

func (t *tombstones) has(uid types.UID) bool {
	_, gone := t.at(uid)
	return gone
}

// add remembers uid; version is the newest resource version known of the pod.
func (t *tombstones) add(uid types.UID, version uint64) {
	if uid == "" {
		return
	}
	if len(t.recent) >= t.size {
		t.recent, t.earlier = t.earlier, t.recent
		clear(t.recent)
	}
	t.recent[uid] = max(t.recent[uid], version)
}

// forget removes a tombstone that a newer observation disproved.
func (t *tombstones) forget(uid types.UID) {
	delete(t.recent, uid)
	delete(t.earlier, uid)
}

// newerOrSame reports whether the pod went at resource version v or later, so that an observation of version v brings
// nothing new. A version of 0 is unknown. Sources without versions report in order, so 0 is taken for newer.
func (t *tombstones) newerOrSame(uid types.UID, v uint64) bool {
	version, _ := t.at(uid)
	return v != 0 && v <= version
}
