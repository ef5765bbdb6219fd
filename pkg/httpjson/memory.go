package httpjson

import (
	"container/list"
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	// normalSize is the size in bytes up to which bodies and answers are normal work: the names of
	// 5,000 nodes take a third of it. Larger ones together leave a quarter of the memory to normal ones.
	normalSize = 1 << 20
	// grace and leastRate are how slow the other side of a connection may be: so long, and so many bytes
	// in each second on top. Without both a few of them could keep what others wait for.
	grace     = 3 * time.Second
	leastRate = 4 << 20
)

// past is a deadline that is over.
var past = time.Unix(1, 0)

var errBusy = Errorf(http.StatusServiceUnavailable, "the server is busy with other requests: try again in a few seconds")

// memory bounds, in bytes, what bodies that arrive and answers that are sent take, of all requests together. It is
// taken as the bytes come, and not on the word of a header.
//
// Where it does not suffice, those make room whose client is what they wait for: of the caller that has the
// most, the one that began first. So it is never slow or idle clients that decide when others are served.
type memory struct {
	size  int64
	wait  time.Duration // for what the server itself works on
	grace time.Duration

	mu      sync.Mutex // guards what follows, and the portions' fields
	used    int64
	large   int64 // of used, by those above normalSize
	leaving int64 // of used, by those that were cut off and have not given it back yet
	callers map[string]int64
	moving  *list.List    // of *portion, those that wait for their client, in the order they began
	changed chan struct{} // closed when something was given back
}

// portion is what one request has.
type portion struct {
	m      *memory
	caller string
	cut    func(deadline time.Time) // sets the deadline of what it waits for
	begun  time.Time

	units   int64
	element *list.Element // nil where it does not wait for its client
	gone    bool          // it was cut off
}

func newMemory(size int64, wait time.Duration) *memory {
	return &memory{size: size, wait: wait, grace: grace, callers: map[string]int64{}, moving: list.New(), changed: make(chan struct{})}
}

// begin returns a portion of nothing, that waits for its client.
func (m *memory) begin(caller string, cut func(deadline time.Time)) *portion {
	p := &portion{m: m, caller: caller, cut: cut, begun: time.Now()}
	m.mu.Lock()
	defer m.mu.Unlock()
	p.element = m.moving.PushBack(p)
	return p
}

// grow makes a portion one of so many units at least, or all there may be. Its client has until the time that
// belongs to them.
func (p *portion) grow(ctx context.Context, units int64) error {
	m := p.m
	units = min(units, m.size-m.size/4)
	changed, ok, err := p.tryGrow(units)
	if ok || err != nil {
		return err
	}
	late := time.NewTimer(m.wait)
	defer late.Stop()
	for !ok && err == nil {
		select {
		case <-changed:
			changed, ok, err = p.tryGrow(units)
		case <-late.C:
			err = errBusy
		case <-ctx.Done():
			err = errBusy
		}
	}
	return err
}

// tryGrow does what grow does, if there is room. Else somebody is cut off whose turn it is, and changed is closed
// when something was given back.
func (p *portion) tryGrow(units int64) (changed <-chan struct{}, ok bool, err error) {
	m := p.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.gone {
		return nil, false, errBusy
	}
	more := max(0, units-p.units)
	largeMore := largePart(p.units+more) - largePart(p.units)
	noRoom := m.used-m.leaving+more > m.size
	noLarge := largeMore > 0 && m.large+largeMore > m.size-m.size/4
	if !noRoom && !noLarge && m.used+more <= m.size {
		m.used, m.large, p.units = m.used+more, m.large+largeMore, p.units+more
		m.callers[p.caller] += more
		p.cut(p.deadline())
		return nil, true, nil
	}
	if noRoom || noLarge {
		victim := m.victim(noLarge, p.caller, more)
		if victim == p {
			return nil, false, errBusy
		}
		if victim != nil {
			victim.cutOff()
		}
	}
	return m.changed, false, nil
}

// victim returns who has to make room: one whose caller would have the most once the one who asks had so much more;
// nil where all wait for the server itself.
func (m *memory) victim(onlyLarge bool, asks string, more int64) (victim *portion) {
	has := func(caller string) int64 {
		if caller == asks {
			return m.callers[caller] + more
		}
		return m.callers[caller]
	}
	for e := m.moving.Front(); e != nil; e = e.Next() {
		p := e.Value.(*portion)
		if p.units > 0 && (!onlyLarge || largePart(p.units) > 0) &&
			(victim == nil || has(p.caller) > has(victim.caller)) {
			victim = p
		}
	}
	return victim
}

// cutOff has a portion given back by the one who has it, who waits for a client.
func (p *portion) cutOff() {
	p.gone = true
	p.m.leaving += p.units
	p.m.large -= largePart(p.units)
	p.stay()
	p.cut(past)
}

// stay ends that a portion waits for its client.
func (p *portion) stay() {
	if p.element != nil {
		p.m.moving.Remove(p.element)
		p.element = nil
	}
}

// settle ends that a portion waits for its client, whose time is no longer limited if it has done what was asked of
// it, and over if not. It reports false where the portion was cut off before.
func (p *portion) settle(done bool) bool {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.gone {
		return false
	}
	p.stay()
	if done {
		p.cut(time.Time{})
	} else {
		p.cut(past)
	}
	return true
}

// giveBack ends a portion. A second time it does nothing.
func (p *portion) giveBack() {
	m := p.m
	m.mu.Lock()
	defer m.mu.Unlock()
	p.stay()
	if p.gone {
		m.leaving -= p.units
	} else {
		m.large -= largePart(p.units)
	}
	m.used -= p.units
	if m.callers[p.caller] -= p.units; m.callers[p.caller] <= 0 {
		delete(m.callers, p.caller)
	}
	if p.units > 0 {
		close(m.changed)
		m.changed = make(chan struct{})
	}
	p.units, p.gone = 0, true
}

// deadline is when a client is too slow.
func (p *portion) deadline() time.Time {
	return p.begun.Add(p.m.grace + time.Duration(p.units)*time.Second/leastRate)
}

// largePart is what counts of a portion as large.
func largePart(units int64) int64 {
	if units > normalSize {
		return units
	}
	return 0
}
