package app

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/fake"
)

// Beside plain HTTP on loopback the page asks nobody who they are, and reads only.
func TestPageOnLoopback(t *testing.T) {
	o := testOptions()
	o.UIAddress = "127.0.0.1:0"
	a := startApp(t, o, fake.NewClientset(testNode("a")))
	url := "http://" + addrOf(a, "page")
	code, page := ask(t, http.DefaultClient, http.MethodGet, url+"/")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, page, "<title>GlobalReserve</title>")
	code, nodes := ask(t, http.DefaultClient, http.MethodGet, url+"/v1/nodes")
	assert.Equal(t, http.StatusOK, code, nodes)
	assert.Contains(t, nodes, `"Name":"a"`)
	for _, target := range []string{
		"POST /reserve", "POST /bind", "GET /v1/whatif", "GET /debug/ledger",
		"GET /debug/diff", "GET /metrics", "GET /readyz",
	} {
		method, path, _ := strings.Cut(target, " ")
		code, _ := ask(t, http.DefaultClient, method, url+path)
		assert.GreaterOrEqual(t, code, 400, target)
	}
	code, _ = ask(t, http.DefaultClient, http.MethodGet, url+"/", func(r *http.Request) { r.Host = "evil.example.com" })
	assert.Equal(t, http.StatusMisdirectedRequest, code, "a site had its name point to loopback")
	code, answer := ask(t, http.DefaultClient, http.MethodPost, url+"/v1/whatif")
	assert.Equal(t, http.StatusBadRequest, code, answer)
}

// Without plain HTTP whoever reaches loopback is nobody in particular there, and so on the page's port: a port that is
// forwarded to a pod comes by loopback, too.
func TestPageAsksWhoYouAre(t *testing.T) {
	ca := newCertificates(t)
	o := secureOptions(ca)
	o.BindAddress, o.UIAddress = "", "127.0.0.1:0"
	a := startApp(t, o, fake.NewClientset(testNode("a")))
	code, _ := ask(t, http.DefaultClient, http.MethodGet, "http://"+addrOf(a, "page")+"/")
	assert.Equal(t, http.StatusOK, code, "the page itself says nothing about the cluster")
	for _, target := range []string{"GET /v1/nodes", "GET /v1/nodes/a", "GET /v1/watch", "POST /v1/whatif"} {
		method, path, _ := strings.Cut(target, " ")
		code, answer := ask(t, http.DefaultClient, method, "http://"+addrOf(a, "page")+path)
		assert.Equal(t, http.StatusUnauthorized, code, answer)
	}
}

// Off loopback the page is served over TLS, with the certificate of the server's other port.
func TestPageOverTLS(t *testing.T) {
	ca := newCertificates(t)
	o := secureOptions(ca)
	o.UIAddress = "0.0.0.0:0"
	a := startApp(t, o, fake.NewClientset(testNode("a")))
	_, port, err := net.SplitHostPort(addrOf(a, "page"))
	require.NoError(t, err)
	url := "https://127.0.0.1:" + port
	code, page := ask(t, ca.client("", nil), http.MethodGet, url+"/")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, page, "<title>GlobalReserve</title>")
	code, answer := ask(t, ca.client("", nil), http.MethodGet, url+"/v1/nodes")
	assert.Equal(t, http.StatusUnauthorized, code, answer)
}
