package decide

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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// TestAPI checks what a real client sends: one request, bounded in time on both sides, whatever the answer asks for.
func TestAPI(t *testing.T) {
	var requests []*http.Request
	var body []byte // of the last one
	code, answer := http.StatusCreated, `{"kind":"Status","apiVersion":"v1","status":"Success"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r)
		var err error
		body, err = io.ReadAll(r.Body)
		assert.NoError(t, err)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	clientset, err := kubernetes.NewForConfig(&rest.Config{
		Host:          server.URL,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	require.NoError(t, err)
	defer clientset.CoreV1().RESTClient().(*rest.RESTClient).Client.CloseIdleConnections()
	client := NewAPI(clientset, election.NewWrites(time.Minute, func() bool { return true }))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	pod := ledger.PodRef{Namespace: "ns", Name: "p", UID: "uid"}
	binding := newBinding(pod, "1", "node-1", nil)

	require.NoError(t, client.Bind(ctx, binding))
	require.Len(t, requests, 1)
	assert.Equal(t, "/api/v1/namespaces/ns/pods/p/binding", requests[0].URL.Path)
	timeout, err := time.ParseDuration(requests[0].URL.Query().Get("timeout"))
	require.NoError(t, err)
	assert.Greater(t, timeout, 50*time.Second)
	var sent v1.Binding
	require.NoError(t, json.Unmarshal(body, &sent))
	assert.Equal(t, pod.UID, sent.UID)
	assert.Equal(t, v1.ObjectReference{Kind: "Node", Name: "node-1"}, sent.Target)

	for _, code = range []int{429, 500, 503, 504} {
		requests = nil
		require.Error(t, client.Bind(ctx, binding))
		assert.Len(t, requests, 1, "status %d must not be tried again behind our back", code)
	}

	code, requests = http.StatusNotFound, nil
	answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","details":{"name":"p","kind":"pods"},` +
		`"reason":"NotFound","code":404}`
	_, err = client.Get(ctx, "ns", "p")
	assert.True(t, isNoPod(err), "%v", err)
	assert.Equal(t, "/api/v1/namespaces/ns/pods/p", requests[0].URL.Path)
	assert.Empty(t, requests[0].URL.Query().Get("resourceVersion"), "a read from the cache may be old")

	code, requests = http.StatusOK, nil
	answer = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","uid":"uid","resourceVersion":"8"}}`
	for list, want := range map[string]bool{"": false, `{"metadata":{"name":"q"}}`: true} {
		answer, requests = `{"kind":"PodList","apiVersion":"v1","items":[`+list+`]}`, nil
		is, err := client.IsOn(ctx, "ns", "node-1", labels.SelectorFromSet(labels.Set{"app": "web"}))
		require.NoError(t, err)
		assert.Equal(t, want, is)
		assert.Equal(t, "/api/v1/namespaces/ns/pods", requests[0].URL.Path)
		query := requests[0].URL.Query()
		assert.Equal(t, "app=web", query.Get("labelSelector"))
		assert.Equal(t, "spec.nodeName=node-1,status.phase!=Succeeded,status.phase!=Failed", query.Get("fieldSelector"))
		assert.Empty(t, query.Get("resourceVersion"), "a list from the cache may be old")
	}
	requests = nil
	answer = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","uid":"uid","resourceVersion":"8"}}`
	patched, err := client.Annotate(ctx, pod, "key", "value")
	require.NoError(t, err)
	assert.Equal(t, "8", patched.ResourceVersion)
	require.Len(t, requests, 1)
	assert.Equal(t, "PATCH /api/v1/namespaces/ns/pods/p", requests[0].Method+" "+requests[0].URL.Path)
	assert.Equal(t, "application/merge-patch+json", requests[0].Header.Get("Content-Type"))
	assert.JSONEq(t, `{"metadata":{"uid":"uid","annotations":{"key":"value"}}}`, string(body), "for the pod of one UID")
}
