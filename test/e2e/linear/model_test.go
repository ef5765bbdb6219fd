//go:build chaos

package linear

import (
	"fmt"
	"hash/maphash"
	"math"
	"strings"

	"github.com/anishathalye/porcupine"
)

const (
	nodesOf  = 2 // nodes of a history
	podsOf   = 8 // pods of a history
	nodeCPUs = 4
)

// layout is what a history is about. Only the first of its pods, those that have a home, are reserved for, and only
// there; they are bound only there, too. The others are bound to any node.
type layout struct {
	cpus  [podsOf]int
	homes []int
}

func (l *layout) hasHome(pod int) bool { return pod < len(l.homes) }

// verb is what an operation does.
type verb string

const (
	reserve   verb = "reserve"
	unreserve verb = "unreserve"
	bind      verb = "bind"
	read      verb = "read"
	// undo is no request: it takes back what a request did that was never said to be granted.
	undo verb = "undo"
	// truth asks the API server where the pods are.
	truth verb = "truth"
)

// request is the input of an operation.
type request struct {
	number int // above 0
	verb   verb
	pods   []int // one, unless a gang is reserved for
	node   int
}

// result says what is known of a request.
type result string

const (
	granted result = "granted"
	refused result = "refused" // for want of capacity, or because the pod is somewhere already
	// open: it may have been carried out, or be carried out later, or never.
	open result = "open"
	// failed: it may have had capacity until it was answered, but has none any more.
	failed result = "failed"
	// nothing: it was not carried out, and never will be.
	nothing result = "nothing"
)

// answer is the output of an operation.
type answer struct {
	result result
	lost   int          // how many tries were not answered, the last one included: each may have had capacity until then
	milli  int64        // of CPU in use: the answer to read
	bound  *[podsOf]int // the node of each pod, or -1: the answer to truth
	text   string       // what the server said, for those who read the history
}

// Who has capacity: nobody, somebody who was told so, or else the open request of this number.
const (
	nobody = 0
	told   = -1
)

// place is what one pod has: a slot at its home, and an allocation on a node.
type place struct{ slot, allocation, node int }

type state struct {
	pods [podsOf]place
	// failing has the bits of requests that failed, and of which it is not taken back yet what they had.
	failing uint64
}

// free is what is left of a node, in CPUs. A pod that has a slot and an allocation has both on the same node, and
// counts once.
func (l *layout) free(s *state, node int) int {
	left := nodeCPUs
	for pod, p := range s.pods {
		if (p.allocation != nobody && p.node == node) || (p.allocation == nobody && p.slot != nobody &&
			l.homes[pod] == node) {
			left -= l.cpus[pod]
		}
	}
	return left
}

// step returns the states that a state may turn into by an operation; none where the answer is wrong.
func (l *layout) step(s state, r *request, a *answer) []state {
	switch r.verb {
	case read:
		if int64(nodeCPUs-l.free(&s, r.node))*1000 != a.milli {
			return nil
		}
		return []state{s}
	case truth:
		return s.compare(a)
	case undo:
		if a.result != failed {
			return s.undo(r.number)
		}
		if s.failing&(1<<r.number) == 0 {
			return nil
		}
		s.failing &^= 1 << r.number
		return s.undo(r.number)[:1]
	}
	if a.result == failed {
		s.failing |= 1 << r.number
	}
	known := a.result == granted || a.result == refused
	who := told
	if !known {
		who = r.number
	}
	next, possible := l.apply(s, r, who)
	switch {
	case !known && possible:
		return []state{s, next}
	case !known:
		return []state{s}
	case possible == (a.result == granted):
		return []state{next}
	default:
		return nil
	}
}

// apply does what is asked for, if it is possible; else nothing.
func (l *layout) apply(s state, r *request, who int) (next state, possible bool) {
	next = s
	for _, pod := range r.pods {
		switch r.verb {
		case reserve:
			possible = l.reserve(&next, pod, who)
		case unreserve:
			if possible = next.pods[pod].allocation == nobody; possible {
				next.pods[pod].slot = nobody
			}
		default:
			possible = l.bind(&next, pod, r.node, who)
		}
		if !possible {
			return s, false
		}
	}
	return next, true
}

// settle makes sure that somebody has something. One that was told so keeps it whatever others do not know.
func settle(owner *int, who int) {
	if *owner == nobody || who == told {
		*owner = who
	}
}

func (l *layout) reserve(s *state, pod, who int) bool {
	p := &s.pods[pod]
	if p.slot == nobody && p.allocation == nobody && l.free(s, l.homes[pod]) < l.cpus[pod] {
		return false
	}
	if p.allocation == nobody || who == told {
		settle(&p.slot, who)
	}
	return true
}

