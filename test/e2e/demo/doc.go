// Package demo runs what `make cluster` and `make demo` run, as a person does: it waits for what they print, types the
// commands that they name as they are printed, and presses Ctrl-C.
package demo
