package main

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"strconv"
	"strings"
)

// The picture of conflicts.txt: a row of panels for each number of schedulers, a column for each figure, and in each
// panel a curve for each way over how full the nodes are.
const (
	panelWidth, panelHeight = 210, 120
	panelLeft, panelTop     = 90, 64
	gapX, gapY              = 60, 50
)

// ways are what stands between the schedulers, in the order of the legend, with the color of each.
var ways = []struct{ name, title, color string }{
	{"nothing", "nothing between them", "#b03030"},
	{"pools", "pools of nodes, demand shifts", "#b8860b"},
	{"steady-pools", "pools, demand does not shift", "#d8c080"},
	{"ledger", "GlobalReserve", "#2f6f3e"},
}

// columns are the figures; max is the most that a panel shows.
var columns = []struct {
	title, unit string
	max         float64
	of          func(conflict) float64
}{
	{"pods that fail at their node", "%", 15, func(c conflict) float64 { return 100 * c["killed"] }},
	{"CPU idle while pods wait", "%", 70, func(c conflict) float64 { return 100 * c["idle"] }},
	{"wait to run, p99", "s", 30, func(c conflict) float64 { return c["p99-ms"] / 1000 }},
}

// conflict is a line of conflicts.txt: its numbers by name.
type conflict map[string]float64

// readConflicts reads what `make bench-conflicts` wrote: the lines of each way.
func readConflicts(path string) (map[string][]conflict, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("run `make bench-conflicts` first: %w", err)
	}
	all := map[string][]conflict{}
	for line := range strings.Lines(string(text)) {
		way, c := "", conflict{}
		for _, word := range strings.Fields(line) {
			name, value, found := strings.Cut(word, "=")
			switch {
			case !found:
			case name == "way":
				way = value
			default:
				if c[name], err = strconv.ParseFloat(value, 64); err != nil {
					return nil, fmt.Errorf("%s: %w", path, err)
				}
			}
		}
		all[way] = append(all[way], c)
	}
	return all, nil
}

// curves draws the picture.
func curves(conflicts map[string][]conflict) []byte {
	schedulers := []float64{1, 2, 4, 8}
	width := panelLeft + len(columns)*(panelWidth+gapX)
	height := panelTop + len(schedulers)*(panelHeight+gapY)
	var out bytes.Buffer
	fmt.Fprintf(&out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n",
		width, height)
	fmt.Fprintf(&out, "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", width, height)
	for i, w := range ways {
		fmt.Fprintf(&out, "<text x=\"%d\" y=\"22\" fill=\"%s\">%s</text>\n", panelLeft-60+i*205, w.color,
			html.EscapeString("— "+w.title))
	}
	for row, n := range schedulers {
		y := panelTop + row*(panelHeight+gapY)
		fmt.Fprintf(&out, "<text x=\"8\" y=\"%d\" fill=\"#222222\">%.0f</text>\n", y+panelHeight/2, n)
		fmt.Fprintf(&out, "<text x=\"8\" y=\"%d\" fill=\"#222222\">schedulers</text>\n", y+panelHeight/2+16)
		for column := range columns {
			panel(&out, conflicts, n, column, panelLeft+column*(panelWidth+gapX), y)
		}
	}
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// panel draws one figure for one number of schedulers.
func panel(out *bytes.Buffer, conflicts map[string][]conflict, schedulers float64, column, left, top int) {
	c := columns[column]
	fmt.Fprintf(out, "<text x=\"%d\" y=\"%d\" fill=\"#222222\">%s</text>\n", left, top-8, html.EscapeString(c.title))
	fmt.Fprintf(out, "<path d=\"M%d %d v%d h%d\" fill=\"none\" stroke=\"#888888\"/>\n", left, top, panelHeight,
		panelWidth)
	fmt.Fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"#555555\">%.0f %s</text>\n", left-4, top+10,
		c.max, c.unit)
	fmt.Fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"#555555\">0</text>\n", left-4, top+panelHeight)
	fmt.Fprintf(out, "<text x=\"%d\" y=\"%d\" fill=\"#555555\">50%% full</text>\n", left, top+panelHeight+15)
	fmt.Fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"#555555\">98%%</text>\n", left+panelWidth,
		top+panelHeight+15)
	for _, w := range ways {
		var points []string
		for _, one := range conflicts[w.name] {
			if one["schedulers"] != schedulers {
				continue
			}
			x := float64(left) + panelWidth*(one["fill"]-50)/48
			y := float64(top) + panelHeight*(1-min(c.of(one)/c.max, 1))
			points = append(points, fmt.Sprintf("%.1f,%.1f", x, y))
		}
		fmt.Fprintf(out, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2.5\"/>\n",
			strings.Join(points, " "), w.color)
	}
}
