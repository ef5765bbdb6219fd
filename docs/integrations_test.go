package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
)

// requireText looks for a text without printing all of a page where it is not there.
func requireText(t *testing.T, where, text, what string) {
	t.Helper()
	require.Positive(t, 1+strings.Index(text, what), "%q is not in %s", what, where)
}

// Every page about another scheduler is in the index, which says of each alike whether it was run, and has the same
// parts.
func TestIntegrationPages(t *testing.T) {
	all, pages := documents(t), 0
	for file, text := range all {
		name, found := strings.CutPrefix(file, "docs/integrations/")
		if !found || name == "README.md" {
			continue
		}
		pages++
		row := regexp.MustCompile(`(?m)^\| \[.*\]\(` + name + `\).*`).FindString(all["docs/integrations/README.md"])
		require.NotEmpty(t, row, "%s is not in the index", name)
		run := strings.Contains(text, "**Run for real**")
		assert.NotEqual(t, run, strings.Contains(text, "Not run by the tests here."), "%s says whether it was run", name)
		assert.Equal(t, run, strings.Contains(row, "**yes**"), "the index says of %s what it says itself", name)
		for _, part := range []string{"## Gangs", "## What a refusal looks like to it", "## What it cannot do"} {
			requireText(t, name, text, "\n"+part+"\n")
		}
	}
	assert.Equal(t, 7, pages)
}

// The table of kinds in the index is the one that the server has.
func TestKindsInIntegrations(t *testing.T) {
	index := read(t, "integrations/README.md")
	for _, kind := range kinds.Default() {
		requireText(t, "the index", index, "| `"+kind.Name+"` |")
		for _, way := range kind.Pods {
			for _, path := range []string{way.Name, way.Minimum} {
				if _, key, ok := strings.Cut(path, "['"); ok {
					path = strings.TrimSuffix(key, "']")
				}
				requireText(t, "the index", index, strings.TrimPrefix(path, "."))
			}
		}
		if kind.Object != nil {
			requireText(t, "the index", index, "PodGroup, `"+kind.Object.Group)
			requireText(t, "the index", index, "`"+kind.Object.Minimum+"`")
		}
	}
}
