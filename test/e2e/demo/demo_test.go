//go:build e2e

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// state is what the page's server tells of the cluster.
type state struct {
	Runs  int     `json:"runs"`
	Nodes [][]int `json:"nodes"`
	Is    struct {
		Churn  bool `json:"churn"`
		Behind bool `json:"behind"`
	} `json:"is"`
	History []struct {
		Overcommitted int  `json:"overcommitted"`
		Behind        bool `json:"behind"`
	} `json:"history"`
}

func (s state) overcommitted() int {
	count := 0
	for _, pods := range s.Nodes {
		if len(pods) > 4 {
			count++
		}
	}
	return count
}

// ask reads one of the page's addresses, or posts a body to it, as a page from the origin does.
func ask(ctx context.Context, t require.TestingT, url, body, origin string, into any) (status int, policy string) {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader([]byte(body)))
	require.NoError(t, err)
	if origin != "" {
		request.Header.Set("Origin", origin)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	if into != nil {
		require.NoError(t, json.Unmarshal(content, into), "%s", content)
	}
	return response.StatusCode, response.Header.Get("Content-Security-Policy")
}

// TestDemo has `make demo` run both runs, types what it says, flips its switches, and has it cleared away.
func TestDemo(t *testing.T) {
	p := start(t)
	url := p.await(`See both runs .*: (http://127\.0\.0\.1:\d+/)\n`)[1]
	assert.NotContains(t, p.text(), "the schedulers are let go", "the page is there before the first run")
	status, policy := ask(t.Context(), t, url, "", "", nil)
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, policy, "default-src 'none'; script-src 'self'")
	status, _ = ask(t.Context(), t, url+"switch", `{"churn":true}`, "", nil)
	assert.Equal(t, http.StatusConflict, status, "the runs are not over")

	answers := p.typeIn(p.commands())
	assert.Contains(t, said(t, answers, "kubectl get pods"), "Pending")
	assert.Contains(t, said(t, answers, "kubectl reserve pods"), "second-scheduler")
	assert.Contains(t, said(t, answers, "kubectl reserve nodes node-0"), "100%")
	assert.Contains(t, said(t, answers, "kubectl reserve explain"), "cpu")
	assert.Contains(t, said(t, answers, "curl"), `"node-0"`)

	p.await(`The page has switches`)
	requireRecording(t, p, url)
	failed := p.await(`pods a kubelet would fail +(\d+) +0\n`)[1]
	assert.Contains(t, p.text(), "the server that observes saw "+failed+" pods bound where there was no capacity",
		"each conflict once")
	requirePage(t, url)
	requireSwitch(t, url)
	p.interrupt()
}

// TestOnce has `make demo DEMO_ARGS=--once` print its table, and end by itself.
func TestOnce(t *testing.T) {
	p := start(t, "--once")
	p.await(`time until the last bind +\S+ +\S+\n`)
	p.awaitEnd()
	_, table, _ := strings.Cut(p.text(), "\n\n")
	for _, row := range []string{
		` +without GlobalReserve +with GlobalReserve`,
		`pods bound +\d+ +200`,
		`pods a kubelet would fail +\d+ +0`,
		`gangs whole / half / waiting +\d+ / \d+ / \d+ +[1-9]\d* / 0 / \d+`,
	} {
		assert.Regexp(t, `(?m)^`+row+`$`, table)
	}
	nodes := regexp.MustCompile(`overcommitted nodes, worst moment +(\d+) +0\n`).FindStringSubmatch(table)
	require.NotNil(t, nodes)
	assert.Equal(t, nodes[1] == "0", strings.Contains(table, "Note: the first run overcommitted no node"),
		"how many there are is up to the machine, and for none the table has a note")
	assert.NotContains(t, p.text(), "http://", "nothing is left to be looked at")
}

// requireRecording replays what was recorded: it is what the table says.
func requireRecording(t *testing.T, p *program, url string) {
	t.Helper()
	var recording struct {
		Runs []struct {
			Binds []struct{ Node, Scheduler int } `json:"binds"`
		} `json:"runs"`
	}
	ask(t.Context(), t, url+"recording.json", "", "", &recording)
	require.Len(t, recording.Runs, 2)
	table := regexp.MustCompile(`pods bound +(\d+) +(\d+)\n`).FindStringSubmatch(p.text())
	worst := regexp.MustCompile(`overcommitted nodes, worst moment +(\d+) +(\d+)\n`).FindStringSubmatch(p.text())
	require.NotNil(t, table)
	require.NotNil(t, worst)
	for i, run := range recording.Runs {
		s := state{Nodes: make([][]int, 50)}
		for _, bind := range run.Binds {
			s.Nodes[bind.Node] = append(s.Nodes[bind.Node], bind.Scheduler)
		}
		assert.JSONEq(t, table[i+1], toJSON(t, len(run.Binds)))
		assert.JSONEq(t, worst[i+1], toJSON(t, s.overcommitted()))
	}
}

