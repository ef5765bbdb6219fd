package app

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/fake"
)

// Profiles are on their own port and on no other one, and not for the pages of other sites.
func TestProfiles(t *testing.T) {
	o := testOptions()
	o.ProfileAddress, o.HealthAddress, o.UIAddress = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	a := startApp(t, o, fake.NewClientset(testNode("a")))
	profiles := "http://" + addrOf(a, "profiles")
	for path, want := range map[string]string{
		"/debug/pprof/": "goroutine", "/debug/pprof/goroutine?debug=1": "goroutine profile: total",
		"/debug/pprof/profile?seconds=1": "\x1f\x8b",
	} {
		code, answer := ask(t, http.DefaultClient, http.MethodGet, profiles+path)
		assert.Equal(t, http.StatusOK, code, path)
		assert.Contains(t, answer, want, path)
	}
	code, _ := ask(t, http.DefaultClient, http.MethodGet, profiles+"/debug/pprof/",
		func(r *http.Request) { r.Host = "evil.example.com" })
	assert.Equal(t, http.StatusMisdirectedRequest, code)
	for _, address := range []string{addrOf(a, "HTTP"), addrOf(a, "HTTP of probes and metrics"), addrOf(a, "page")} {
		code, _ := ask(t, http.DefaultClient, http.MethodGet, "http://"+address+"/debug/pprof/")
		assert.Equal(t, http.StatusNotFound, code)
	}
}

// A profile that is read does not keep a stop waiting.
func TestProfileEndsAtStop(t *testing.T) {
	o := testOptions()
	o.ProfileAddress = "127.0.0.1:0"
	client := fake.NewClientset(testNode("a"))
	fence(t, client)
	a, err := New(o, testClients(client), io.Discard)
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	trace := "http://" + addrOf(a, "profiles") + "/debug/pprof/trace?seconds=600"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, trace, http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request) // what is traced so far is sent as it is read
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	stopping, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, a.Stop(stopping))
}

func TestNoProfilesUnlessAskedFor(t *testing.T) {
	a := startApp(t, testOptions(), fake.NewClientset(testNode("a")))
	require.Nil(t, listenerOf(a, "profiles"))
}
