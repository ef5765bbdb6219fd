//go:build e2e

package e2e

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// badRequest is a request that must be refused. Without a method it is a POST.
type badRequest struct {
	method, path string
	body         string
	// status is what it is refused with. A 200 stands for the protocol's way to refuse: status 200 and a
	// text in the field Error.
	status int
}

// badRequests are those that only a whole server shows: the limits it is started with, what it serves on its
// port, and what it has to ask the API server about. All others are in the tests of pkg/http.
func badRequests() map[string]badRequest {
	const (
		malformed, missing, wrongMethod = http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed
		tooLarge                        = http.StatusRequestEntityTooLarge
	)
	long := func(n int) string { return `{"x":"` + strings.Repeat("x", n) + `"}` }
	bind := func(namespace string) string {
		return fmt.Sprintf(`{"PodNamespace":%q,"PodName":"no-such-pod","PodUID":"u","Node":"node-0"}`, namespace)
	}
	return map[string]badRequest{
		"33 MiB":               {path: testbed.ReservePath, body: long(33 << 20), status: tooLarge},
		"33 MiB for filter":    {path: testbed.FilterPath, body: long(33 << 20), status: tooLarge},
		"65 KiB for bind":      {path: testbed.BindPath, body: long(65 << 10), status: tooLarge},
		"nested 100,000 deep":  {path: testbed.PreemptPath, body: strings.Repeat(`{"Pod":`, 100_000), status: malformed},
		"an unknown pod":       {path: testbed.BindPath, body: bind("default"), status: http.StatusOK},
		"an unknown namespace": {path: testbed.BindPath, body: bind("nowhere"), status: http.StatusOK},
		"a path with dots":     {method: http.MethodGet, path: "/v1/%2e%2e/%2e%2e/etc/passwd", status: missing},
		"profiles":             {method: http.MethodGet, path: "/debug/pprof/", status: missing},
		"nothing":              {method: http.MethodGet, path: "/", status: missing},
		"PATCH of a bind":      {method: http.MethodPatch, path: testbed.BindPath, body: "{}", status: wrongMethod},
		"POST of metrics":      {path: testbed.MetricsPath, body: "{}", status: wrongMethod},
		"DELETE of a probe":    {method: http.MethodDelete, path: "/readyz", status: wrongMethod},
		"PUT of the document":  {method: http.MethodPut, path: testbed.OpenAPIPath, body: "{}", status: wrongMethod},
	}
}

// TestBadInput sends malformed and hostile requests to a real server: every one is refused with a
// text that says why, none changes the ledger, and the server goes on working.
func TestBadInput(t *testing.T) {
	t.Parallel() // most of the time it waits for connections that say nothing to be ended
	cp := controlplane.StartT(t, controlplane.Options{})
	require.NoError(t, crd.Prepare(t.Context(), cp))
	c := clusterOn(t, cp, 3)
	c.StartServer(clusterload.ServerOptions{})
	bound := c.CreatePod("bound", nobody, "1")
	require.Empty(t, c.Bind(bound, "node-0"))
	c.requireAgreement()
	pid, before := c.Server.PID(), c.Allocations()
	slow := c.startSlowRequests()
	for name, request := range badRequests() {
		t.Run(name, func(t *testing.T) { requireError(t, c.in(t).sendBad(request), request.status) })
	}
	for range cap(slow) {
		answer := <-slow
		t.Run(answer.name, func(t *testing.T) { answer.requireRefused(t) })
	}
	require.Equal(t, before, c.Allocations(), "a bad request changed the ledger")
	require.Equal(t, pid, c.Server.PID(), "the server is another process")
	require.NotContains(t, testbed.Tail(c.Server.LogFile(), 1<<20), "panic")
	after := c.CreatePod("after", nobody, "1")
	require.Empty(t, c.Bind(after, "node-1"), "the server does not bind any more")
	c.requireAgreement()
}

func (c *cluster) sendBad(request badRequest) (reply testbed.Reply) {
	c.T.Helper()
	method := cmp.Or(request.method, http.MethodPost)
	var err error
	for range 10 {
		reply, err = c.Ledger.Send(c.T.Context(), method, request.path, []byte(request.body))
		if err == nil || len(request.body) <= 1<<20 {
			break
		} // who still writes when the server closes may see that before the answer
	}
	require.NoError(c.T, err)
	return reply
}

// requireError checks that an answer is an error in JSON with a text that helps.
func requireError(t testing.TB, got testbed.Reply, status int) {
	t.Helper()
	shown := string(got.Body[:min(len(got.Body), 300)])
	require.Equal(t, status, got.Status, shown)
	require.Contains(t, got.Header.Get("Content-Type"), "application/json", shown)
	var answer struct{ Error string }
	require.NoError(t, json.Unmarshal(got.Body, &answer), shown)
	require.Greater(t, len(answer.Error), 10, "the error says nothing: %s", shown)
	require.Less(t, len(got.Body), 4096, "the error repeats what was sent")
}

// slowAnswer is what the server sent before it ended a connection.
type slowAnswer struct {
	name, text string
	err        error
}

// startSlowRequests opens connections that never finish what they began. The channel has room for as many answers
// as will come.
func (c *cluster) startSlowRequests() chan slowAnswer {
	address := strings.TrimPrefix(c.Server.URL, "http://")
	post := func(path, header string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\n%s", path, address, header)
	}
	const json = "Content-Type: application/json\r\n"
	starts := map[string]string{
		"a body that never comes":         post(testbed.ReservePath, json+"Content-Length: 1000\r\n\r\n"),
		"a filter that stops half-way":    post(testbed.FilterPath, json+"Content-Length: 1000\r\n\r\n") + `{"Pod":{`,
		"a chunk that stops half-way":     post(testbed.ReservePath, "Transfer-Encoding: chunked\r\n\r\n10\r\n{\"Pods\":"),
		"a header that stops half-way":    post(testbed.ReservePath, "X-Slow: "),
		"a length that is a lie, and EOF": post(testbed.UnreservePath, json+"Content-Length: 1099511627776\r\n\r\n"),
		"a connection that says nothing":  "",
	}
	answers := make(chan slowAnswer, len(starts))
	for name, start := range starts {
		go func() {
			text, err := talk(c.T.Context(), address, start)
			answers <- slowAnswer{name, text, err}
		}()
	}
	return answers
}

// talk sends the start of a request and reads until the server ends the connection.
func talk(ctx context.Context, address, start string) (string, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(testbed.Soon)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(connection, start); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(connection)
	return string(answer), err
}

// requireRefused checks that the server ended a slow request, with an error in JSON where it got
// as far as knowing what is asked.
func (a *slowAnswer) requireRefused(t *testing.T) {
	t.Helper()
	require.NoError(t, a.err, "the server waited for ever")
	if a.text == "" {
		return // nothing was asked: nothing is answered
	}
	response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(a.text)), nil)
	require.NoError(t, err, a.text)
	defer response.Body.Close()
	assert.GreaterOrEqual(t, response.StatusCode, 400)
	assert.Less(t, response.StatusCode, 500)
	if response.Header.Get("Content-Type") != "application/json" {
		return // net/http itself refused a header
	}
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	requireError(t, testbed.Reply{Status: response.StatusCode, Header: response.Header, Body: body}, response.StatusCode)
}
