package sim

import (
	"regexp"
	"slices"
	"strings"
	"testing"
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
