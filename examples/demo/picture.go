package main

import (
	"bytes"
	_ "embed" // result.html
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"strings"
)

// The files of a folder of documents that are made from a recording.
const (
	recordingFile = "demo.json"
	resultFile    = "demo.html"
	pictureFile   = "pictures/demo.svg"
)

//go:embed result.html
var resultTemplate string

// Measures of the picture.
const (
	pictureWide, pictureHigh = 940, 470
	sideWide                 = 440
	nodesInRow               = 25
	columnWide               = 17
	podHigh                  = 9
	podsAbove                = 4 // that do not fit are drawn, of a node
	mapsTop                  = 112
	chartTop                 = 345
	chartHigh                = 70
)

// pictureStyle has the colors, which follow the reader's theme.
const pictureStyle = `
.back{fill:#fff}.t{fill:#1c2430;font:14px system-ui,sans-serif}.soft{fill:#5b6675;font-size:12px}.b{font-weight:600}
.h{font-size:18px;font-weight:600}
.room{fill:#eef1f5}.s0{fill:#2f6fb0}.s1{fill:#b5730a}.s2{fill:#2f855a}.over{stroke:#c1121f;stroke-width:1.5}
.line{stroke:#b9c1cc}.red{stroke:#c1121f;stroke-width:2.5}.run{fill:none;stroke:#c1121f;stroke-width:2}
@media(prefers-color-scheme:dark){.back{fill:#14181f}.t{fill:#e6eaf0}.soft{fill:#a3adba}.room{fill:#232a34}
.s0{fill:#6aa9e9}.s1{fill:#e3a53c}
.s2{fill:#5cc08d}.over,.red,.run{stroke:#ff6b6b}.line{stroke:#4a5462}}
`

// writeResult makes the page and the picture of a folder from its recording.
func writeResult(folder string) error {
	r, err := loadRecording(filepath.Join(folder, recordingFile))
	if err != nil {
		return err
	}
	files, err := r.files()
	if err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func loadRecording(file string) (r recording, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return r, fmt.Errorf("read what happened: %w; `demo --once --record %s` writes it", err, file)
	}
	if err := json.Unmarshal(content, &r); err != nil {
		return r, fmt.Errorf("read what happened in %s: %w", file, err)
	}
	if now := newRecording(); len(r.Runs) != 2 || r.Nodes != now.Nodes || r.NodeCPUs != now.NodeCPUs ||
		r.PodCPUs != now.PodCPUs {
		return r, errors.New(file + " is not of two runs of this demo: record it again")
	}
	return r, nil
}

// files are the page and the picture, by their names in the folder of the documents.
func (r recording) files() (map[string][]byte, error) {
	page, err := template.New("result").Parse(resultTemplate)
	if err != nil {
		return nil, err
	}
	picture := r.picture()
	var made bytes.Buffer
	err = page.Execute(&made, map[string]any{
		"Picture": template.HTML(picture), "Rows": rows(r.Runs[0].Result, r.Runs[1].Result)[1:],
		"Labels": []string{r.Runs[0].Result.Label, r.Runs[1].Result.Label}, "Explain": explain(r.Runs[0].Result),
	})
	if err != nil {
		return nil, err
	}
	return map[string][]byte{resultFile: made.Bytes(), pictureFile: []byte(picture)}, nil
}

// drawing is a picture that is being made.
type drawing struct{ strings.Builder }

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

func (d *drawing) text(x, y int, class, text string) {
	d.add(`<text class="t %s" x="%d" y="%d">%s</text>`, class, x, y, template.HTMLEscapeString(text))
}

