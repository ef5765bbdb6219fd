//go:build e2e

package demo

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// block is one piece of commands of a document, as it is written there.
type block struct {
	document string
	commands []string // one for each line that is typed, with the lines that it goes on in
}

// begins is how a line begins that somebody types.
var begins = regexp.MustCompile(
	`^((kubectl|make|curl|openssl|printf|sed|go|for|docker|git|bash|npm|python3|kube-scheduler|kind|helm|globalreserve|kubeadm|install|mkdir|cp|\$EDITOR|(\.\./\.\./)?bin/\S+)\s|[A-Z]+=)`)

// inLine is a command within a sentence that looks at something: it can be typed at any time.
var inLine = regexp.MustCompile(
	"`(kubectl (?:-n \\S+ )?(?:get|describe|explain|auth|logs|reserve (?:describe|nodes|explain|devices|gangs|list)) [^`\n]+)`")

// blocksOf are the pieces of a document that have commands: of what is indented, or fenced, the lines that begin like
// one. In a piece with dollar signs the lines without one are what is printed. Last are those within sentences, but of
// examples, which speak of what has been deleted by then.
func blocksOf(document, text string) (all []block) {
	defer func() {
		if strings.HasPrefix(document, "examples/") {
			return
		}
		for _, m := range inLine.FindAllStringSubmatch(text, -1) {
			all = append(all, block{document: document, commands: []string{m[1]}})
		}
	}()
	for _, piece := range pieces(text) {
		dollars := strings.HasPrefix(piece[0], "$ ")
		b := block{document: document}
		for _, line := range piece {
			command, typed := strings.CutPrefix(line, "$ ")
			if last := len(b.commands) - 1; last >= 0 && unfinished(b.commands[last]) {
				b.commands[last] += "\n" + line
			} else if typed || (!dollars && begins.MatchString(line)) {
				b.commands = append(b.commands, command)
			}
		}
		if len(b.commands) > 0 {
			all = append(all, b)
		}
	}
	return all
}

// unfinished reports whether a shell waits for more: a backslash, a quote, a here document, a loop.
func unfinished(command string) bool {
	if strings.HasSuffix(command, "\\") || strings.Count(command, "'")%2 == 1 || strings.Count(command, `"`)%2 == 1 {
		return true
	}
	return strings.Contains(command, "<<EOF") && !strings.HasSuffix(command, "\nEOF") ||
		strings.HasPrefix(command, "for ") && !strings.HasSuffix(command, "\ndone")
}

// pieces are the indented and the fenced pieces of a text, without their indentation.
func pieces(text string) (all [][]string) {
	var piece []string
	fenced, skipped, indent, blank := false, false, 0, true
	end := func() {
		for len(piece) > 0 && piece[len(piece)-1] == "" {
			piece = piece[:len(piece)-1]
		}
		if len(piece) > 0 {
			all = append(all, piece)
		}
		piece = nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		here := len(line) - len(strings.TrimLeft(line, " "))
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			end()
			language := strings.TrimLeft(strings.TrimSpace(line), "`")
			skipped, fenced, indent = !fenced && language != "" && language != "sh", !fenced, here
		case skipped && fenced: // another language
		case line == "" && (fenced || len(piece) > 0):
			piece = append(piece, "")
		case fenced, len(piece) > 0 && here >= indent:
			piece = append(piece, line[min(indent, here):])
		case here >= 4 && blank:
			end()
			piece, indent = []string{line[here:]}, here
		default:
			end()
		}
		blank = line == ""
	}
	end()
	return all
}