func toJSON(t *testing.T, value any) string {
	t.Helper()
	content, err := json.Marshal(value)
	require.NoError(t, err)
	return string(content)
}

// requireSwitch has pods come and go: nodes are overcommitted while the schedulers do not ask, and are none while they
// do.
func requireSwitch(t *testing.T, url string) {
	t.Helper()
	flip := func(wish string, done func(state) bool, what string) {
		t.Helper()
		status, _ := ask(t.Context(), t, url+"switch", wish, strings.TrimSuffix(url, "/"), nil)
		assert.Equal(t, http.StatusNoContent, status)
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			var s state
			ask(t.Context(), c, url+"state.json", "", "", &s)
			assert.True(c, done(s), what)
		}, testbed.Soon, 10*testbed.Poll)
	}
	flip(`{"churn":true,"behind":false}`, func(s state) bool { return !s.Is.Behind && s.overcommitted() > 2 },
		"overcommit never rises")
	flip(`{"churn":true,"behind":true}`, func(s state) bool {
		// For three rounds of newcomers, too.
		if !s.Is.Behind || len(s.History) < 3 {
			return false
		}
		for _, sample := range s.History[len(s.History)-3:] {
			if !sample.Behind || sample.Overcommitted > 0 {
				return false
			}
		}
		return true
	}, "overcommit never ends")
	status, _ := ask(t.Context(), t, url+"switch", `{"churn":false}`, "http://elsewhere.example", nil)
	assert.Equal(t, http.StatusForbidden, status, "of another page")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	request.Host = "elsewhere.example"
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	assert.Equal(t, http.StatusForbidden, response.StatusCode, "by another name")
}

// requirePage has a browser look at the page, flip its switches and see overcommit rise and go. Where there is none, it
// says so in one line.
func requirePage(t *testing.T, url string) {
	t.Helper()
	browser, missing := testbed.Browser()
	if missing != "" {
		t.Log("LEFT OUT: no browser looks at the demo's page: " + missing)
		return
	}
	look := exec.CommandContext(t.Context(), "node", "e2e/demo.mjs", url)
	look.Dir, look.Env = testbed.File(t, "web"), append(os.Environ(), "BROWSER="+browser)
	output, err := look.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// said returns what the only command that begins so has said.
func said(t *testing.T, all map[string]string, command string) string {
	t.Helper()
	var found []string
	for typed, answer := range all {
		if strings.HasPrefix(typed, command) {
			found = append(found, answer)
		}
	}
	require.Len(t, found, 1, "commands that begin with %q", command)
	return found[0]
}

// TestCluster starts `make cluster`, does what it says and what the documents say, and has it cleared away.
func TestCluster(t *testing.T) {
	policy := testbed.Policy(t, "namespaces: {limited: {maxSlots: 2}}\n")
	p := start(t, "cluster", "--nodes=3", "--cpus=4", "--policy-file="+policy)
	answers := p.typeIn(append(p.commands(), "  kubectl create namespace limited",
		"  ! kubectl reserve create three -n limited --cpu 1m --replicas 3 --wait=10s --ledger-url $URL"))
	for command, want := range map[string]string{
		"kubectl get nodes":      "node-2",
		"kubectl rollout status": "successfully rolled out",
		"kubectl run mine":       "pod/mine created",
		"curl -sS $URL/v1/alloc": `"Pod":"mine"`,
		"kubectl wait":           "condition met",
		"kubectl reserve create": "kept available on",
		"kubectl get rsv":        "0/2",
		"! kubectl reserve":      "namespaces.maxSlots",
		"kubectl reserve nodes":  "100%",
		`curl -sS -H 'Content-Type: application/json' -d "{\"Sch`: `"FailedPods":[],"Error":""`,
		`curl -sS -H 'Content-Type: application/json' -d "{\"Pod`: `"Error":""`,
	} {
		assert.Contains(t, said(t, answers, command), want, command)
	}
	printed := p.text()
	for _, want := range []string{
		"default-scheduler, second-scheduler and gang-scheduler", "my-scheduler", "filterVerb: filter", "/reserve",
		"/openapi.yaml",
		"export KUBECONFIG=", "page        http://",
	} {
		assert.Contains(t, printed, want)
	}
	p.runDocuments(t)
	p.interrupt()
}