// picture draws every node at the end of both runs, and how many were overcommitted at each moment.
func (r recording) picture() string {
	d := &drawing{}
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="demo-title demo-text">`,
		pictureWide, pictureHigh)
	title := fmt.Sprintf("Three schedulers race for %d nodes: %d pods, capacity for %d", nodeCount,
		r.Runs[0].Result.Wanted, podsThatFit)
	d.add(`<title id="demo-title">%s</title>`, title)
	d.add(`<desc id="demo-text">%s. %s.</desc>`, strings.Join(r.Runs[0].words(), ", "),
		strings.Join(r.Runs[1].words(), ", "))
	d.add(`<style>%s</style><rect class="back" width="%d" height="%d"/>`, pictureStyle, pictureWide, pictureHigh)
	d.text(20, 32, "h", title)
	last := int64(1)
	for _, run := range r.Runs {
		if len(run.Binds) > 0 {
			last = max(last, run.Binds[len(run.Binds)-1].At)
		}
	}
	last += last / 10 // so that the end can be seen
	most := max(r.Runs[0].Result.Overcommitted, r.Runs[1].Result.Overcommitted, 1)
	for i, run := range r.Runs {
		left := 20 + i*(sideWide+20)
		words := run.words()
		d.text(left, 62, "b", words[0])
		d.text(left, 82, "", words[1]+", "+words[2])
		d.text(left, 100, "", words[3])
		d.nodes(left, run.nodesAt(last))
		d.chart(left, run, last, most)
	}
	for i, name := range r.Schedulers {
		d.add(`<rect class="s%d" x="%d" y="%d" width="10" height="10"/>`, i, 20+i*150, pictureHigh-20)
		d.text(36+i*150, pictureHigh-11, "soft", name)
	}
	d.text(480, pictureHigh-11, "soft",
		fmt.Sprintf("a column is a node of %d CPUs; above its line, pods of %d CPUs that do not fit", nodeCPUs, podCPUs))
	d.add(`</svg>`)
	return d.String()
}

// words say what became of a run.
func (r run) words() []string {
	x := r.Result
	return []string{
		x.Label, fmt.Sprintf("%d of %d nodes overcommitted", x.Overcommitted, nodeCount),
		fmt.Sprintf("%d pods die with OutOfcpu", x.Refused),
		fmt.Sprintf("gangs: %d whole, %d half, %d wait", x.GangsWhole, x.GangsHalf, x.Gangs-x.GangsWhole-x.GangsHalf),
	}
}

// nodes draws every node as a column of its pods.
func (d *drawing) nodes(left int, nodes [][]int) {
	const fit, rowHigh = nodeCPUs / podCPUs, (nodeCPUs/podCPUs+podsAbove)*podHigh + 28
	for i, pods := range nodes {
		x, bottom := left+i%nodesInRow*columnWide, mapsTop+(i/nodesInRow+1)*rowHigh-10
		full := bottom - fit*podHigh
		d.add(`<rect class="room" x="%d" y="%d" width="%d" height="%d"/>`, x+2, full, columnWide-4, fit*podHigh)
		for at, scheduler := range pods[:min(len(pods), fit+podsAbove)] {
			class := ""
			if at >= fit {
				class = " over"
			}
			d.add(`<rect class="s%d%s" x="%d" y="%d" width="%d" height="%d"/>`, scheduler, class, x+3, bottom-(at+1)*podHigh+1,
				columnWide-6, podHigh-2)
		}
		line := "line"
		if len(pods) > fit {
			line = "red"
		}
		d.add(`<path class="%s" d="M%d %dh%d"/>`, line, x+1, full, columnWide-2)
	}
}

// chart draws how many nodes were overcommitted at each moment.
func (d *drawing) chart(left int, r run, last int64, most int) {
	bottom := chartTop + chartHigh
	right := left + sideWide - 20
	d.text(left, chartTop-8, "soft", "overcommitted nodes")
	d.add(`<path class="line" d="M%d %dH%d"/>`, left, bottom, right)
	path, before := fmt.Sprintf("M%d %d", left, bottom), 0
	for _, b := range r.Binds {
		over := overcommitted(r.nodesAt(b.At))
		if over == before {
			continue
		}
		before = over
		path += fmt.Sprintf("H%dV%d", left+int(b.At*int64(right-left)/last), bottom-over*chartHigh/most)
	}
	d.add(`<path class="run" d="%sH%d"/>`, path, right)
	d.text(left, bottom+16, "soft", "0 s")
	d.text(right-30, bottom+16, "soft", fmt.Sprintf("%.1f s", float64(last)/1000))
	d.text(right+4, bottom-before*chartHigh/most+5, "b", fmt.Sprint(before))
}
