package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/globalreserve/globalreserve/test/clusterload"
)

// result is what became of one run.
type result struct {
	label                    string
	wanted, bound            int
	refused                  int // bound, but a kubelet would have failed them
	overcommitted            int // nodes, at the worst moment
	violations               int
	gaps                     int
	worstUsed, worstCapacity int64 // milli-CPU on the fullest node
	gangs                    int
	gangsWhole, gangsHalf    int
	stuck                    []clusterload.FittingPod
	took                     time.Duration
}

func newResult(label string, watcher *clusterload.Watcher, s clusterload.Snapshot, took time.Duration) result {
	peak := watcher.Peak()
	whole, half := s.CountGangs()
	return result{
		label: label, wanted: s.Pods, bound: s.Bound, refused: s.Refused,
		overcommitted: peak.OvercommittedNodes, violations: len(watcher.Violations()), gaps: watcher.Gaps(),
		worstUsed: peak.CPUUsed, worstCapacity: peak.CPUAllocatable,
		gangs: len(s.Gangs), gangsWhole: whole, gangsHalf: half, stuck: s.FittingPods, took: took,
	}
}

func (r result) summary() string {
	return fmt.Sprintf("settled: %d of %d pods bound in %.1fs, %d nodes overcommitted at the worst moment",
		r.bound, r.wanted, r.took.Seconds(), r.overcommitted)
}

// writeTable prints the runs side by side.
func writeTable(out io.Writer, results ...result) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	row := func(name string, cell func(result) string) {
		fmt.Fprint(table, name)
		for _, r := range results {
			fmt.Fprint(table, "\t", cell(r))
		}
		fmt.Fprintln(table)
	}
	row("", func(r result) string { return r.label })
	row("nodes", func(result) string { return strconv.Itoa(nodeCount) })
	row("pods wanted", func(r result) string { return strconv.Itoa(r.wanted) })
	row("pods that fit", func(result) string { return strconv.Itoa(podsThatFit) })
	row("pods bound", func(r result) string { return strconv.Itoa(r.bound) })
	row("overcommitted nodes, worst moment", func(r result) string { return strconv.Itoa(r.overcommitted) })
	row("fullest node", func(r result) string {
		return fmt.Sprintf("%d of %d CPUs", r.worstUsed/1000, r.worstCapacity/1000)
	})
	row("pods a kubelet would fail", func(r result) string { return strconv.Itoa(r.refused) })
	row("gangs whole / half / waiting", func(r result) string {
		return fmt.Sprintf("%d / %d / %d", r.gangsWhole, r.gangsHalf, r.gangs-r.gangsWhole-r.gangsHalf)
	})
	row("time until the last bind", func(r result) string { return fmt.Sprintf("%.1fs", r.took.Seconds()) })
	return table.Flush()
}

// explain says in one line what the overcommit of a run means.
func explain(r result) string {
	return fmt.Sprintf("These nodes have no kubelets. With kubelets, %d pods of the run %s die with OutOfcpu as they arrive.",
		r.refused, r.label)
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
	fail(after.gangsHalf > 0, "with GlobalReserve, %d gangs run in half", after.gangsHalf)
	fail(after.gaps > 0, "events of the API server were lost %d times, so that no verdict is possible", after.gaps)
	v.err = errors.Join(errs...)
	return v
}
