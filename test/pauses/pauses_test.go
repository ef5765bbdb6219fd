//go:build e2e

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The Go in use has all that is to pause.
func TestOverlayCanBeMade(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, run([]string{dir}))
	content, err := os.ReadFile(filepath.Join(dir, "overlay.json"))
	require.NoError(t, err)
	var overlay struct{ Replace map[string]string }
	require.NoError(t, json.Unmarshal(content, &overlay))
	assert.Len(t, overlay.Replace, len(paused)+1)
	for library, to := range overlay.Replace {
		source, err := os.ReadFile(to)
		require.NoError(t, err)
		want := 1
		for file, functions := range paused {
			if strings.HasSuffix(library, file) {
				want = len(functions)
			}
		}
		assert.GreaterOrEqual(t, strings.Count(string(source), "pausePoint()"), want, library)
	}
	_, err = withPauses("runtime/select.go", "package runtime\n")
	require.ErrorContains(t, err, "has no")
	require.ErrorContains(t, run(nil), "usage")
}
