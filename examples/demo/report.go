package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/globalreserve/globalreserve/test/clusterload"
)

// result is what became of one run.
type result struct {
	label                   string
	wanted, bound           int
	refused                 int // bound, but a kubelet would have failed them
	overcommitted           int // nodes, at the worst moment
	violations              int
	gaps                    int
	worstUsed, worstRoom    int64 // milli-CPU on the fullest node
	groups                  int
	groupsWhole, groupsHalf int
	stuck                   []clusterload.FittingPod
	took                    time.Duration
}

func newResult(label string, watcher *clusterload.Watcher, s clusterload.Snapshot, took time.Duration) result {
	peak := watcher.Peak()
	whole, half := s.CountGroups()
	return result{
		label: label, wanted: s.Pods, bound: s.Bound, refused: s.Refused,
		overcommitted: peak.OvercommittedNodes, violations: len(watcher.Violations()), gaps: watcher.Gaps(),
		worstUsed: peak.CPUUsed, worstRoom: peak.CPUAllocatable,
		groups: len(s.Groups), groupsWhole: whole, groupsHalf: half, stuck: s.FittingPods, took: took,
	}
}

func (r result) summary() string {
	return fmt.Sprintf("settled: %d of %d pods bound in %.1fs, %d nodes overcommitted at the worst moment",
		r.bound, r.wanted, r.took.Seconds(), r.overcommitted)
}

// writeTable prints the runs side by side, a line each.
func writeTable(out io.Writer, results ...result) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RUN\tNODES\tPODS WANTED\tTHAT FIT\tBOUND\tOVERCOMMITTED NODES\tFULLEST NODE\tGROUPS WHOLE / HALF / WAITING\tTIME")
	for _, r := range results {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d of %d CPUs\t%d / %d / %d\t%.1fs\n",
			r.label, nodeCount, r.wanted, podsThatFit, r.bound, r.overcommitted, r.worstUsed/1000, r.worstRoom/1000,
			r.groupsWhole, r.groupsHalf, r.groups-r.groupsWhole-r.groupsHalf, r.took.Seconds())
	}
	return table.Flush()
}

// explain says in one line what the overcommit of a run means.
func explain(r result) string {
	return fmt.Sprintf("These nodes have no kubelets. Where there are some, %d of the pods bound %s die with OutOfcpu, and %d groups run in half.",
		r.refused, r.label, r.groupsHalf)
}

// verdict is what the demo makes of its two runs.
type verdict struct {
	// err is set when GlobalReserve did not do what it promises.
	err      error
	warnings []string
}

func judge(before, after result) verdict {
	var v verdict
	if before.overcommitted == 0 {
		v.warnings = append(v.warnings,
			"the first run overcommitted no node this time, so the second one shows less than it could; run the demo again")
	}
	var errs []error
	fail := func(failed bool, format string, args ...any) {
		if failed {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	fail(after.violations > 0, "with GlobalReserve, nodes were overcommitted: %d at the worst moment", after.overcommitted)
	fail(len(after.stuck) > 0, "with GlobalReserve, %d pods wait although they would fit", len(after.stuck))
	fail(after.bound != podsThatFit, "with GlobalReserve, %d pods are bound; %d fit", after.bound, podsThatFit)
	fail(after.groupsHalf > 0, "with GlobalReserve, %d groups run in half", after.groupsHalf)
	fail(after.gaps > 0, "events of the API server were lost %d times, so that no verdict is possible", after.gaps)
	v.err = errors.Join(errs...)
	return v
}
