package app

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Neither a limit of the caller's configuration nor compression slows the clients down.
func TestNewClients(t *testing.T) {
	asked := make(chan http.Header, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: 1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	clients, err := NewClients(config)
	require.NoError(t, err)
	assert.Nil(t, clients.Core.CoreV1().RESTClient().GetRateLimiter())
	_, err = clients.Core.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	require.Error(t, err)
	header := <-asked
	assert.Empty(t, header.Get("Accept-Encoding"))
	assert.Contains(t, header.Get("Accept"), "protobuf")
	err = clients.Core.CoreV1().Pods("ns").Bind(t.Context(), &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}},
		metav1.CreateOptions{})
	require.Error(t, err)
	assert.Contains(t, (<-asked).Get("Content-Type"), "protobuf")
	_, err = clients.Reservations.GlobalreserveV1alpha1().Reservations("").List(t.Context(), metav1.ListOptions{})
	require.Error(t, err)
	header = <-asked
	assert.Empty(t, header.Get("Accept-Encoding"))
	assert.NotContains(t, header.Get("Accept"), "protobuf")
	assert.False(t, config.DisableCompression, "the configuration is the caller's")
}

// Who asks a server in the same process gets each answer that there is, however long it is.
func TestAnswersOfAnyLengthInTheSameProcess(t *testing.T) {
	a := &App{inside: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.WriteString(w, `{"Revision":7}`+strings.Repeat(" ", 64<<20)) // more than other clients take
		assert.NoError(t, err)
	})}
	revision, err := a.Reserver().Revision(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 7, revision)
}

// Pods come without what no decision needs.
func TestNewClientsReadLeanPods(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
	encoder := scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), v1.SchemeGroupVersion)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		assert.NoError(t, encoder.Encode(pod, w))
	}))
	t.Cleanup(server.Close)
	clients, err := NewClients(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	got, err := clients.Core.CoreV1().Pods("ns").Get(t.Context(), "p", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "p", got.Name)
	assert.Empty(t, got.ManagedFields)
}
