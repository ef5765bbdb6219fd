package docs

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/app/command"
	"github.com/globalreserve/globalreserve/pkg/kubectl"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// set has what a pattern finds in texts, by its first group.
func set(pattern string, texts ...string) map[string]bool {
	found := map[string]bool{}
	for _, text := range texts {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			found[m[1]] = true
		}
	}
	return found
}

// otherFlags are those of programs that are not ours, and of the demo and the schedulers of examples.
var otherFlags = map[string]bool{
	"admission-control-config-file": true, "policy-config-file": true, "server": true, // of Kubernetes
	"config": true, "secure-port": true, "leader-elect": true, // of kube-scheduler
	"set": true, "set-file": true, // of helm
	"once": true, "nodes": true, "cpus": true, // of the demo
	"taint": true, "every": true, "responder": true, // of examples/drain and examples/evictions
	"scheduler-name": true, "globalreserve-url": true, "globalreserve-token-file": true, "globalreserve-ca-file": true,
	"feature-gates": true, "runtime-config": true, "subresource": true, "force": true,
	"grace-period":                 true,
	"enable-provisioning-requests": true, // of cluster-autoscaler
	"ignore-not-found":             true, "dry-run": true, "field-selector": true, "target": true,
}

// Flags, metrics, make targets and routes that a document names are there. What there is the generated pages say.
func TestNames(t *testing.T) {
	all := documents(t)
	flags := set("--([a-z][a-z-]+)", all["docs/reference/flags.md"], all["docs/reference/kubectl-reserve.md"])
	maps.Copy(flags, otherFlags)
	metrics := set("`(globalreserve_[a-z_]+)`", all["docs/reference/metrics.md"])
	targets := set(`(?m)^([a-z0-9-]+):`, read(t, "../Makefile"))
	routes := set("### `[A-Z]+ (/[a-z0-9/.-]+)", all["docs/reference/rest.md"])
	checked := 0
	for file, text := range all {
		if strings.HasPrefix(file, "docs/reference/") || file == "CHANGELOG.md" {
			continue
		}
		for _, kind := range []struct {
			pattern string
			there   map[string]bool
		}{
			{"`--([a-z][a-z-]+)", flags},
			{`\b(globalreserve_[a-z_]+[a-z])\b`, metrics},
			{"(?m)(?:`|^    )make ([a-z0-9-]+)", targets},
			{"`(?:GET |POST )?(/v1/[a-z]+(?:/[a-z]+)*)", routes},
		} {
			for name := range set(kind.pattern, text) {
				base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "") // of a metric
				assert.True(t, kind.there[name] || kind.there[base], "%s names %s, found by %s", file, name, kind.pattern)
				checked++
			}
		}
	}
	assert.Greater(t, checked, 200)
}

