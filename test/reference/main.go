// Package main is reference, which writes the pages of docs/reference that are made of the code: flags, commands,
// metrics, alerts and the REST API. `make generate` runs it, and `make verify` fails where a page is not what it would
// write.
//
// Usage: reference FOLDER
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const note = "<!-- Written by `make generate`: do not change it by hand. -->\n\n"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: reference FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func write(folder string) error {
	// Defaults of flags name the folder of whoever runs this.
	if err := os.Setenv("HOME", "$HOME"); err != nil {
		return err
	}
	for name, page := range map[string]func() (string, error){
		"flags.md":           serverPage,
		"kubectl-reserve.md": pluginPage,
		"metrics.md":         metricsPage,
		"alerts.md":          alertsPage,
		"rest.md":            restPage,
	} {
		text, err := page()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(note+strings.TrimSpace(text)+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// cell makes a text one that a table can have.
func cell(text string) string {
	return strings.NewReplacer("\n", " ", "|", `\|`, "<", "&lt;").Replace(strings.TrimSpace(text))
}

// row is one of a table.
func row(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |\n" }

// table begins one.
func table(columns ...string) string {
	return row(columns...) + "|" + strings.Repeat("---|", len(columns)) + "\n"
}
