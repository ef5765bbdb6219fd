package e2e

import (
	"bufio"
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
	"golang.org/x/sync/errgroup"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestBadInput sends malformed and hostile requests to a real server: every one is refused with a
// text that says why, none changes the ledger, and the server goes on working.
func TestBadInput(t *testing.T) {
	t.Parallel() // most of the time it waits for connections that say nothing to be ended
	c := newOwnCluster(t, 3)
	c.startServer(clusterload.ServerOptions{})
	bound := c.CreatePod("bound", nobody, "1")
	require.Empty(t, c.Bind(bound, "node-0"))
	c.requireAgreement()
	pid, before := c.Server.PID(), c.Allocations()
	slow := c.startSlowRequests()
	cases := badRequests()
	t.Logf("%d bad requests", len(cases))
	for name, request := range cases {
		t.Run(name, func(t *testing.T) { c.in(t).requireRefused(request) })
	}
	t.Run("all of them again, side by side", func(t *testing.T) {
		var senders errgroup.Group
		senders.SetLimit(testbed.Writers)
		for _, request := range cases {
			if len(request.body) > 1<<20 {
				continue // one at a time is enough for the memory of a test machine
			}
			senders.Go(func() error {
				_, err := c.sendBad(request)
				return err
			})
		}
		require.NoError(t, senders.Wait())
	})
	for name, answer := range slow() {
		t.Run(name, func(t *testing.T) { answer(t) })
	}
	require.Equal(t, before, c.Allocations(), "a bad request changed the ledger")
	require.Equal(t, pid, c.Server.PID(), "the server is another process")
	c.requireNoPanic()
	after := c.CreatePod("after", nobody, "1")
	require.Empty(t, c.Bind(after, "node-1"), "the server does not bind any more")
	c.requireAgreement()
}

func (c *cluster) sendBad(request badRequest) (testbed.Reply, error) {
	method := request.method
	if method == "" {
		method = http.MethodPost
	}
	sent, err := http.NewRequestWithContext(c.T.Context(), method, c.Server.URL+request.path, strings.NewReader(request.body))
	if err != nil {
		return testbed.Reply{}, err
	}
	sent.Header.Set("Content-Type", "application/json")
	for name, value := range request.header {
		sent.Header.Set(name, value)
	}
	return testbed.Do(sent)
}

func (c *cluster) requireRefused(request badRequest) {
	c.T.Helper()
	before := c.Allocations().Revision
	got, err := c.sendBad(request)
	for tries := 1; err != nil && len(request.body) > 1<<20 && tries < 10; tries++ {
		got, err = c.sendBad(request) // who still writes when the server closes may see that before the answer
	}
	require.NoError(c.T, err)
	requireError(c.T, got, request.status)
	require.Equal(c.T, before, c.Allocations().Revision, "the ledger's revision changed")
}

// requireError checks that an answer is an error in JSON with a text that helps.
func requireError(t testing.TB, got testbed.Reply, status int) {
	t.Helper()
	if status == 0 {
		status = http.StatusBadRequest
	}
	shown := string(got.Body[:min(len(got.Body), 300)])
	require.Equal(t, status, got.Status, shown)
	require.Contains(t, got.Header.Get("Content-Type"), "application/json", shown)
	var answer struct{ Error string }
	require.NoError(t, json.Unmarshal(got.Body, &answer), shown)
	require.Greater(t, len(answer.Error), 10, "the error says nothing: %s", shown)
	require.Less(t, len(got.Body), 4096, "the error repeats what was sent")
	require.NotContains(t, answer.Error, "\x00")
	require.NotContains(t, answer.Error, "goroutine")
}

// startSlowRequests opens connections that never finish what they began. The function it returns
// waits for the end the server puts to each.
func (c *cluster) startSlowRequests() func() map[string]func(*testing.T) {
	address := strings.TrimPrefix(c.Server.URL, "http://")
	head := func(path string, length int) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, address, length)
	}
	starts := map[string]string{
		"a body that never comes":         head(testbed.ReservePath, 1000),
		"a body that stops half-way":      head(testbed.ReservePath, 1000) + `{"SchedulerName":"s","Pods":[`,
		"a filter that stops half-way":    head(testbed.FilterPath, 1000) + `{"Pod":{`,
		"a bind that stops half-way":      head(testbed.BindPath, 1000) + `{"PodName":"`,
		"a header that stops half-way":    "POST " + testbed.ReservePath + " HTTP/1.1\r\nHost: " + address + "\r\nX-Slow: ",
		"a connection that says nothing":  "",
		"a chunk that stops half-way":     "POST " + testbed.ReservePath + " HTTP/1.1\r\nHost: " + address + "\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"Pods\":",
		"a length that is a lie, and EOF": head(testbed.UnreservePath, 1<<40),
	}
	answers := make(chan func() (string, func(*testing.T)), len(starts))
	for name, start := range starts {
		go func() {
			answer, err := talk(c.T.Context(), address, start)
			answers <- func() (string, func(*testing.T)) {
				return name, func(t *testing.T) { requireSlowRefused(t, answer, err) }
			}
		}()
	}
	return func() map[string]func(*testing.T) {
		checks := map[string]func(*testing.T){}
		for range starts {
			name, check := (<-answers)()
			checks[name] = check
		}
		return checks
	}
}

// talk sends the start of a request and reads until the server ends the connection.
func talk(ctx context.Context, address, start string) (string, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(late)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(connection, start); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(connection)
	return string(answer), err
}

// requireSlowRefused checks that the server ended a slow request, with an error in JSON where it got
// as far as knowing what is asked.
func requireSlowRefused(t *testing.T, answer string, err error) {
	t.Helper()
	require.NoError(t, err, "the server waited for ever")
	if answer == "" {
		return // nothing was asked: nothing is answered
	}
	response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
	require.NoError(t, err, answer)
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

func (c *cluster) requireNoPanic() {
	c.T.Helper()
	require.NotContains(c.T, testbed.Tail(c.Server.LogFile(), 1<<20), "panic")
}
