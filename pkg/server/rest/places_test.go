package rest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whoever takes all the places it can get, there are some for others, and for other programs of the same caller.
func TestPlacesAreKeptForMirrors(t *testing.T) {
	p := newPlaces(64)
	fill := func(caller string) (leave []func()) {
		for i := range 1000 {
			program := "browser"
			if i%2 == 0 {
				program = fmt.Sprint("liar ", i)
			}
			if one, ok := p.take(caller, program); ok {
				leave = append(leave, one)
			}
		}
		return leave
	}
	first := fill("greedy")
	assert.Len(t, first, 32+moreKept)
	taken := make([]func(), 0, 10)
	for i := range 10 {
		leave, ok := p.take(fmt.Sprint("scheduler ", i), "mirror")
		require.True(t, ok, "scheduler %d", i)
		taken = append(taken, leave)
	}
	for _, leave := range append(first, taken...) {
		leave()
	}
	assert.Zero(t, p.open())
	assert.Empty(t, p.callers)
	assert.Empty(t, p.programs)

	for range 100 { // all on one address, and honest
		p.take("loopback", "browser")
	}
	_, ok := p.take("loopback", "mirror")
	assert.True(t, ok)
}
