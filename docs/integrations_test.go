package docs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kubectl"
	"github.com/globalreserve/globalreserve/pkg/policy"
)

// page is a page about another scheduler.
type page struct{ name, text string }

func integrationPages(t *testing.T) (index string, pages []page) {
	t.Helper()
	files, err := filepath.Glob("integrations/*.md")
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		if name := filepath.Base(file); name == "README.md" {
			index = string(content)
		} else {
			pages = append(pages, page{name, string(content)})
		}
	}
	require.Len(t, pages, 7)
	return index, pages
}

// requireText looks for a text without printing all of a page where it is not there.
func requireText(t *testing.T, where, text, what string) {
	t.Helper()
	require.Positive(t, 1+strings.Index(text, what), "%q is not in %s", what, where)
}

// blocks are the indented pieces of a page: YAML, and commands.
func blocks(text string) (found []string) {
	var block []string
	end := func() {
		if joined := strings.Trim(strings.Join(block, "\n"), "\n"); joined != "" {
			found = append(found, joined)
		}
		block = nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "    "):
			block = append(block, line[4:])
		case line != "" || len(block) == 0:
			end()
		default:
			block = append(block, "")
		}
	}
	end()
	return found
}

// Every page is in the index, which says of each alike whether it was run, and has the same parts.
func TestIntegrationPages(t *testing.T) {
	index, pages := integrationPages(t)
	for _, p := range pages {
		row := ""
		for line := range strings.Lines(index) {
			if strings.HasPrefix(line, "| [") && strings.Contains(line, "]("+p.name+")") {
				row = line
			}
		}
		require.NotEmpty(t, row, "%s is not in the index", p.name)
		run := strings.Contains(p.text, "**Run for real**")
		assert.NotEqual(t, run, strings.Contains(p.text, "Not run by the tests here."), "%s says whether it was run", p.name)
		assert.Equal(t, run, strings.Contains(row, "**yes**"), "the index says of %s what it says itself", p.name)
		for _, part := range []string{"## Gangs", "## What a refusal looks like to it", "## What it cannot do"} {
			requireText(t, p.name, p.text, "\n"+part+"\n")
		}
	}
}

// The table of kinds in the index is the one that the server has.
func TestKindsInIntegrations(t *testing.T) {
	index, _ := integrationPages(t)
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

// What is ours in the pages is understood: policies, Reservations, and commands of the plugin.
func TestOursInIntegrations(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none")) // not that of whoever runs the tests
	index, pages := integrationPages(t)
	policies, reservations, commands := 0, 0, 0
	for _, p := range append(pages, page{"README.md", index}) {
		for _, block := range blocks(p.text) {
			switch {
			case strings.Contains(block, "kind: GlobalReservePolicy"):
				_, err := policy.Parse([]byte(block))
				require.NoError(t, err, p.name)
				policies++
			case strings.Contains(block, "apiVersion: globalreserve.io/"):
				require.NoError(t, yaml.UnmarshalStrict([]byte(block), &v1alpha1.Reservation{}), p.name)
				reservations++
			}
		}
		for _, line := range strings.FieldsFunc(p.text, func(r rune) bool { return r == '\n' || r == '`' }) {
			command, ours := strings.CutPrefix(strings.TrimSpace(line), "kubectl reserve ")
			if !ours {
				continue
			}
			args, says := strings.Fields(command), "gang:"
			if args[0] == "create" {
				args = append(args, "--dry-run=client", "-o", "yaml")
			} else {
				args, says = append(args[:1], "--help"), "kubectl reserve "+args[0]+" "
			}
			var out, errs bytes.Buffer
			code := kubectl.Execute(t.Context(), genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errs}, args)
			assert.Zero(t, code, "%s: %s: %s", p.name, command, &errs)
			assert.Contains(t, out.String(), says, command)
			commands++
		}
	}
	assert.Equal(t, []int{1, 1, 6}, []int{policies, reservations, commands},
		"policies, reservations and commands that were looked at")
}
