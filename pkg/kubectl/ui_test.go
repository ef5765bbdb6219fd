package kubectl

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// ask asks the page for a path, with the Host of another site if one is given.
func ask(t *testing.T, url, host string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	request.Host = host
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// The page is served on loopback until the command is interrupted; what it asks, and nothing else, goes to the server.
func TestUI(t *testing.T) {
	r := newRig(t)
	r.routes["/v1/nodes?limit=1"] = map[string]int{"Revision": 7}
	read, write := io.Pipe()
	env := newEnvironment(genericiooptions.IOStreams{In: nil, Out: write, ErrOut: io.Discard})
	env.cluster, env.forward = r.cluster, r.forward
	ctx, interrupt := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- execute(ctx, env, []string{"ui", "--port", "0", "--ledger-url", r.server.URL}) }()
	line := make([]byte, 200)
	n, err := read.Read(line)
	require.NoError(t, err)
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(string(line[:n]))
	require.NotEmpty(t, url, string(line[:n]))

	status, page := ask(t, url+"/", "")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, page, "<title>GlobalReserve</title>")
	status, answer := ask(t, url+"/v1/nodes?limit=1", "")
	assert.Equal(t, http.StatusOK, status)
	assert.JSONEq(t, `{"Revision":7}`, answer)
	status, _ = ask(t, url+"/v1/nodes?limit=1", "evil.example.com")
	assert.Equal(t, http.StatusMisdirectedRequest, status)
	status, _ = ask(t, url+"/debug/ledger", "")
	assert.Equal(t, http.StatusNotFound, status)
	assert.Equal(t, []string{"/v1/nodes?limit=1"}, r.asked)

	interrupt()
	assert.Zero(t, <-code)
	// Another program may have the port by now: whoever answers there, nothing is passed on any more.
	gone, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(gone, http.MethodGet, url+"/v1/nodes?limit=1", http.NoBody)
	require.NoError(t, err)
	if response, err := http.DefaultClient.Do(request); err == nil {
		_ = response.Body.Close()
	}
	assert.Len(t, r.asked, 1, "nothing is served any more")
}