func (l *layout) bind(s *state, pod, node, who int) bool {
	p := &s.pods[pod]
	switch {
	case p.allocation != nobody && p.node != node:
		return false
	case p.allocation == nobody && p.slot == nobody && l.free(s, node) < l.cpus[pod]:
		return false
	}
	settle(&p.allocation, who)
	p.node = node
	return true
}

// undo takes back what the request of a number has, or does not.
func (s state) undo(number int) []state {
	next := s
	for pod := range next.pods {
		p := &next.pods[pod]
		if p.slot == number {
			p.slot = nobody
		}
		if p.allocation == number {
			p.allocation, p.node = nobody, 0
		}
	}
	if next == s {
		return []state{s}
	}
	return []state{next, s}
}

// compare looks whether the API server says the same of pods that are bound. One that may still be bound may be unbound
// yet.
func (s state) compare(a *answer) []state {
	for pod := range s.pods {
		p := &s.pods[pod]
		switch node := a.bound[pod]; {
		case node < 0 && p.allocation == told, node >= 0 && (p.allocation == nobody || p.node != node):
			return nil
		case node >= 0:
			p.allocation = told
		}
	}
	return []state{s}
}

var hashing = maphash.MakeSeed()

// model is the layout in the form that porcupine asks for.
func (l *layout) model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(s, input, output any) (all []any) {
			for _, next := range l.step(s.(state), input.(*request), output.(*answer)) {
				all = append(all, next)
			}
			return all
		},
		Hash: func(s any) uint64 { return maphash.Comparable(hashing, s.(state)) },
		DescribeOperation: func(input, output any) string {
			return input.(*request).String() + " -> " + output.(*answer).String()
		},
		DescribeState: func(s any) string { return l.describe(s.(state)) },
	}
	return m.ToModel()
}

func (r *request) String() string {
	switch r.verb {
	case read:
		return fmt.Sprintf("%d: read node %d", r.number, r.node)
	case bind:
		return fmt.Sprintf("%d: bind pod %d to node %d", r.number, r.pods[0], r.node)
	default:
		return fmt.Sprintf("%d: %s %v", r.number, r.verb, r.pods)
	}
}

func (a *answer) String() string {
	switch {
	case a.result != "":
		return strings.TrimSpace(string(a.result) + " " + a.text)
	case a.bound != nil:
		return fmt.Sprintf("on nodes %v", *a.bound)
	default:
		return fmt.Sprintf("%dm in use", a.milli)
	}
}

// describe writes a state down.
func (l *layout) describe(s state) string {
	var texts []string
	owner := func(who int) string {
		if who == told {
			return "granted"
		}
		return fmt.Sprint("by ", who)
	}
	for pod, p := range s.pods {
		if p.allocation != nobody {
			texts = append(texts, fmt.Sprintf("pod %d on node %d (%s)", pod, p.node, owner(p.allocation)))
		}
		if p.slot != nobody {
			texts = append(texts, fmt.Sprintf("slot of pod %d on node %d (%s)", pod, l.homes[pod], owner(p.slot)))
		}
	}
	return strings.Join(texts, ", ")
}

// event is one request and its answer, with the times of both in nanoseconds.
type event struct {
	client       int
	request      *request
	answer       *answer
	asked, ended int64
}

// never is when requests end whose answer nobody knows.
const never = math.MaxInt64 / 2

// maxTries is how many tries of a request the model knows at most, so that there are not too many orders to look at.
const maxTries = 3

// operations are the events as the model knows them. One that is open lasts for ever, and may be taken back. One of
// which a try was lost may have had something until it was answered, whatever the answer is; or have given something
// back, for the next server does not know that it did, and gives back what was reserved meanwhile. Each try that was
// lost may have been carried out: the next server does not know either what another request has given back since. most
// is how many of them are looked at.
func operations(events []event, most int) (ops []porcupine.Operation) {
	add := func(e *event, line int, input *request, output *answer, ended int64) {
		ops = append(ops, porcupine.Operation{ClientId: line, Input: input, Output: output, Call: e.asked, Return: ended})
	}
	for i := range events {
		e := &events[i]
		r, a := e.request, e.answer
		tries, output, ended := 0, a, int64(never)
		switch {
		case a.result == nothing:
			continue
		case a.result == open:
			tries = max(a.lost, 1)
		case a.result == failed || a.lost > 0:
			tries, output, ended = max(a.lost, 1), &answer{result: failed, text: a.text}, e.ended
		}
		for try := range min(tries, most) {
			line := clients + 2*(maxTries*r.number+try) // of the drawing
			add(e, line, r, output, ended)
			if r.verb != unreserve {
				add(e, line+1, &request{number: r.number, verb: undo, pods: r.pods}, output, ended)
			}
		}
		if a.result != open && a.result != failed {
			add(e, e.client, r, a, e.ended)
		}
	}
	return ops
}
