package arbiter

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/pkg/election"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// TestAPI checks what a real client sends: one request, bounded in time on
// both sides, whatever the answer asks for.
func TestAPI(t *testing.T) {
	var requests []*http.Request
	var sent v1.Binding
	code := http.StatusCreated
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r)
		if r.Method == http.MethodPost {
			assert.NoError(t, json.NewDecoder(r.Body).Decode(&sent))
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(code)
		body := `{"kind":"Status","apiVersion":"v1","status":"Success"}`
		if code == http.StatusNotFound {
			body = `{"kind":"Status","apiVersion":"v1","status":"Failure","details":{"name":"p","kind":"pods"},"reason":"NotFound","code":404}`
		}
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	clientset, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	require.NoError(t, err)
	defer clientset.CoreV1().RESTClient().(*rest.RESTClient).Client.CloseIdleConnections()
	client := NewAPI(clientset, election.NewWrites(time.Minute, func() bool { return true }))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	binding := newBinding(ledger.PodRef{Namespace: "ns", Name: "p", UID: "uid"}, "node-1", nil)

	require.NoError(t, client.Bind(ctx, binding))
	require.Len(t, requests, 1)
	assert.Equal(t, "/api/v1/namespaces/ns/pods/p/binding", requests[0].URL.Path)
	timeout, err := time.ParseDuration(requests[0].URL.Query().Get("timeout"))
	require.NoError(t, err)
	assert.Greater(t, timeout, 50*time.Second)
	assert.Equal(t, "uid", string(sent.UID))
	assert.Equal(t, v1.ObjectReference{Kind: "Node", Name: "node-1"}, sent.Target)

	for _, code = range []int{429, 500, 503, 504} {
		requests = nil
		require.Error(t, client.Bind(ctx, binding))
		assert.Len(t, requests, 1, "status %d must not be tried again behind our back", code)
	}

	code, requests = http.StatusNotFound, nil
	_, err = client.Get(ctx, "ns", "p")
	assert.True(t, IsNoPod(err), "%v", err)
	assert.Equal(t, "/api/v1/namespaces/ns/pods/p", requests[0].URL.Path)
	assert.Empty(t, requests[0].URL.Query().Get("resourceVersion"), "a read from the cache may be old")
}

// A patch is of the pod of one UID and sent once.
func TestAPIAnnotates(t *testing.T) {
	var paths []string
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type"))
		raw, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		body = string(raw)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","uid":"uid","resourceVersion":"8"}}`))
	}))
	defer server.Close()
	clientset, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	require.NoError(t, err)
	defer clientset.CoreV1().RESTClient().(*rest.RESTClient).Client.CloseIdleConnections()
	pod, err := NewAPI(clientset, election.NewWrites(time.Minute, func() bool { return true })).Annotate(t.Context(), ledger.PodRef{Namespace: "ns", Name: "p", UID: "uid"}, "key", "value")
	require.NoError(t, err)
	assert.Equal(t, "8", pod.ResourceVersion)
	assert.Equal(t, []string{"PATCH /api/v1/namespaces/ns/pods/p application/merge-patch+json"}, paths)
	assert.JSONEq(t, `{"metadata":{"uid":"uid","annotations":{"key":"value"}}}`, body)
}

func TestAPIRefusesPaths(t *testing.T) {
	clientset, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	require.NoError(t, err)
	for _, name := range []string{"..", "a/b", ""} {
		_, err := NewAPI(clientset, election.NewWrites(time.Minute, func() bool { return true })).Get(t.Context(), "ns", name)
		assert.ErrorContains(t, err, "name")
	}
}
