//go:build chaos

package linear

import (
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
)

// The model takes what one account would have answered, in any order that the times allow, and nothing else.
func TestModel(t *testing.T) {
	// Pods 0 and 1 have 3 CPUs each and their home on node 0, of 4; pod 2 has 1, and no home.
	l := layout{cpus: [podsOf]int{3, 3, 1}, homes: []int{0, 0}}
	number := 0
	ask := func(asked, ended int64, verb verb, node int, a answer, pods ...int) event {
		number++
		return event{number % clients, &request{number: number, verb: verb, pods: pods, node: node}, &a, asked, ended}
	}
	yes, no, maybe, never := answer{result: granted}, answer{result: refused}, answer{result: open},
		answer{result: nothing}
	inVain, inTheEnd := answer{result: failed}, answer{result: granted, lost: 1}
	twice := answer{result: open, lost: 2}
	used := func(milli int64) answer { return answer{milli: milli} }
	bound := func(node0, node1, node2 int) answer {
		return answer{bound: &[podsOf]int{node0, node1, node2, -1, -1, -1, -1, -1}}
	}
	for name, tc := range map[string]struct {
		events []event
		want   porcupine.CheckResult
	}{
		"one fits, and the other one does not": {[]event{
			ask(1, 2, reserve, 0, yes, 0), ask(3, 4, reserve, 0, no, 1), ask(5, 6, read, 0, used(3000)),
		}, porcupine.Ok},
		"both were granted": {
			[]event{ask(1, 2, reserve, 0, yes, 0), ask(3, 4, reserve, 0, yes, 1)},
			porcupine.Illegal,
		},
		"both were granted at once":  {[]event{ask(1, 5, reserve, 0, yes, 0), ask(1, 5, bind, 0, yes, 1)}, porcupine.Illegal},
		"a gang gets all or nothing": {[]event{ask(1, 2, reserve, 0, yes, 0, 1)}, porcupine.Illegal},
		"refused for no reason":      {[]event{ask(1, 2, reserve, 0, no, 0)}, porcupine.Illegal},
		"given back before": {[]event{
			ask(1, 2, reserve, 0, yes, 0), ask(3, 8, unreserve, 0, yes, 0), ask(4, 5, reserve, 0, yes, 1),
		}, porcupine.Ok},
		"given back after": {[]event{
			ask(1, 2, reserve, 0, yes, 0), ask(6, 7, unreserve, 0, yes, 0), ask(4, 5, reserve, 0, yes, 1),
		}, porcupine.Illegal},
		"what is granted is lost": {[]event{ask(1, 2, reserve, 0, yes, 0), ask(3, 4, read, 0, used(0))}, porcupine.Illegal},
		"a stale read": {[]event{
			ask(1, 2, reserve, 0, yes, 0), ask(3, 4, unreserve, 0, yes, 0), ask(5, 6, read, 0, used(3000)),
		}, porcupine.Illegal},
		"the slot is what is bound with": {[]event{
			ask(1, 2, reserve, 0, yes, 0), ask(3, 4, bind, 0, yes, 0), ask(5, 6, read, 0, used(3000)),
			ask(7, 8, truth, 0, bound(0, -1, -1)),
		}, porcupine.Ok},
		"what is bound is not given back": {
			[]event{ask(1, 2, bind, 0, yes, 0), ask(3, 4, unreserve, 0, yes, 0)},
			porcupine.Illegal,
		},
		"on two nodes":    {[]event{ask(1, 2, bind, 0, yes, 2), ask(3, 4, bind, 1, yes, 2)}, porcupine.Illegal},
		"bound elsewhere": {[]event{ask(1, 2, bind, 0, yes, 2), ask(3, 4, bind, 1, no, 2)}, porcupine.Ok},
		"said to be bound": {
			[]event{ask(1, 2, bind, 0, yes, 2), ask(3, 4, truth, 0, bound(-1, -1, -1))},
			porcupine.Illegal,
		},
		"bound by nobody":      {[]event{ask(3, 4, truth, 0, bound(-1, -1, 1))}, porcupine.Illegal},
		"not said to be bound": {[]event{ask(1, 2, bind, 1, maybe, 2), ask(3, 4, truth, 0, bound(-1, -1, 1))}, porcupine.Ok},
		"done much later": {[]event{
			ask(1, 2, reserve, 0, maybe, 0), ask(3, 4, read, 0, used(0)), ask(5, 6, reserve, 0, no, 1),
		}, porcupine.Ok},
		"done, and taken back": {[]event{
			ask(1, 2, reserve, 0, maybe, 0), ask(3, 4, read, 0, used(3000)), ask(5, 6, reserve, 0, yes, 1),
		}, porcupine.Ok},
		"taken back what another was told of": {[]event{
			ask(1, 2, reserve, 0, maybe, 0), ask(3, 4, reserve, 0, yes, 0), ask(5, 6, reserve, 0, yes, 1),
		}, porcupine.Illegal},
		"done, given back by another and done again": {[]event{
			ask(1, 9, reserve, 0, twice, 0), ask(2, 3, read, 0, used(3000)), ask(4, 5, unreserve, 0, yes, 0),
			ask(6, 7, read, 0, used(3000)),
		}, porcupine.Ok},
		"done again without a second try": {[]event{
			ask(1, 9, reserve, 0, maybe, 0), ask(2, 3, read, 0, used(3000)), ask(4, 5, unreserve, 0, yes, 0),
			ask(6, 7, read, 0, used(3000)),
		}, porcupine.Illegal},
		"in the way until it failed": {[]event{
			ask(1, 8, reserve, 0, inVain, 0), ask(3, 4, reserve, 0, no, 1), ask(9, 10, read, 0, used(0)),
		}, porcupine.Ok},
		"had, lost and had": {[]event{
			ask(1, 8, bind, 0, inTheEnd, 0), ask(2, 3, unreserve, 0, no, 0), ask(4, 5, read, 0, used(0)),
			ask(9, 10, read, 0, used(3000)),
		}, porcupine.Ok},
		"had, lost and had without a lost try": {[]event{
			ask(1, 8, bind, 0, yes, 0), ask(2, 3, unreserve, 0, no, 0), ask(4, 5, read, 0, used(0)),
		}, porcupine.Illegal},
		"failed, and in the way": {
			[]event{ask(1, 2, reserve, 0, inVain, 0), ask(3, 4, reserve, 0, no, 1)},
			porcupine.Illegal,
		},
		"done, and not said to be": {
			[]event{ask(1, 2, reserve, 0, never, 0), ask(3, 4, read, 0, used(3000))},
			porcupine.Illegal,
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, porcupine.CheckOperationsTimeout(l.model(), operations(tc.events, maxTries), longestCheck))
		})
	}
}
