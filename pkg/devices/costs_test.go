//go:build costs

package devices

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFitsAllocatesNothing(t *testing.T) {
	p := bigNode(256)
	free := p.Schedulable()
	requests := append(contended(t), contended(t)...)
	require.Equal(t, Fits, p.Fits(free, requests).Reason)
	assert.Zero(t, testing.AllocsPerRun(100, func() { p.Fits(free, requests) }))
}
