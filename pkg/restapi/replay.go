package restapi

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// replays keeps the answers to requests with a RequestID, so that a scheduler
// that did not get its answer can ask again without reserving twice. What is
// kept is bounded by age and by size, the oldest goes first.
type replays struct {
	age  time.Duration
	most int

	mu     sync.Mutex // guards everything below and the entries' fields
	byKey  map[replayKey]*replay
	oldest *list.List // of *replay, kept answers only
	cost   int        // of the kept answers
}

// replayKey: schedulers choose their IDs independently, and the same ID may
// name the group in /reserve and /unreserve.
type replayKey struct {
	verb      verb
	scheduler string
	id        string
}

type replay struct {
	key    replayKey
	asked  fingerprint
	done   chan struct{} // closed when the request is decided or given up
	kept   bool          // out is valid; set before done is closed
	out    outcome
	until  time.Time
	place  *list.Element
	weight int
}

func newReplays(age time.Duration, most int) *replays {
	return &replays{age: age, most: most, byKey: map[replayKey]*replay{}, oldest: list.New()}
}

// do returns what decide decides, or, for a repeat, what it decided before.
// decide reports whether its outcome is final; one that is not (the ledger was
// not new enough yet) is decided anew for every repeat. A repeat that comes
// while the first is being decided waits for it.
func (r *replays) do(
	ctx context.Context, g *group, t *resources.Table, now func() time.Time, decide func() (outcome, bool, error),
) (out outcome, repeated bool, err error) {
	key := replayKey{g.verb, g.scheduler, g.requestID}
	asked := newFingerprint(g, t)
	for {
		entry, first := r.enter(key, asked, now())
		if first {
			out, err := r.lead(entry, now, decide)
			return out, false, err
		}
		if entry.asked != asked {
			return outcome{}, false, errRequestIDUsed(g.requestID)
		}
		select {
		case <-entry.done:
			if entry.kept {
				return entry.out, true, nil
			}
		case <-ctx.Done():
			return outcome{}, false, errClientGone
		}
	}
}

// enter returns the entry of a key, and whether it was made just now.
func (r *replays) enter(key replayKey, asked fingerprint, now time.Time) (entry *replay, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if entry := r.byKey[key]; entry != nil {
		if entry.place == nil || now.Before(entry.until) {
			return entry, false
		}
		r.drop(entry)
	}
	entry = &replay{key: key, asked: asked, done: make(chan struct{})}
	r.byKey[key] = entry
	return entry, true
}

// lead decides for everybody who waits for the entry.
func (r *replays) lead(entry *replay, now func() time.Time, decide func() (outcome, bool, error)) (out outcome, err error) {
	final := false
	defer func() { // also after a panic, or the repeats would wait for ever
		r.mu.Lock()
		defer r.mu.Unlock()
		if final {
			r.keep(entry, out, now())
		} else {
			delete(r.byKey, entry.key)
		}
		close(entry.done)
	}()
	out, final, err = decide()
	return out, err
}

func (r *replays) keep(entry *replay, out outcome, now time.Time) {
	entry.kept, entry.out = true, out
	entry.until = now.Add(r.age)
	if out.deadline.After(entry.until) {
		entry.until = out.deadline
	}
	entry.weight = 1 + len(out.held) + len(out.answer.FailedPods)
	for i := range out.answer.Rejections {
		entry.weight += 1 + len(out.answer.Rejections[i].Holders)
	}
	entry.place = r.oldest.PushBack(entry)
	r.cost += entry.weight
	for front := r.oldest.Front(); front != nil; front = r.oldest.Front() {
		old := front.Value.(*replay)
		if old == entry || (r.cost <= r.most && now.Before(old.until)) {
			return
		}
		r.drop(old)
	}
}

func (r *replays) drop(entry *replay) {
	r.oldest.Remove(entry.place)
	r.cost -= entry.weight
	delete(r.byKey, entry.key)
}

// fingerprint tells requests apart by what they ask for. A repeat may be spelt
// differently: schedulers read their pods anew, and their status and resource
// version change meanwhile. MinRevision may rise, too.
type fingerprint [sha256.Size]byte

func newFingerprint(g *group, t *resources.Table) fingerprint {
	f := fingerprinter{hash: sha256.New(), table: t}
	f.text(string(g.mode))
	f.number(int64(g.askedTTL)) // and not what it is by today's policy
	f.flag(g.dryRun)
	f.flag(g.durable)
	f.text(g.name)
	f.text(g.reservation.String())
	f.number(int64(len(g.pods)))
	for i := range g.pods {
		f.pod(&g.pods[i], g.node(i))
	}
	return fingerprint(f.hash.Sum(nil))
}

type fingerprinter struct {
	hash  hash.Hash
	table *resources.Table
	buf   []byte
}

func (f *fingerprinter) text(s string) {
	f.number(int64(len(s)))
	f.buf = append(f.buf[:0], s...)
	f.hash.Write(f.buf)
}

func (f *fingerprinter) number(n int64) {
	f.buf = binary.LittleEndian.AppendUint64(f.buf[:0], uint64(n))
	f.hash.Write(f.buf)
}

func (f *fingerprinter) flag(b bool) {
	if b {
		f.number(1)
	} else {
		f.number(0)
	}
}

func (f *fingerprinter) pod(pod *podEntry, node string) {
	f.text(pod.ref.Namespace)
	f.text(pod.ref.Name)
	f.text(string(pod.ref.UID))
	f.text(node)
	f.number(int64(pod.priority))
	if pod.devices != nil { // the fingerprints of others are older than devices
		f.text(pod.devices.Err)
		for _, claim := range pod.devices.Claims {
			f.text(claim)
		}
	}
	f.flag(pod.request != nil)
	if pod.request == nil {
		return
	}
	f.flag(pod.request.ToleratesUnschedulable)
	f.number(int64(len(pod.request.Ports)))
	for _, p := range pod.request.Ports {
		f.text(string(p.Protocol))
		f.text(p.IP)
		f.number(int64(p.Port))
	}
	for _, a := range f.amounts(pod.request) {
		f.text(string(a.Name))
		f.number(a.Value)
	}
}

// amounts lists a request's amounts by name: a resource has no column before a
// node offers it, and a repeat may come after that.
func (f *fingerprinter) amounts(r *resources.Request) []resources.NamedAmount {
	list := slices.Clone(r.Unlisted)
	for _, a := range r.Amounts {
		list = append(list, resources.NamedAmount{Name: f.table.Name(a.Column), Value: a.Value})
	}
	slices.SortFunc(list, func(a, b resources.NamedAmount) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return list
}
