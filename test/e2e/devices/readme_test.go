//go:build e2e

package devices

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// command is one of the README, with the output that is to be expected; none where it says nothing of it.
type command struct{ line, output string }

// readmeCommands are the indented lines that begin with a dollar sign, and the indented lines that follow.
func readmeCommands(text string) (all []command) {
	following := false
	for line := range strings.Lines(text) {
		line, code := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "    ")
		if following = following && code; !code {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "$ "); ok {
			all = append(all, command{line: rest})
			following = true
		} else if following {
			all[len(all)-1].output += line + "\n"
		}
	}
	return all
}

// What differs from run to run: ages, and the generated part of names.
var (
	ages   = regexp.MustCompile(`\b(\d+m)?\d+s\b`)
	hashes = regexp.MustCompile(`trainer-[a-z0-9]{6,10}-[a-z0-9]{5}`)
	spaces = regexp.MustCompile(`[ \t]+`)
)

// sameEachRun leaves of an output what is the same in each run.
func sameEachRun(output string) string {
	output = hashes.ReplaceAllString(ages.ReplaceAllString(output, "AGE"), "trainer-HASH")
	var lines []string
	for line := range strings.Lines(output) {
		lines = append(lines, strings.TrimSpace(spaces.ReplaceAllString(line, " ")))
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// walkReadme runs the commands of the README as they are written there, and compares what they print. What
// only looks is looked at until it is so.
func walkReadme(c *cluster) {
	directory := c.T.TempDir()
	require.NoError(c.T, os.CopyFS(directory, os.DirFS(testbed.File(c.T, examples...))))
	for _, name := range []string{"ca.crt", "scheduler.crt", "scheduler.key"} { // that the reader has made before
		require.NoError(c.T, os.WriteFile(filepath.Join(directory, name), []byte("no kubelet reads it here"), 0o600))
	}
	text, err := os.ReadFile(filepath.Join(directory, "README.md"))
	require.NoError(c.T, err)
	commands := readmeCommands(string(text))
	require.Greater(c.T, len(commands), 20, "the README is not understood")
	for _, step := range commands {
		run := func() (string, error) { return c.Shell(directory, step.line, testbed.File(c.T, "bin")) }
		if !looks(step.line) {
			output, err := run()
			c.T.Logf("$ %s\n%s", step.line, output)
			require.NoError(c.T, err)
			if step.output != "" {
				require.Equal(c.T, sameEachRun(step.output), sameEachRun(output), "$ %s", step.line)
			}
			continue
		}
		var output string
		c.Eventually(func(t *assert.CollectT) {
			var err error
			output, err = run()
			assert.NoError(t, err, "$ %s\n%s", step.line, output)
			assert.Equal(t, sameEachRun(step.output), sameEachRun(output), "$ %s", step.line)
		})
		c.T.Logf("$ %s\n%s", step.line, output)
	}
	list, err := c.Devices().List(c.T.Context(), metav1.ListOptions{})
	require.NoError(c.T, err)
	require.Empty(c.T, list.Items, "the README cleans up")
}

func looks(line string) bool {
	return strings.HasPrefix(line, "kubectl get ") || strings.HasPrefix(line, "kubectl reserve ") ||
		strings.HasPrefix(line, "kubectl describe ")
}
