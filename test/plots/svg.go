package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
)

const (
	left, right = 330, 110 // margins, in which the labels and the numbers are
	width       = 900
	step        = 34 // from bar to bar
	top         = 52
)

// svg draws a plot. Where the values are far apart the axis is logarithmic.
func (p *plot) svg() []byte {
	low, high := math.Inf(1), p.goal
	for _, b := range p.bars {
		low, high = min(low, b.value), max(high, b.value)
	}
	logarithmic := high > 50*low
	x := func(value float64) float64 {
		if logarithmic {
			floor := math.Floor(math.Log10(low)) - 0.5
			return (width - left - right) * (math.Log10(value) - floor) / (math.Log10(high) - floor)
		}
		return (width - left - right) * value / high
	}
	title := p.title
	if logarithmic {
		title += " (logarithmic)"
	}
	height := top + step*len(p.bars) + 26
	var out bytes.Buffer
	fmt.Fprintf(&out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"14\">\n",
		width, height)
	fmt.Fprintf(&out, "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", width, height)
	fmt.Fprintf(&out, "<text x=\"16\" y=\"28\" font-size=\"17\" fill=\"#222222\">%s</text>\n", html.EscapeString(title))
	for i, b := range p.bars {
		y := top + step*i
		fmt.Fprintf(&out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"#222222\">%s</text>\n", left-10, y+16,
			html.EscapeString(b.label))
		fmt.Fprintf(&out, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"22\" fill=\"#3b6ea5\"/>\n", left, y, x(b.value))
		fmt.Fprintf(&out, "<text x=\"%.1f\" y=\"%d\" fill=\"#222222\">%s %s</text>\n", left+x(b.value)+6, y+16,
			amount(b.value), html.EscapeString(p.unit))
	}
	if p.goal > 0 {
		at := left + x(p.goal)
		fmt.Fprintf(&out, "<path d=\"M%.1f %d V%d\" stroke=\"#b03030\" stroke-dasharray=\"5 4\"/>\n", at, top-8, height-20)
		fmt.Fprintf(&out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#b03030\">%s: at most %s %s</text>\n",
			min(at, width-110), height-6, "goal for 30,000 nodes", amount(p.goal), html.EscapeString(p.unit))
	}
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// amount writes a number with two or three digits that say something.
func amount(value float64) string {
	switch {
	case value >= 1e6:
		return fmt.Sprintf("%.2g million", value/1e6)
	case value >= 100:
		return fmt.Sprintf("%.0f", value)
	default:
		return fmt.Sprintf("%.2g", value)
	}
}
