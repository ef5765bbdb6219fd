// Package main is planted, which makes mistakes in the servers on purpose, each alone, and has simulated clusters find
// them. It writes the table of docs/testing.md, and fails where a mistake is not found. Arguments are the names of
// patches: what these are found by is only printed.
//
// What may be touched: each patch in this folder is a mistake, whose first line says what it is. The sources stay as
// they are: a patch is applied to copies of them.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

// A mistake has to be found in so many clusters, of so many steps each.
const (
	seeds = 20
	steps = 1000
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// page is where the table is, below heading.
const (
	page    = "../../../docs/testing.md"
	heading = "| mistake | found by seed | after steps | as |\n|---|---|---|---|\n"
)

func run(out io.Writer, only []string) error {
	patches, err := mistakes(".", only)
	if err != nil {
		return err
	}
	rows, group := make([]string, len(patches)), errgroup.Group{}
	group.SetLimit(2)
	for i, p := range patches {
		group.Go(func() error {
			row, err := p.try()
			if err != nil {
				return fmt.Errorf("%s: %w", p.file, err)
			}
			rows[i] = fmt.Sprintf("| %s | %s |\n", p.what, cmp.Or(row, "not found | |"))
			fmt.Fprint(out, rows[i])
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	var missed []string
	for i, row := range rows {
		if strings.Contains(row, "not found | |") {
			missed = append(missed, patches[i].file)
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("not found in %d steps: %s", seeds*steps, strings.Join(missed, ", "))
	}
	if len(only) > 0 {
		return nil
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	written, err := replaceTable(string(text), strings.Join(rows, ""))
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(written), 0o644) //nolint:gosec // everybody may read it
}

// replaceTable returns a page with another table.
func replaceTable(text, table string) (string, error) {
	before, after, ok := strings.Cut(text, heading)
	_, rest, ended := strings.Cut(after, "\n\n")
	if !ok || !ended {
		return "", fmt.Errorf("%s has no table that begins with %q", page, heading)
	}
	return before + heading + table + "\n" + rest, nil
}

// mistake is one patch.
type mistake struct {
	file, what string
	sources    []string // that it changes, from the root of the repository
}

// touched matches the line of a patch that names a file.
var touched = regexp.MustCompile(`(?m)^--- a/(\S+)`)

// mistakes reads the patches of a folder.
func mistakes(folder string, only []string) ([]*mistake, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.patch"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no patches in %s: %w", folder, errors.Join(err, os.ErrNotExist))
	}
	var list []*mistake
	if len(only) > 0 {
		all := files
		files = nil
		for _, name := range only {
			file := filepath.Join(folder, strings.TrimSuffix(name, ".patch")+".patch")
			if !slices.Contains(all, file) {
				return nil, fmt.Errorf("there is no patch %s: there are %s", file, strings.Join(all, ", "))
			}
			files = append(files, file)
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		what, _, _ := strings.Cut(string(text), "\n")
		m := &mistake{file: file, what: what}
		for _, match := range touched.FindAllStringSubmatch(string(text), -1) {
			m.sources = append(m.sources, match[1])
		}
		list = append(list, m)
	}
	return list, nil
}

// apply writes the sources with the mistake into a folder, and returns what go build is to read instead of what.
func (m *mistake) apply(folder string) (map[string]string, error) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		return nil, err
	}
	replace := map[string]string{}
	for _, source := range m.sources {
		text, err := os.ReadFile(filepath.Join(root, source))
		if err != nil {
			return nil, err
		}
		to := filepath.Join(folder, source)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return nil, err
		}
		replace[filepath.Join(root, source)] = to
	}
	patch, err := filepath.Abs(m.file)
	if err != nil {
		return nil, err
	}
	command := exec.Command("git", "apply", patch)
	command.Dir = folder
	if said, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("it does not apply any more, make it anew: %s", said)
	}
	return replace, nil
}

// try has clusters find the mistake, and returns what found it: "" for nothing.
func (m *mistake) try() (row string, err error) {
	folder, err := os.MkdirTemp("", "planted-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	replace, err := m.apply(folder)
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(folder, "overlay.json"), overlay, 0o600); err != nil {
		return "", err
	}
	binary := filepath.Join(folder, "sim.test")
	build := exec.Command("go", "test", "-c", "-overlay", filepath.Join(folder, "overlay.json"), "-o", binary, "..")
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not compile: %s", said)
	}
	for seed := 1; seed <= seeds; seed++ {
		run := exec.Command(binary, "-test.run", "TestSeeds", "-test.v", "-test.timeout", "10m")
		run.Dir = ".."
		run.Env = append(os.Environ(), fmt.Sprintf("SEED=%d", seed), "SEEDS=1", fmt.Sprintf("STEPS=%d", steps))
		said, err := run.CombinedOutput()
		if err == nil {
			continue
		}
		match := found.FindStringSubmatch(string(said))
		if died := panicked.FindString(string(said)); match == nil && died != "" {
			match = []string{"", strconv.Itoa(steps), died}
		}
		if match == nil {
			return "", fmt.Errorf("seed %d fails otherwise: %s", seed, said)
		}
		after, _ := strconv.Atoi(match[1])
		return fmt.Sprintf("%d | %d | %s", seed, (seed-1)*steps+after, anonymous(match[2])), nil
	}
	return "", nil
}

// found matches what TestSeeds says of a cluster in which a promise was broken.
var found = regexp.MustCompile(`seed \d+, after (\d+) steps: (.*)`)

// panicked matches what the runtime says of a server that ends by a panic, and the cluster with it.
var panicked = regexp.MustCompile(`(?m)^panic: .*`)

var (
	ids     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)
	details = regexp.MustCompile(`(: (map|the ledger has|pod |\{)| by \[).*`)
)

// anonymous leaves out of a finding what belongs to one run of it.
func anonymous(finding string) string {
	finding = details.ReplaceAllString(ids.ReplaceAllString(finding, "..."), "")
	return strings.ReplaceAll(finding, "|", "/")
}
