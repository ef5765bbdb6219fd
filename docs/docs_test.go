// Package docs has no code. Its test keeps the documents from naming what is not there.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	// link is the target of a Markdown link, without what follows a #.
	link = regexp.MustCompile(`\]\(([^)#]+)(?:#[^)]*)?\)`)
	// path is a file or folder of the repository, named from its root.
	path = regexp.MustCompile("`((?:cmd|docs|examples|manifests|pkg|scheduler-config|test)/[^`\\s]*)`")
)

// TestNamesOfFiles looks for every file that a document links or names.
func TestNamesOfFiles(t *testing.T) {
	files, err := filepath.Glob("../*.md")
	require.NoError(t, err)
	for _, pattern := range []string{"*.md", "decisions/*.md"} {
		more, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, more...)
	}
	checked := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(content), -1) {
			if !strings.Contains(m[1], "://") {
				assert.FileExists(t, filepath.Join(filepath.Dir(file), m[1]), "linked in %s", file)
				checked++
			}
		}
		for _, m := range path.FindAllStringSubmatch(string(content), -1) {
			_, err := os.Stat(filepath.Join("..", m[1]))
			assert.NoError(t, err, "named in %s", file)
			checked++
		}
	}
	assert.Greater(t, checked, 100, "of all documents")
}
