package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
)

// good is a second run in which GlobalReserve did what it promises.
func good() result {
	return result{
		Label: "with GlobalReserve", Wanted: 240, Bound: podsThatFit, WorstUsed: 16000, WorstCapacity: 16000,
		Gangs: 12, GangsWhole: 9, Took: 1500 * time.Millisecond,
	}
}

func bad() result {
	r := good()
	r.Label, r.Bound, r.Overcommitted, r.Violations = "without GlobalReserve", 215, 14, 20
	r.WorstUsed, r.Refused, r.GangsWhole, r.GangsHalf = 28000, 16, 3, 4
	return r
}

func TestJudge(t *testing.T) {
	cases := map[string]struct {
		change  func(before, after *result)
		err     string
		warning string
	}{
		"as it should be": {change: func(_, _ *result) {}},
		"first run shows nothing": {
			change:  func(before, _ *result) { before.Overcommitted = 0 },
			warning: "overcommitted no node this time",
		},
		"overcommitted, if only for a moment": {
			change: func(_, after *result) { after.Overcommitted, after.Violations = 1, 1 },
			err:    "nodes were overcommitted: 1",
		},
		"a pod left out": {
			change: func(_, after *result) { after.Stuck = make([]clusterload.FittingPod, 2) },
			err:    "2 pods wait although they would fit",
		},
		"fewer bound than fit":  {change: func(_, after *result) { after.Bound-- }, err: "199 pods are bound; 200 fit"},
		"half a gang":           {change: func(_, after *result) { after.GangsHalf = 1 }, err: "1 gangs run in half"},
		"events that were lost": {change: func(_, after *result) { after.Gaps = 1 }, err: "no verdict is possible"},
		"two things at the time": {
			change: func(_, after *result) { after.GangsHalf, after.Violations = 1, 1 },
			err:    "run in half",
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			before, after := bad(), good()
			test.change(&before, &after)
			v := judge(before, after)
			if test.err == "" {
				assert.NoError(t, v.err)
			} else {
				assert.ErrorContains(t, v.err, test.err)
			}
			assert.Equal(t, test.warning != "", len(v.warnings) > 0)
			assert.Contains(t, strings.Join(v.warnings, "\n"), test.warning)
		})
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, writeTable(&out, bad(), good()))
	for _, line := range strings.Split(strings.TrimRight(out.String(), "\n"), "\n") {
		assert.LessOrEqual(t, len(line), 90, "the table fits a terminal: %q", line)
	}
	for _, want := range []string{
		`without GlobalReserve\s+with GlobalReserve`,
		`pods wanted\s+240\s+240`,
		`overcommitted nodes, worst moment\s+14\s+0`,
		`fullest node\s+28 of 16 CPUs\s+16 of 16 CPUs`,
		`gangs whole / half / waiting\s+3 / 4 / 5\s+9 / 0 / 3`,
		`time until the last bind\s+1.5s\s+1.5s`,
	} {
		assert.Regexp(t, want, out.String())
	}
}

func TestInterrupted(t *testing.T) {
	broken := errors.New("a request failed")
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	assert.NoError(t, ended(interrupted, broken, false), "Ctrl-C is how the demo is meant to end")
	assert.ErrorContains(t, ended(interrupted, broken, true), "interrupted", "--once promised a result")
	assert.Equal(t, broken, ended(t.Context(), broken, false))
	assert.NoError(t, ended(interrupted, nil, true), "it was over already")
}
