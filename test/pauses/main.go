// Package main is pauses, which makes the goroutines of tests stand still now and then: wherever one takes or leaves a
// lock, or sends to, receives from or selects among channels. Two steps that only seem to be one are taken apart by
// that within seconds, where a test alone may show it once in thousands of runs. It writes an overlay of the standard
// library for `make pauses`, of the Go that runs it; nothing but tests may be built with that.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// point is added to the runtime. Some pauses are long, as on a machine that has other things to do, and most are short.
// They take no processor, and in a bubble of testing/synctest no time. The runtime's own work is left alone.
const point = `package runtime

import _ "unsafe"

//go:linkname pausePoint
func pausePoint() {
	if !mainStarted {
		return
	}
	gp := getg()
	if gp == gp.m.g0 || gp == gp.m.gsignal || gp.m.locks != 0 || gp.m.mallocing != 0 {
		return
	}
	switch r := cheaprandn(20000); {
	case r == 0:
		usleep(100000)
	case r < 60:
		usleep(1000 + cheaprandn(4000))
	case r < 400:
		usleep(cheaprandn(200))
	}
}
`

// declaration lets package sync call it.
const declaration = `
//go:linkname pausePoint runtime.pausePoint
func pausePoint()
`

// paused are the functions that pause, by the file of the standard library: at their beginning, or with defer at their
// end.
var paused = map[string][]struct{ function, call string }{
	"sync/mutex.go": {
		{"func (m *Mutex) Lock() {", "pausePoint()"},
		{"func (m *Mutex) Unlock() {", "defer pausePoint()"},
	},
	"sync/rwmutex.go": {
		{"func (rw *RWMutex) Lock() {", "pausePoint()"},
		{"func (rw *RWMutex) Unlock() {", "defer pausePoint()"},
		{"func (rw *RWMutex) RLock() {", "pausePoint()"},
		{"func (rw *RWMutex) RUnlock() {", "defer pausePoint()"},
	},
	"runtime/chan.go": {
		{"func chansend1(", "pausePoint()"},
		{"func chanrecv1(", "pausePoint()"},
		{"func chanrecv2(", "pausePoint()"},
	},
	"runtime/select.go": {
		{"func selectgo(", "pausePoint()"},
	},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pauses: "+err.Error())
		os.Exit(1)
	}
}

// run writes the overlay to a directory.
func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: pauses DIRECTORY, which is to have overlay.json")
	}
	dir, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	root, err := exec.CommandContext(context.Background(), "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("find the standard library: %w", err)
	}
	library := filepath.Join(strings.TrimSpace(string(root)), "src")
	files := map[string]string{"runtime/pausepoint.go": point}
	for file := range paused {
		source, err := os.ReadFile(filepath.Join(library, file))
		if err != nil {
			return err
		}
		if files[file], err = withPauses(file, string(source)); err != nil {
			return err
		}
	}
	return write(dir, library, files)
}

// write writes files, and the overlay that puts them in the place of the library's.
func write(dir, library string, files map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	replace := map[string]string{}
	for file, content := range files {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(to, []byte(content), 0o600); err != nil {
			return err
		}
		replace[filepath.Join(library, file)] = to
	}
	overlay, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600)
}

// withPauses returns a file in which its functions pause.
func withPauses(file, source string) (string, error) {
	for _, p := range paused[file] {
		before, after, found := strings.Cut(source, "\n"+p.function)
		rest, body, open := strings.Cut(after, "\n")
		if !found || !open {
			return "", fmt.Errorf("%s of this Go has no %q: see what it has instead", file, p.function)
		}
		source = before + "\n" + p.function + rest + "\n\t" + p.call + "\n" + body
	}
	if file == "sync/mutex.go" {
		before, after, found := strings.Cut(source, "\nimport (\n")
		if !found {
			return "", fmt.Errorf("%s of this Go has no imports", file)
		}
		source = before + "\nimport (\n\t_ \"unsafe\"\n" + after + declaration
	}
	return source, nil
}
