package sim

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

var (
	nameOrNumber = regexp.MustCompile(`[\w-]*\d[\w./-]*`)
	fullName     = regexp.MustCompile(`[A-Za-z]+(-[a-z0-9]+)+`)
)

// alike reports whether two findings are of the same kind: they differ in names and numbers alone.
func alike(a, b error) bool {
	kind := func(err error) string {
		said := nameOrNumber.ReplaceAllString(err.Error(), "")
		return said[:min(len(said), 60)]
	}
	return a != nil && b != nil && kind(a) == kind(b)
}

// shrunkTries is how often a simpler cluster is run before it counts as one where nothing is found.
const shrunkTries = 3

// shrink returns a simpler cluster in which the same is found, with fewer steps and of what happens only what it takes.
func shrink(t *testing.T, o Options, result *Result) (Options, *Result) {
	t.Helper()
	found := result.Found
	try := func(simpler Options) bool {
		for range shrunkTries {
			if r := run(t, simpler); alike(r.Found, found) {
				o, result = simpler, r
				o.Steps = min(o.Steps, r.Steps)
				return true
			}
		}
		return false
	}
	for fewer := o; ; fewer = o {
		if fewer.Steps = fewer.Steps * 2 / 3; fewer.Steps == 0 || !try(fewer) {
			break
		}
	}
	for _, what := range slices.Concat(actionNames(), fates, watchFates, pieceFates) {
		less := o
		less.Without = append(slices.Clone(o.Without), what)
		if try(less) {
			t.Logf("also without %q", what)
		}
	}
	return o, result
}

// mostExcerpt is how many lines of a history are shown, at most.
const mostExcerpt = 80

// excerpt is what a history says of what a finding names, and of the servers.
func excerpt(found error, history []string) string {
	names := fullName.FindAllString(found.Error(), -1)
	servers := regexp.MustCompile(`s server-\d+ +(starts|ends|is)|s API +(API server|etcd)`)
	var lines []string
	for _, line := range history {
		of := func(name string) bool { return slices.Contains(fullName.FindAllString(line, -1), name) }
		if servers.MatchString(line) || slices.ContainsFunc(names, of) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-mostExcerpt):], "\n")
}

func TestExcerpt(t *testing.T) {
	found := fmt.Errorf("pods default/pod-8 and pod-2 are told of device GPU-0-0")
	assert.True(t, alike(found, fmt.Errorf("pods default/pod-9 and pod-21 are told of device GPU-1-0")))
	assert.False(t, alike(found, fmt.Errorf("pods default/pod-8 and pod-2 have claim-0 both")))
	assert.False(t, alike(found, nil))
	assert.Equal(t, "1.0s user creates pod-8\n2.0s server-1 starts\n3.0s API pod default/pod-2 has devices [GPU-0-0]",
		excerpt(found, []string{
			"1.0s user creates pod-8", "1.5s user creates pod-88", "2.0s server-1 starts", "2.5s server-1 late: GET /",
			"3.0s API pod default/pod-2 has devices [GPU-0-0]",
		}))
}