// notRun says why commands of documents are not run here: those of a document that begin so, or contain it after a
// star. Whoever writes a command that cannot be run adds it, with the reason.
var notRun = []struct{ document, command, why string }{
	{
		"", "make ",
		"what the Makefile builds and starts is what the tests are run with; targets are looked for by docs/names_test.go",
	},
	{"", "kind ", "there is no docker, and no cluster of kind"},
	{"", "docker ", "there is no docker"},
	{"", "helm ", "charts are installed by the tests of the chart"},
	{"", "go run ", "it runs until it is stopped; test/e2e/demo and test/e2e/schedulers run the programs"},
	{"", "go get ", "it changes a module"},
	{"", "go mod ", "it changes the module of a scheduler that the reader has; test/e2e/schedulers has one"},
	{"", "kubeadm ", "no node is made by kubeadm; test/e2e/install runs the static pod with a kubeconfig of its user"},
	{"", "install -o ", "see kubeadm"},
	{"", "mkdir -p /etc/", "see kubeadm"},
	{"manifests/README.md", "*/etc/kubernetes/", "see kubeadm"},
	{"manifests/README.md", "curl 'http://127.0.0.1:23459", "see kubeadm"},
	{"", "*hack/kind-up.sh", "there is no docker, and no cluster of kind"},
	{"", "kubectl krew ", "krew reads an index of published releases"},
	{"", "go tool ", "it looks at profiles of a server that somebody runs; pkg/app asks for them"},
	{"", "globalreserve --", "a server runs until it is stopped; tests start it with its flags"},
	{"", "*127.0.0.1:23461", "a server's port for profiles"},
	{"", "*> /etc/", "a file of a host"},
	{"examples/python/README.md", "", "the program runs until it is stopped; test/e2e runs it"},
	{"", "kube-scheduler ", "the configuration needs the kubeconfig of a host; test/e2e/schedulers runs all of them"},
	{"", "bin/globalreserve-scheduler ", "the same, by test/e2e/plugin"},
	{"", "kubectl reserve ui", "it serves until it is stopped; test/e2e/ui and pkg/kubectl"},
	{"", "*--ledger-certificate-authority", "a port forwarded by a kubelet; test/e2e/kubectl has one"},
	{"", "*port-forward", "there are no kubelets"},
	{
		"manifests/README.md", "kubectl apply -k manifests/static-pod",
		"it would take the rights of the server that runs here; test/e2e/install applies the files",
	},
	{"manifests/README.md", "kubectl apply -k manifests/cert-manager", "the other way to the certificate above"},
	{
		"manifests/admission/README.md", "kubectl apply -k manifests/admission/cert-manager",
		"there is no cert-manager that makes certificates; test/e2e/install applies the files",
	},
	{"docs/runbooks/", "*logs ", "there are no kubelets; docs/names_test.go looks for what is searched for"},
	{"", "curl --cacert", "it goes through the forwarded port of the line before"},
	{"manifests/README.md", "bin/globalreserve --observe", "it runs until it is stopped; test/e2e TestObserve"},
	{"manifests/README.md", "curl ", "of that server"},
	{
		"manifests/admission/README.md", "openssl ",
		"test/e2e/admission runs these and the next ones as they are written; the API server there calls a webhook at a URL",
	},
	{"manifests/admission/README.md", "printf ", "see openssl"},
	{"manifests/admission/README.md", "*--from-file=tls.crt", "see openssl"},
	{"manifests/admission/README.md", "CLIENT=", "see openssl"},
	{"manifests/admission/README.md", "kubectl patch --local ", "see openssl"},
	{
		"examples/extended-resources/README.md", "",
		"test/e2e/devices runs those with a dollar sign as they are written, and compares what is printed; the others " +
			"start a scheduler",
	},
	{"examples/dra/README.md", "", "test/e2e/dra does, with two schedulers that are not behind the server"},
	{"scheduler-config/README.md", "CONF=", "the files of a host made by kubeadm, as the next two"},
	{"scheduler-config/README.md", "kubectl config view", "see CONF"},
	{
		"scheduler-config/README.md", "kubectl certificate",
		"nothing signs certificates here; test/e2e/callers has a certificate of the cluster's authority",
	},
	{"scheduler-config/README.md", "kubectl wait", "see kubectl certificate"},
	{"scheduler-config/README.md", "kubectl get csr", "see kubectl certificate"},
	{
		"docs/drain.md", "kubectl reserve drain",
		"nothing makes the pods of the documents before again, so they stay; test/e2e/drain drains nodes",
	},
	{"docs/integrations/", "*https://", "the schedulers of others are on the network"},
	{"docs/integrations/", "go test ", "it is what `make e2e` runs"},
}

