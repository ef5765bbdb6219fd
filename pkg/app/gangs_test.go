package app

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/fake"
)

// A policy file that is loaded later may change the deadline of gangs, and not their kinds: those are in force that the
// server has started with, and that is reported.
func TestKindsOfGangsAreThoseOfTheStart(t *testing.T) {
	o := testOptions()
	o.PolicyFile = filepath.Join(t.TempDir(), "policy.yaml")
	write := func(gangs string) {
		t.Helper()
		head := "apiVersion: config.globalreserve.io/v1alpha1\nkind: GlobalReservePolicy\n"
		require.NoError(t, os.WriteFile(o.PolicyFile, []byte(head+gangs), 0o600))
	}
	write("gangs: {kinds: [{name: volcano, disabled: true}]}")
	var log bytes.Buffer
	a, err := New(o, testClients(fake.NewClientset()), &log)
	require.NoError(t, err)
	assert.Len(t, a.kinds.Kinds(), 5, "all but one")
	require.NoError(t, a.watcher.Load())

	write("gangs: {deadline: 5s, kinds: [{name: volcano, disabled: true}]}")
	require.NoError(t, a.watcher.Load())
	assert.NotContains(t, log.String(), "gangs.kinds")
	assert.Equal(t, 5*time.Second, a.policies.Current().Gangs.Deadline.Duration)

	write("gangs: {deadline: 7s}")
	require.NoError(t, a.watcher.Load())
	assert.Contains(t, log.String(),
		"gangs.kinds differ from those that the server has started with, which stay in force: restart the server")
	assert.Equal(t, 7*time.Second, a.policies.Current().Gangs.Deadline.Duration)
	assert.Len(t, a.kinds.Kinds(), 5)
	scrape := httptest.NewRecorder()
	a.metrics.Handler().ServeHTTP(scrape, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	assert.Contains(t, scrape.Body.String(), "globalreserve_policy_reload_failures_total 1\n")
}
