// Package docs has no code. Its tests keep the documents from naming what is not there.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/policy"
)

var (
	// link is the target of a Markdown link, and what follows a #.
	link = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	// path is a file or folder of the repository, named from its root.
	path = regexp.MustCompile("`((?:cmd|docs|examples|manifests|pkg|scheduler-config|test|web)/[^`\\s]*)`")
	// applied is what a command takes from the repository.
	applied = regexp.MustCompile(`(?:-f|-k|kustomize|--config=?) ?((?:manifests|scheduler-config|examples)/[^\s` + "`" +
		`]+)`)
	fence = regexp.MustCompile("(?s)```.*?```")
	// code is lines in a row that are indented by four.
	code = regexp.MustCompile(`(?m)(?:^ {4}.*\n)+`)
	span = regexp.MustCompile("`[^`]+`")
	// wide is what a line wider than others begins with: a table, a picture, a command, or what a command prints.
	wide = regexp.MustCompile(`^\s*(?:\||!\[|<)|^(?: {4}|\t)|^(?:- )?` + "`[^`]+`$")
	// inHeading is what a heading has and its name for links has not.
	inHeading = regexp.MustCompile(`\]\([^)]*\)|[^\p{L}\p{N} _-]`)
)

// files are those of the repository whose names end in one of some ways, by their paths from its root.
func files(t *testing.T, ends ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{"node_modules", "bin", ".git", "dist"}, entry.Name()):
			return filepath.SkipDir
		case slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(name, end) }):
			all[strings.TrimPrefix(filepath.ToSlash(name), "../")] = read(t, name)
		}
		return nil
	}))
	require.Greater(t, len(all), 50)
	return all
}

// documents are all Markdown files of the repository.
func documents(t *testing.T) map[string]string {
	t.Helper()
	return files(t, ".md")
}

// anchors are the names that a page's headings have for links, as GitHub makes them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(fence.ReplaceAllString(text, "")) {
		marks, heading, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found || strings.Trim(marks, "#") != "" {
			continue
		}
		heading = inHeading.ReplaceAllString(strings.ToLower(heading), "")
		all[strings.ReplaceAll(heading, " ", "-")] = true
	}
	return all
}

// TestLinks follows every link between documents, to the heading where it names one.
func TestLinks(t *testing.T) {
	all, checked := documents(t), 0
	for file, text := range all {
		for _, m := range link.FindAllStringSubmatch(span.ReplaceAllString(fence.ReplaceAllString(text, ""), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := file
			if m[1] != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(file), m[1]))
			}
			checked++
			if !assert.FileExists(t, filepath.Join("..", target), "linked in %s", file) || m[2] == "" {
				continue
			}
			assert.Contains(t, anchors(all[target]), m[2], "%s links to %s#%s", file, target, m[2])
		}
	}
	assert.Greater(t, checked, 300, "of all documents")
}

// TestNamesOfFiles looks for every file that a document, or a command in it, names.
func TestNamesOfFiles(t *testing.T) {
	checked := 0
	for file, text := range documents(t) {
		for _, m := range append(path.FindAllStringSubmatch(text, -1), applied.FindAllStringSubmatch(text, -1)...) {
			_, err := os.Stat(filepath.Join("..", m[1]))
			assert.NoError(t, err, "named in %s", file)
			checked++
		}
	}
	assert.Greater(t, checked, 200, "of all documents")
}

// TestLinesAreWrapped has prose end at 120 characters. What is generated may be wider.
func TestLinesAreWrapped(t *testing.T) {
	for file, text := range documents(t) {
		if strings.HasPrefix(file, "docs/reference/") || strings.HasPrefix(file, "charts/") {
			continue
		}
		for line := range strings.Lines(fence.ReplaceAllString(text, "")) {
			if line = strings.TrimRight(line, "\n"); wide.MatchString(line) || len(strings.Fields(line)) == 1 {
				continue
			}
			assert.LessOrEqual(t, utf8.RuneCountInString(line), 120, "in %s: %s", file, line)
		}
	}
}

// rules is a part of a policy: it begins with one of its fields.
var rules = regexp.MustCompile(`^    (schedulers|namespaces|deletedPods|reservations|prioritize|gangs|autoscaling):`)

// Each policy in a document is one that a server takes, and each part of one, in a file with the head that it needs. So
// is each Reservation.
func TestPolicies(t *testing.T) {
	const head = "    apiVersion: config.globalreserve.io/v1alpha1\n    kind: GlobalReservePolicy\n"
	checked, reservations := 0, 0
	for file, text := range documents(t) {
		for _, block := range code.FindAllString(text, -1) {
			if strings.HasPrefix(block, "    apiVersion: globalreserve.io/v1alpha1\n    kind: Reservation\n") {
				assert.NoError(t, yaml.UnmarshalStrict([]byte(block), &v1alpha1.Reservation{}), "in %s", file)
				reservations++
			}
			if rules.MatchString(block) {
				block = head + block
			} else if !strings.HasPrefix(block, "    apiVersion: config.globalreserve.io/") {
				continue
			}
			_, err := policy.Parse([]byte(block))
			assert.NoError(t, err, "in %s", file)
			checked++
		}
	}
	assert.Greater(t, checked, 5)
	assert.Positive(t, reservations)
}

// Every page of docs can be found from the index, and the README is short.
func TestIndex(t *testing.T) {
	all := documents(t)
	for file := range all {
		if name, ours := strings.CutPrefix(file, "docs/"); ours && !strings.Contains(name, "/") && name != "README.md" {
			assert.Contains(t, all["docs/README.md"], "]("+name+")")
		}
	}
	assert.LessOrEqual(t, strings.Count(all["README.md"], "\n"), 130)
}

// The example in Python is as short as its page says.
func TestPythonIsShort(t *testing.T) {
	assert.LessOrEqual(t, strings.Count(read(t, "../examples/python/gang.py"), "\n"), 60)
}

// Each page by which a cluster or a scheduler comes to GlobalReserve begins with looking at what would be refused.
func TestObserveFirst(t *testing.T) {
	all := documents(t)
	for page, start := range map[string]string{
		"docs/install.md": "## 1.", "docs/install-helm.md": "## Modes", "docs/schedulers.md": "## kube-scheduler",
		"docs/gang-schedulers.md": "1. Know the URL", "docs/integrations/README.md": "make build",
		"scheduler-config/README.md": "## Over TLS", "scheduler-config/plugin/README.md": "## The plugin's args",
		"manifests/scheduler/README.md": "## As the default scheduler", "manifests/admission/README.md": "kubectl apply",
	} {
		before, _, found := strings.Cut(all[page], start)
		assert.True(t, found, "%q in %s", start, page)
		assert.Contains(t, before, "#observe-first", page)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(content)
}