// why returns why a command is not run; "" where it is.
func why(document, command string, used map[int]bool) string {
	for i, rule := range notRun {
		matches := strings.HasPrefix(command, rule.command)
		if within, anywhere := strings.CutPrefix(rule.command, "*"); anywhere {
			matches = strings.Contains(command, within)
		}
		if matches && strings.HasPrefix(document, rule.document) {
			used[i] = true
			return rule.why
		}
	}
	return ""
}

// placeholders are the words that stand for a name that the reader has.
var placeholders = regexp.MustCompile(`(^|[\s=])(POD|NODE|NAME|KIND)(\s|$)`)

// runDocuments types the commands of all documents, on the cluster of a program, and fails where one does. They are
// typed in the order of the documents, as a reader would who begins at the README.
func (p *program) runDocuments(t *testing.T) {
	var blocks []block
	root := testbed.File(t)
	for _, document := range order(t, root) {
		content, err := os.ReadFile(filepath.Join(root, document))
		require.NoError(t, err)
		blocks = append(blocks, blocksOf(document, string(content))...)
	}
	desk := newDesk(t, p, root)
	used, run, left := map[int]bool{}, 0, 0
	for _, b := range blocks {
		var script []string
		for _, command := range b.commands {
			if why(b.document, command, used) != "" {
				left++
				continue
			}
			script = append(script, placeholders.ReplaceAllStringFunc(command, func(word string) string {
				return strings.NewReplacer("POD", "seen", "NODE", "node-0", "NAME", "seen", "KIND", "pods").Replace(word)
			}))
			run++
		}
		desk.run(b.document, script)
	}
	for i, rule := range notRun {
		assert.True(t, used[i] || rule.document == "", "no document has a command %q of %s any more", rule.command,
			rule.document)
	}
	assert.Greater(t, run, 100)
	t.Logf("%d commands of documents were run, %d are not run here", run, left)
}

// order are the documents, those first whose commands want an empty cluster, and last the one that removes everything.
func order(t *testing.T, root string) (all []string) {
	require.NoError(t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && slices.Contains([]string{"node_modules", "bin", ".git", "reference"},
			entry.Name()) {
			return filepath.SkipDir
		}
		if strings.HasSuffix(name, ".md") {
			name, _ = filepath.Rel(root, name)
			all = append(all, filepath.ToSlash(name))
		}
		return err
	}))
	rank := func(document string) int {
		ranked := []string{"examples/reservations/README.md", "README.md", "manifests/README.md"}
		if at := slices.Index(ranked, document); at >= 0 {
			return at
		}
		switch {
		case document == "docs/remove.md":
			return len(ranked) + 2
		case strings.HasPrefix(document, "docs/integrations/"): // they keep most of what there is
			return len(ranked) + 1
		default:
			return len(ranked)
		}
	}
	slices.SortStableFunc(all, func(a, b string) int { return rank(a) - rank(b) })
	return all
}

// desk is where commands are typed: a folder with what the repository has that they name, and a shell's environment.
type desk struct {
	t           *testing.T
	folder      string
	environment []string
	variables   map[string][]string // that were set, by document
}

