// Package main is failures, which prints, of files that `go test -json` wrote, what the failed tests say, without the
// logs of the servers they ran: the end of a long run is what is read first. `make test` runs it where something
// failed.
//
//	go run ./test/failures bin/test/*.json
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// shownLines is how much is shown of one test.
const shownLines = 40

// event is one of those of `go doc test2json`.
type event struct{ Action, Package, Test, Output string }

func main() {
	for _, name := range os.Args[1:] {
		file, err := os.Open(name)
		if err == nil {
			err = report(os.Stdout, file)
			_ = file.Close() // it was only read
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "failures: %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

// report writes what the failed tests of one file say, in the order in which they failed.
func report(w io.Writer, file io.Reader) error {
	said := map[[2]string][]string{}
	events := json.NewDecoder(file)
	for {
		var e event
		switch err := events.Decode(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		key := [2]string{e.Package, e.Test}
		switch {
		case e.Action == "output" && !isLog(e.Output):
			said[key] = append(said[key], e.Output)
		case e.Action == "fail":
			lines := said[key]
			fmt.Fprintf(w, "--- %s %s\n%s", e.Package, e.Test, strings.Join(lines[:min(len(lines), shownLines)], ""))
		}
	}
}

// isLog reports whether a line is of a server's log, or of the test runner's own.
func isLog(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "time=") || slices.Contains([]string{"===", "---"}, line[:min(len(line), 3)])
}
