package app

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"testing"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

// parallel is how many requests are under way at one time.
const parallel = 64

// connectionsOf are those that requests came on, or were sent on.
type connectionsOf struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *connectionsOf) add(connection string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]int{}
	}
	c.seen[connection]++
}

// All binds, however many are under way, go to the API server over one connection, as protobuf.
func TestBindsShareOneConnection(t *testing.T) {
	var connections connectionsOf
	var waiting sync.WaitGroup // until all are under way
	waiting.Add(parallel)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connections.add(r.RemoteAddr)
		assert.Equal(t, 2, r.ProtoMajor)
		if strings.HasSuffix(r.URL.Path, "/binding") {
			assert.Equal(t, "application/vnd.kubernetes.protobuf", r.Header.Get("Content-Type"))
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			assert.True(t, strings.HasPrefix(string(body), "k8s\x00"), "%q", body)
			waiting.Done()
			waiting.Wait()
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	clients, err := NewClients(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	require.NoError(t, err)
	_, err = clients.Core.CoreV1().Pods("ns").Get(t.Context(), "p", metav1.GetOptions{}) // the connection is there by then
	require.NoError(t, err)
	var binds sync.WaitGroup
	for i := range parallel {
		binds.Go(func() {
			named := metav1.ObjectMeta{Name: "p" + strconv.Itoa(i)}
			binding := &v1.Binding{ObjectMeta: named, Target: v1.ObjectReference{Kind: "Node", Name: "n"}}
			assert.NoError(t, clients.Core.CoreV1().Pods("ns").Bind(t.Context(), binding, metav1.CreateOptions{}))
		})
	}
	binds.Wait()
	assert.Len(t, connections.seen, 1, "%v", connections.seen)
}

// kubeScheduler is a client with the transport that kube-scheduler makes for an extender (makeTransport of its
// extender.go).
func kubeScheduler(secure *http.Client) *http.Client {
	transport := &http.Transport{}
	if secure != nil {
		transport.TLSClientConfig = secure.Transport.(*http.Transport).TLSClientConfig
	}
	return &http.Client{Transport: utilnet.SetTransportDefaults(transport)}
}

// sent asks and notes which connection that went over.
func (c *connectionsOf) sent(t *testing.T, client *http.Client, url string) (protocol int) {
	traced := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) { c.add(got.Conn.LocalAddr().String()) },
	})
	request, err := http.NewRequestWithContext(traced, http.MethodPost, url, strings.NewReader("{}"))
	if !assert.NoError(t, err) {
		return 0
	}
	response, err := client.Do(request)
	if !assert.NoError(t, err) {
		return 0
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	assert.NoError(t, err)
	assert.Equal(t, http.StatusBadRequest, response.StatusCode, "a bind without names")
	return response.ProtoMajor
}

// A kube-scheduler binds each pod in a goroutine of its own. Over TLS all of them share one connection; over plain HTTP
// the connection of one bind is there for the next one, for longer than kube-scheduler keeps it.
func TestConnectionsOfKubeSchedulerAreKept(t *testing.T) {
	ca := newCertificates(t)
	o := secureOptions(ca)
	o.Secure.ClientCAFile = ca.path("ca.crt")
	api := fake.NewClientset(testNode("a"))
	allow(api, "scheduler")
	a := startApp(t, o, api)

	var overTLS connectionsOf
	scheduler := kubeScheduler(ca.client("scheduler", ca.Authority))
	t.Cleanup(scheduler.CloseIdleConnections)
	url := "https://" + addrOf(a, "HTTPS") + "/bind"
	require.Equal(t, 2, overTLS.sent(t, scheduler, url))
	var binds sync.WaitGroup
	for range parallel {
		binds.Go(func() { assert.Equal(t, 2, overTLS.sent(t, scheduler, url)) })
	}
	binds.Wait()
	assert.Len(t, overTLS.seen, 1)

	var plain connectionsOf
	scheduler = kubeScheduler(nil)
	t.Cleanup(scheduler.CloseIdleConnections)
	_, port, err := net.SplitHostPort(addrOf(a, "HTTP"))
	require.NoError(t, err)
	// Not each is kept: the transport gives up a connection of which it does not learn in time that the request is
	// written.
	sent := 0
	for len(plain.seen) == sent && sent < 1000 {
		plain.sent(t, scheduler, "http://127.0.0.1:"+port+"/bind")
		sent++
	}
	assert.Less(t, len(plain.seen), sent)
	log, _ := logtest.NewNullLogger()
	s := newHTTPServer(&machineNetwork{}, anyPort, http.NotFoundHandler(), maxConnections, log)
	assert.Greater(t, s.server.IdleTimeout, scheduler.Transport.(*http.Transport).IdleConnTimeout)
}
