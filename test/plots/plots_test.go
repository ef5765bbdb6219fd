package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const docs = "../../docs/performance"

// The plots that are committed are those of the figures that are.
func TestPlotsAreCurrent(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"scale.txt", "chain.txt", "conflicts.txt"} {
		text, err := os.ReadFile(filepath.Join(docs, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	require.NoError(t, draw(dir))
	drawn, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	require.NoError(t, err)
	require.Len(t, drawn, 5)
	for _, path := range drawn {
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(docs, filepath.Base(path)))
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), "%s: run `make bench-plots`", filepath.Base(path))
	}
}

func TestNothingMeasured(t *testing.T) {
	dir := t.TempDir()
	assert.ErrorContains(t, draw(dir), "make bench-scale")
	for _, name := range []string{"scale.txt", "chain.txt", "conflicts.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	assert.ErrorContains(t, draw(dir), "nothing in scale.txt")
}
