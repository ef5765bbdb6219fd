package openapi

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// Proxy stands in front of a server until the test ends, which fails by what was asked or answered through it that is
// not as the document has it. Where the server does not answer, the connection is closed.
func Proxy(t testing.TB, server string) (address string) {
	t.Helper()
	return TLSProxy(t, server, nil, nil)
}

// TLSProxy is Proxy for a server that serves TLS, with how the proxy serves and how it asks; nil is without TLS.
func TLSProxy(t testing.TB, server string, serves, asks *tls.Config) (address string) {
	t.Helper()
	target, err := url.Parse(server)
	require.NoError(t, err)
	found := &Found{}
	found.Report(t)
	base := &http.Transport{MaxIdleConnsPerHost: 128, TLSClientConfig: asks}
	forward := &httputil.ReverseProxy{
		Transport:     &Transport{Base: base, Found: found},
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Accept-Encoding") // the transport asks for what it can read
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	between := httptest.NewUnstartedServer(forward)
	between.TLS = serves
	if serves == nil {
		between.Start()
	} else {
		between.StartTLS()
	}
	t.Cleanup(func() {
		between.CloseClientConnections()
		between.Close()
		base.CloseIdleConnections()
	})
	return between.URL
}
