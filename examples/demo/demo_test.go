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
		label: "with GlobalReserve", wanted: 240, bound: podsThatFit, worstUsed: 16000, worstCapacity: 16000,
		gangs: 12, gangsWhole: 9, took: 1500 * time.Millisecond,
	}
}

func bad() result {
	r := good()
	r.label, r.bound, r.overcommitted, r.violations = "without GlobalReserve", 215, 14, 20
	r.worstUsed, r.refused, r.gangsWhole, r.gangsHalf = 28000, 16, 3, 4
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
			change:  func(before, _ *result) { before.overcommitted = 0 },
			warning: "overcommitted no node this time",
		},
		"overcommitted, if only for a moment": {
			change: func(_, after *result) { after.overcommitted, after.violations = 1, 1 },
			err:    "nodes were overcommitted: 1",
		},
		"a pod left out": {
			change: func(_, after *result) { after.stuck = make([]clusterload.FittingPod, 2) },
			err:    "2 pods wait although they would fit",
		},
		"fewer bound than fit":   {change: func(_, after *result) { after.bound-- }, err: "199 pods are bound; 200 fit"},
		"half a gang":            {change: func(_, after *result) { after.gangsHalf = 1 }, err: "1 gangs run in half"},
		"events that were lost":  {change: func(_, after *result) { after.gaps = 1 }, err: "no verdict is possible"},
		"two things at the time": {change: func(_, after *result) { after.gangsHalf, after.violations = 1, 1 }, err: "run in half"},
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
