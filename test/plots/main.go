// Package main is plots, which draws the plots of docs/performance.md: SVG, from what `make bench-scale` and
// `make bench-conflicts` measured and from figures that others have published. It is given the directory that has
// scale.txt, conflicts.txt and chain.txt, and writes its plots there.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fail("usage: plots DIRECTORY, which has scale.txt, conflicts.txt and chain.txt")
	}
	if err := draw(os.Args[1]); err != nil {
		fail(err.Error())
	}
}

func fail(why string) {
	fmt.Fprintln(os.Stderr, "plots: "+why)
	os.Exit(1)
}

// bar is one bar of a plot.
type bar struct {
	label string
	value float64
}

// plot is a plot of horizontal bars.
type plot struct {
	file, title, unit string
	bars              []bar
	goal              float64 // a line across; 0 is none
}

func draw(dir string) error {
	scale, err := readScale(filepath.Join(dir, "scale.txt"))
	if err != nil {
		return err
	}
	chain, err := readChain(filepath.Join(dir, "chain.txt"))
	if err != nil {
		return err
	}
	conflicts, err := readConflicts(filepath.Join(dir, "conflicts.txt"))
	if err != nil {
		return err
	}
	plots := []plot{
		{
			file: "memory.svg", title: "Memory of the ledger and the pods beside it", unit: "MiB",
			bars: scale.of("pkg/kube/cluster", "Fill", "MiB", 1), goal: 1536,
		},
		{
			file: "fit.svg", title: "Fit of one pod on all nodes, processor time", unit: "µs",
			bars: scale.of("pkg/ledger", "FitAll", "cpu-ns/op", 1e3), goal: 250,
		},
		{
			file: "decide.svg", title: "One decision, processor time", unit: "µs",
			bars: scale.of("pkg/ledger", "Decide", "cpu-ns/op", 1e3), goal: 1.5,
		},
		{file: "chain.svg", title: "Pods bound in a second, and decisions in a second", unit: "/s", bars: chain},
	}
	for _, p := range plots {
		if len(p.bars) == 0 {
			return fmt.Errorf("%s: nothing in scale.txt to draw; run `make bench-scale`", p.file)
		}
		if err := os.WriteFile(filepath.Join(dir, p.file), p.svg(), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "conflicts.svg"), curves(conflicts), 0o644)
}

// measured is one line of Go's benchmarks.
type measured struct {
	size, pkg, name string
	metrics         map[string]float64
}

type results []measured

// readScale reads the output of `make bench-scale`.
func readScale(path string) (results, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("run `make bench-scale` first: %w", err)
	}
	var all results
	var size, pkg string
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 5 && words[0] == "size:": // size: N nodes, N pods
			size = strings.Join(words[1:], " ")
		case len(words) == 2 && words[0] == "pkg:":
			_, pkg, _ = strings.Cut(words[1], "globalreserve/globalreserve/")
		case len(words) > 3 && strings.HasPrefix(words[0], "BenchmarkScale/"):
			name := strings.TrimPrefix(words[0], "BenchmarkScale/")
			name, _, _ = strings.Cut(name, "-")
			m := measured{size, pkg, name, map[string]float64{}}
			for i := 2; i+1 < len(words); i += 2 {
				if m.metrics[words[i+1]], err = strconv.ParseFloat(words[i], 64); err != nil {
					return nil, fmt.Errorf("%s: %w", path, err)
				}
			}
			all = append(all, m)
		}
	}
	return all, lines.Err()
}

// of returns one figure of a benchmark for each size.
func (r results) of(pkg, name, metric string, divisor float64) (bars []bar) {
	for _, m := range r {
		if m.pkg == pkg && m.name == name {
			bars = append(bars, bar{m.size, m.metrics[metric] / divisor})
		}
	}
	return bars
}

// readChain reads lines of a number and what it is of.
func readChain(path string) (bars []bar, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		number, label, found := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(number, "#") || !found {
			continue
		}
		value, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		bars = append(bars, bar{label, value})
	}
	return bars, nil
}