// Tests that a document names as its evidence are there.
func TestNamesOfTests(t *testing.T) {
	there := map[string]bool{}
	for _, text := range files(t, "_test.go") {
		maps.Copy(there, set(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)`, text))
	}
	for file, text := range documents(t) {
		for name := range set(`\b((?:Test|Fuzz|Benchmark)[A-Z]\w+)`, text) {
			assert.True(t, there[name], "%s names the test %s", file, name)
		}
	}
}

// Every reason that the server gives in an Event, a condition or a refusal is in the reference, and no other.
func TestReasons(t *testing.T) {
	page := read(t, "reference/events.md")
	named := map[string]bool{}
	for cell := range set(`(?m)^\| ([^|]*) \|`, page) {
		for reason := range set("`([A-Z][A-Za-z]+)`", cell) {
			named[reason] = true
		}
	}
	given := map[string]bool{}
	for reason := ledger.NodeUnknown; reason < ledger.NumReasons; reason++ {
		given[reason.String()] = true
	}
	inspectProduct(t, func(node ast.Node) {
		for _, reason := range reasonsIn(node) {
			given[reason] = true
		}
	})
	require.Greater(t, len(given), 40)
	for reason := range given {
		assert.True(t, named[reason], "docs/reference/events.md lacks %s", reason)
	}
	for reason := range named {
		assert.True(t, given[reason] || reason == "Available", "docs/reference/events.md has %s, which nothing gives", reason)
	}
}

// inspectProduct shows all nodes of the syntax of pkg, but for its tests.
func inspectProduct(t *testing.T, look func(ast.Node)) {
	t.Helper()
	for name, text := range files(t, ".go") {
		if !strings.HasPrefix(name, "pkg/") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(node ast.Node) bool {
			look(node)
			return true
		})
	}
}

// reasonsIn are the reasons that a declaration, an assignment or a call names: constants and variables called reason,
// and what is given to those who write Events.
func reasonsIn(node ast.Node) (all []string) {
	add := func(expressions ...ast.Expr) {
		for _, e := range expressions {
			if literal, ok := e.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, _ := strconv.Unquote(literal.Value); regexp.MustCompile(`^[A-Z][A-Za-z]+$`).MatchString(text) {
					all = append(all, text)
				}
			}
		}
	}
	isReason := func(name string) bool { return strings.HasPrefix(strings.ToLower(name), "reason") }
	switch n := node.(type) {
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if isReason(name.Name) && i < len(n.Values) {
				add(n.Values[i])
			}
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			if name, ok := left.(*ast.Ident); ok && isReason(name.Name) && i < len(n.Rhs) {
				add(n.Rhs[i])
			}
		}
	case *ast.CallExpr:
		place := map[string]int{"Eventf": 3, "Tell": 2, "Warn": 1, "tell": 1}
		if called, ok := n.Fun.(*ast.SelectorExpr); ok {
			if at, tells := place[called.Sel.Name]; tells && len(n.Args) > at+1 {
				add(n.Args[at])
			}
		}
	}
	return all
}

// Every command of ours that a document names, in a sentence, too, is there with its flags. One that keeps capacity for
// a gang makes a Reservation.
func TestCommands(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none")) // not that of whoever runs the tests
	streams := genericiooptions.NewTestIOStreamsDiscard()
	checked, made := 0, 0
	for file, text := range documents(t) {
		if file == "CHANGELOG.md" {
			continue
		}
		for line := range set("(?m)(?:`|^ +(?:\\$ )?)((?:kubectl reserve|(?:bin/)?globalreserve) [^`#|\n]+)", text) {
			root, words := command.New(), strings.Fields(line)
			if words[0] == "kubectl" {
				root, words = kubectl.NewCommand(streams), words[1:]
			}
			cmd, rest, err := root.Find(words[1:])
			unknown := cmd == root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-")
			if !assert.NoError(t, err, "%s: %s", file, line) || !assert.False(t, unknown, "%s: there is no %s", file, line) {
				continue
			}
			for _, word := range rest {
				if name, isFlag := strings.CutPrefix(word, "--"); isFlag {
					name, _, _ = strings.Cut(name, "=")
					assert.True(t, name == "help" || cmd.Flag(name) != nil, "%s: %s has no flag --%s: %s", file, cmd.CommandPath(),
						name, line)
				}
			}
			checked++
			if cmd.Name() == "create" && strings.Contains(line, " --gang ") {
				var out bytes.Buffer
				streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out}
				code := kubectl.Execute(t.Context(), streams, append(words[1:], "--dry-run=client", "-o", "yaml"))
				assert.Zero(t, code, "%s: %s: %s", file, line, &out)
				assert.Contains(t, out.String(), "gang:", "%s: %s", file, line)
				made++
			}
		}
	}
	assert.Greater(t, checked, 60)
	assert.Equal(t, 4, made)
}

// TestChartValues: the values that documents tell people to set are the chart's.
func TestChartValues(t *testing.T) {
	var values map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "../charts/globalreserve/values.yaml")), &values))
	all := documents(t)
	named := set("`([a-z][A-Za-z]*\\.[A-Za-z.]+)(?:: \\w+)?`", all["docs/install-helm.md"])
	maps.DeleteFunc(named, func(name string, _ bool) bool { return strings.HasSuffix(name, ".yaml") })
	for file, text := range all {
		if !strings.HasPrefix(file, "docs/integrations/") { // charts of others
			maps.Copy(named, set(`--set(?:-file)? ([A-Za-z.]+)=`, text))
		}
		maps.Copy(named, set("values? `([A-Za-z.]+)`", text))
	}
	for name := range named {
		parent, key := values, name
		for {
			first, rest, nested := strings.Cut(key, ".")
			value, there := parent[first]
			if !assert.True(t, there, "documents name the value %s of the chart", name) || !nested {
				break
			}
			parent, _ = value.(map[string]any)
			key = rest
		}
	}
	assert.Greater(t, len(named), 7)
}

// TestNamesOfDocumentsElsewhere looks for every document that a program, its comments, or the files that are deployed
// name, and for the heading where they name one.
func TestNamesOfDocumentsElsewhere(t *testing.T) {
	all, checked := documents(t), 0
	named := regexp.MustCompile(
		`(?:^|[\s"'(` + "`" + `]|/blob/main/)((?:docs|manifests|scheduler-config|examples|charts)/[\w./-]+\.md)(?:#([\w-]+))?`)
	for name, content := range files(t, "/Makefile", ".go", ".yaml", ".ts", ".txt") {
		for _, m := range named.FindAllStringSubmatch(content, -1) {
			checked++
			if text, there := all[m[1]]; assert.True(t, there, "%s names %s", name, m[1]) && m[2] != "" {
				assert.Contains(t, anchors(text), m[2], "%s names %s#%s", name, m[1], m[2])
			}
		}
	}
	assert.Greater(t, checked, 50)
}

// What a runbook has one search the log for is in a line that the server logs.
func TestWhatIsSearchedForIsLogged(t *testing.T) {
	var logged []string
	inspectProduct(t, func(node ast.Node) {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if ok && slices.Contains([]string{"Warn", "Error", "Info", "Warnf", "Infof"}, method.Sel.Name) {
			for _, argument := range call.Args {
				if text, ok := argument.(*ast.BasicLit); ok {
					logged = append(logged, strings.ToLower(text.Value))
				}
			}
		}
	})
	searched := regexp.MustCompile("logs [^`]*\\| grep (?:-i )?'?([^'`]+)'?`")
	checked := 0
	for file, text := range documents(t) {
		for _, m := range searched.FindAllStringSubmatch(text, -1) {
			checked++
			assert.True(t, slices.ContainsFunc(logged, func(line string) bool {
				return strings.Contains(line, strings.ToLower(m[1]))
			}), "%s searches the log for %q", file, m[1])
		}
	}
	assert.Equal(t, 2, checked)
}
