package rest

import (
	"cmp"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/globalreserve/globalreserve/pkg/decide/reserve"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

// replays keeps the answers to requests with a RequestID, so that a scheduler that did not get its answer can ask again
// without reserving twice. What is kept is bounded by age and by size, the oldest goes first.
type replays struct {
	age  time.Duration
	most int

	mu     sync.Mutex // guards everything below and the entries' fields
	byKey  map[replayKey]*replay
	oldest *list.List // of *replay, kept answers only
	cost   int        // of the kept answers
}

// replayKey: schedulers choose their IDs independently, and the same ID may name the gang in /reserve and /unreserve.
type replayKey struct {
	verb      verb
	scheduler string
	id        string
}

type replay struct {
	key    replayKey
	asked  string        // its fingerprint
	done   chan struct{} // closed when the request is decided or given up
	kept   bool          // out is valid; set before done is closed
	out    outcome
	until  time.Time
	place  *list.Element
	weight int
}

// An answer is kept for repeats of its RequestID for replayAge at least, and longer where the reservation lasts longer,
// unless there are so many that the pods and rejections in them are more than replayCost.
const (
	replayAge  = 10 * time.Minute
	replayCost = 250_000
)

func newReplays(age time.Duration, most int) *replays {
	return &replays{age: age, most: most, byKey: map[replayKey]*replay{}, oldest: list.New()}
}

// do returns what decide decides, or, for a repeat, what it decided before and for how long that is remembered. An
// outcome that is transient is decided anew for every repeat. A repeat that comes
// while the first is being decided waits for it.
func (r *replays) do(
	ctx context.Context, g *asked, clock *steady.Clock, decide func() (outcome, error),
) (out outcome, repeats time.Duration, err error) {
	key := replayKey{g.verb, g.Scheduler, g.RequestID}
	for {
		entry, first := r.enter(key, g.Fingerprint, clock.Now())
		if first {
			out, err := r.lead(entry, clock, decide)
			return out, 0, err
		}
		if entry.asked != g.Fingerprint {
			return outcome{}, 0, reserve.ErrRequestIDUsed(httpjson.Clip(g.RequestID))
		}
		select {
		case <-entry.done:
			if entry.kept {
				return entry.out, max(entry.until.Sub(clock.Now()), time.Nanosecond), nil
			}
		case <-ctx.Done():
			return outcome{}, 0, errClientGone
		}
	}
}

// enter returns the entry of a key, and whether it was made just now.
func (r *replays) enter(key replayKey, asked string, now time.Time) (entry *replay, first bool) {
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
func (r *replays) lead(entry *replay, clock *steady.Clock, decide func() (outcome, error)) (out outcome, err error) {
	final := false
	defer func() { // also after a panic, or the repeats would wait for ever
		r.mu.Lock()
		defer r.mu.Unlock()
		if final {
			r.keep(entry, out, clock)
		} else {
			delete(r.byKey, entry.key)
		}
		close(entry.done)
	}()
	out, err = decide()
	final = err == nil && !out.transient
	return out, err
}

func (r *replays) keep(entry *replay, out outcome, clock *steady.Clock) {
	now := clock.Now()
	entry.kept, entry.out = true, out
	entry.until = now.Add(r.age)
	if end := clock.At(out.answer.ExpiresAt); end.After(entry.until) {
		entry.until = end
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

// fingerprint identifies a request by what it asks for. A repeat may be spelt
// differently: schedulers read their pods anew, and their status and resource
// version change meanwhile. MinRevision may rise, too. The TTL, and whether it is durable, are as they were asked, and
// not what they are by today's policy, or by what the server knows of the cluster so far.
func fingerprint(g *asked, t *resources.Table) string {
	var b []byte
	texts := func(list ...string) {
		for _, s := range list { // with its length, so that no two lists look alike
			b = append(strconv.AppendInt(b, int64(len(s)), 10), ':')
			b = append(b, s...)
		}
		b = append(b, '\n')
	}
	texts(string(g.Mode), g.TTL.String(), strconv.FormatBool(g.DryRun), strconv.FormatBool(!g.inMemory), g.Name,
		g.Reservation.String(), g.Caller)
	for i := range g.Pods {
		p := &g.Pods[i]
		texts(p.Ref.Namespace, p.Ref.Name, string(p.Ref.UID), p.Node, strconv.Itoa(int(p.Priority)))
		if p.Devices != nil {
			texts(append([]string{"devices", p.Devices.Err}, p.Devices.Claims...)...)
		}
		if p.Request == nil {
			continue
		}
		texts("request", strconv.FormatBool(p.Request.ToleratesUnschedulable))
		texts(hostPortNames(p.Request)...)
		for _, a := range namedAmounts(p.Request, t) {
			texts(string(a.Name), strconv.FormatInt(a.Value, 10))
		}
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// namedAmounts lists a request's amounts by name: a resource has no column before a
// node offers it, and a repeat may come after that.
func namedAmounts(r *resources.Request, t *resources.Table) []resources.NamedAmount {
	list := slices.Clone(r.Unlisted)
	for _, a := range r.Amounts {
		list = append(list, resources.NamedAmount{Name: t.Name(a.Column), Value: a.Value})
	}
	slices.SortFunc(list, func(a, b resources.NamedAmount) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
