package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/globalreserve/globalreserve/test/clusterload"
)

// result is what became of one run.
type result struct {
	Label         string `json:"label"`
	Wanted        int    `json:"wanted"`
	Bound         int    `json:"bound"`
	Refused       int    `json:"refused"`       // bound, but a kubelet would have failed them
	Overcommitted int    `json:"overcommitted"` // nodes, at the worst moment
	Violations    int    `json:"violations"`
	Gaps          int    `json:"gaps"`
	// WorstUsed and WorstCapacity are milli-CPU on the fullest node.
	WorstUsed     int64                    `json:"worstUsed"`
	WorstCapacity int64                    `json:"worstCapacity"`
	Gangs         int                      `json:"gangs"`
	GangsWhole    int                      `json:"gangsWhole"`
	GangsHalf     int                      `json:"gangsHalf"`
	Stuck         []clusterload.FittingPod `json:"-"`
	Took          time.Duration            `json:"took"` // until the last bind
}

func newResult(label string, watcher *clusterload.Watcher, s clusterload.Snapshot, took time.Duration) result {
	peak := watcher.Peak()
	whole, half := s.CountGangs()
	return result{
		Label: label, Wanted: s.Pods, Bound: s.Bound, Refused: s.Refused,
		Overcommitted: peak.OvercommittedNodes, Violations: len(watcher.Violations()), Gaps: watcher.Gaps(),
		WorstUsed: peak.CPUUsed, WorstCapacity: peak.CPUAllocatable,
		Gangs: len(s.Gangs), GangsWhole: whole, GangsHalf: half, Stuck: s.FittingPods, Took: took,
	}
}

func (r result) summary() string {
	return fmt.Sprintf("settled: %d of %d pods bound in %.1fs, %d nodes overcommitted at the worst moment",
		r.Bound, r.Wanted, r.Took.Seconds(), r.Overcommitted)
}

// rows are the lines of the table: a name, and its value in each run.
func rows(results ...result) [][]string {
	var all [][]string
	row := func(name string, cell func(result) string) {
		line := []string{name}
		for _, r := range results {
			line = append(line, cell(r))
		}
		all = append(all, line)
	}
	row("", func(r result) string { return r.Label })
	row("nodes", func(result) string { return strconv.Itoa(nodeCount) })
	row("pods wanted", func(r result) string { return strconv.Itoa(r.Wanted) })
	row("pods that fit", func(result) string { return strconv.Itoa(podsThatFit) })
	row("pods bound", func(r result) string { return strconv.Itoa(r.Bound) })
	row("overcommitted nodes, worst moment", func(r result) string { return strconv.Itoa(r.Overcommitted) })
	row("fullest node", func(r result) string {
		return fmt.Sprintf("%d of %d CPUs", r.WorstUsed/1000, r.WorstCapacity/1000)
	})
	row("pods a kubelet would fail", func(r result) string { return strconv.Itoa(r.Refused) })
	row("gangs whole / half / waiting", func(r result) string {
		return fmt.Sprintf("%d / %d / %d", r.GangsWhole, r.GangsHalf, r.Gangs-r.GangsWhole-r.GangsHalf)
	})
	row("time until the last bind", func(r result) string { return fmt.Sprintf("%.1fs", r.Took.Seconds()) })
	return all
}

// writeTable prints the runs side by side.
func writeTable(out io.Writer, results ...result) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, row := range rows(results...) {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}

// explain says in one line what the overcommit of a run means.
func explain(r result) string {
	return fmt.Sprintf("These nodes have no kubelets. With kubelets, %d pods of the run %s die with OutOfcpu as they "+
		"arrive.",
		r.Refused, r.Label)
}

// verdict is what the demo makes of its two runs.
type verdict struct {
	// err is set when GlobalReserve did not do what it promises.
	err      error
	warnings []string
}

func judge(before, after result) verdict {
	var v verdict
	if before.Overcommitted == 0 {
		v.warnings = append(v.warnings,
			"the first run overcommitted no node this time, so the second one shows less than it could; run the demo again")
	}
	var errs []error
	fail := func(failed bool, format string, args ...any) {
		if failed {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	fail(after.Violations > 0, "with GlobalReserve, nodes were overcommitted: %d at the worst moment", after.Overcommitted)
	fail(len(after.Stuck) > 0, "with GlobalReserve, %d pods wait although they would fit", len(after.Stuck))
	fail(after.Bound != podsThatFit, "with GlobalReserve, %d pods are bound; %d fit", after.Bound, podsThatFit)
	fail(after.GangsHalf > 0, "with GlobalReserve, %d gangs run in half", after.GangsHalf)
	fail(after.Gaps > 0, "events of the API server were lost %d times, so that no verdict is possible", after.Gaps)
	v.err = errors.Join(errs...)
	return v
}
