//go:build e2e

package plugin

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// The server in the scheduler serves the live page at the address in the plugin's args, and answers what the page asks
// there.
func TestPage(t *testing.T) {
	c := testbed.NewCluster(t, shared.StartT(t))
	want := c.AddNodes(2, nodeOf("4"))
	port, err := c.FreePort()
	require.NoError(t, err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	_, err = clusterload.StartPluginScheduler(t.Context(), c.ControlPlane, clusterload.PluginSchedulerOptions{
		Name: scheduler, ServerArgs: map[string]any{"uiAddress": address},
	})
	require.NoError(t, err)

	response, err := http.Get("http://" + address + "/")
	require.NoError(t, err)
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, response.StatusCode)
	assert.Contains(t, string(page), "<title>GlobalReserve</title>")

	answer, err := testbed.Caller{URL: "http://" + address}.Nodes(t.Context())
	require.NoError(t, err)
	var got []string
	for i := range answer.Nodes {
		got = append(got, answer.Nodes[i].Name)
	}
	assert.ElementsMatch(t, want, got)
}
