//go:build costs

package kinds

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Nearly all pods are of no gang: to find that out costs no memory.
func TestMarkCostsNothing(t *testing.T) {
	table, err := New(Default())
	require.NoError(t, err)
	pod := annotated("a", "b", "c", "d")
	pod.Labels = map[string]string{"app": "x", "pod-template-hash": "y"}
	assert.Zero(t, testing.AllocsPerRun(100, func() { table.Mark(pod) }))
}