func newDesk(t *testing.T, p *program, root string) *desk {
	d := &desk{t: t, folder: t.TempDir(), variables: map[string][]string{}}
	for _, name := range []string{"manifests", "scheduler-config", "docs"} {
		require.NoError(t, os.Symlink(filepath.Join(root, name), filepath.Join(d.folder, name)))
	}
	require.NoError(t, os.CopyFS(filepath.Join(d.folder, "examples"), os.DirFS(filepath.Join(root, "examples"))))
	exports := map[string]string{}
	for _, line := range p.commands()[:3] {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		value, _, _ = strings.Cut(value, "  #")
		exports[name] = strings.TrimSpace(value)
	}
	url := exports["URL"]
	require.NotEmpty(t, url)
	// What the documents leave to the reader: to say where the server is.
	bin := filepath.Join(d.folder, "bin")
	require.NoError(t, os.Mkdir(bin, 0o700))
	built := filepath.Join(root, "bin")
	for name, script := range map[string]string{
		"kubectl-reserve": `exec '` + built + `/kubectl-reserve' "$@" --ledger-url ` + url,
		"globalreserve": `if [ "$1" = debug ]; then exec '` + built + `/globalreserve' "$@" --server ` + url +
			`; fi; exec '` + built + `/globalreserve' "$@"`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/bash\n"+script+"\n"), 0o700))
	}
	d.environment = append(os.Environ(), "KUBECONFIG="+exports["KUBECONFIG"], "URL="+url, "EDITOR=true", "HOME="+d.folder,
		"PATH="+strings.Join([]string{bin, filepath.Join(built, "controlplane"), os.Getenv("PATH")},
			string(os.PathListSeparator)))
	require.NoError(t, os.WriteFile(filepath.Join(d.folder, "foreign.yaml"), testbed.ForeignDefinitions(), 0o600))
	d.run("the reader", []string{
		"kubectl delete deployments,pods,reservations --all",
		"kubectl create namespace team-a", "kubectl create namespace batch",
		"kubectl label nodes --all kubernetes.io/os=linux", // as kubelets do
		"kubectl run seen --image=none --restart=Never", "kubectl run my-pod --image=none --restart=Never",
		"kubectl run worker-0 --image=none --restart=Never",
		"kubectl run rank-0 --image=none --restart=Never",
		"kubectl reserve create seen --cpu 1000", "kubectl apply -f foreign.yaml",
		"kubectl wait --for=condition=Established -f foreign.yaml",
	})
	return d
}

// run types commands one after the other in one shell of the folder of a document.
func (d *desk) run(document string, commands []string) {
	for _, command := range commands {
		folder := d.folder
		if strings.HasPrefix(document, "examples/") && !strings.Contains(command, " examples/") {
			folder = filepath.Join(d.folder, filepath.Dir(document))
		}
		if sets.MatchString(command) {
			d.variables[document] = append(d.variables[document], command)
			continue
		}
		script := strings.Join(append(slices.Clone(d.variables[document]), command), "\n")
		var output []byte
		done := func() (err error) {
			output, err = d.shell(folder, command, script)
			return err
		}
		if looks.MatchString(command) { // what the one before began may take a while
			assert.EventuallyWithT(d.t, func(t *assert.CollectT) { assert.NoError(t, done(), command) }, testbed.Soon,
				testbed.Poll)
		} else {
			assert.NoError(d.t, done(), command)
		}
		d.t.Logf("%s\n$ %s\n%s", document, command, bytes.TrimSpace(output))
		if d.t.Failed() {
			d.t.FailNow()
		}
	}
}

var (
	// looks is a command that changes nothing.
	looks = regexp.MustCompile(
		`^(kubectl (-n \S+ )?(get|describe|wait|auth|explain|reserve (describe|nodes|explain|devices|gangs|list))|curl)`,
	)
	// sets is one that sets a variable, which the next ones of the document know.
	sets = regexp.MustCompile(`^[A-Z]+=(\S*|\$\(.*\))$`)
)

func (d *desk) shell(folder, command, script string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(d.t.Context(), testbed.Soon)
	defer cancel()
	process := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	process.Dir, process.Env = folder, d.environment
	output, err := process.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 &&
		strings.HasPrefix(command, "kubectl diff ") {
		err = nil // there are differences
	}
	return output, err
}
