package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each mistake still applies to the sources, and the page has it.
func TestMistakes(t *testing.T) {
	list, err := mistakes(".", nil)
	require.NoError(t, err)
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, m := range list {
		_, err := m.apply(t.TempDir())
		require.NoError(t, err, m.file)
		assert.NotEmpty(t, m.sources, m.file)
		assert.True(t, strings.Contains(string(text), "| "+m.what+" |"), "%s: make sim-planted writes the table", m.file)
	}
}

// The table goes to where the one before was.
func TestReplaceTable(t *testing.T) {
	before := "text\n\n" + heading + "| an old one | 1 | 2 | 3 |\n\nmore text\n"
	after, err := replaceTable(before, "| a new one | 1 | 2 | 3 |\n")
	require.NoError(t, err)
	assert.Equal(t, "text\n\n"+heading+"| a new one | 1 | 2 | 3 |\n\nmore text\n", after)
	_, err = replaceTable("text\n", "")
	assert.ErrorContains(t, err, "no table")
}
