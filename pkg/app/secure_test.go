package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/test/authority"
)

// certificates are those of an authority, in files.
type certificates struct {
	*authority.Authority
	t   *testing.T
	dir string
}

func newCertificates(t *testing.T) *certificates {
	t.Helper()
	c := &certificates{Authority: authority.New(), t: t, dir: t.TempDir()}
	require.NoError(t, os.WriteFile(c.path("ca.crt"), c.PEM(), 0o600))
	return c
}

func (c *certificates) path(name string) string { return filepath.Join(c.dir, name) }

// serve writes name.crt and name.key for a server.
func (c *certificates) serve(name string) {
	c.t.Helper()
	chain, key := authority.Pair(c.Issue(name, time.Hour, x509.ExtKeyUsageServerAuth))
	require.NoError(c.t, os.WriteFile(c.path(name+".key"), key, 0o600))
	require.NoError(c.t, os.WriteFile(c.path(name+".crt"), chain, 0o600))
}

// client trusts the authority and shows a certificate of that name that another one, or this one, has signed. It has
// none for "".
func (c *certificates) client(name string, by *authority.Authority) *http.Client {
	config := &tls.Config{RootCAs: c.Pool(), MinVersion: tls.VersionTLS12}
	if name != "" {
		own := by.Issue(name, time.Hour, x509.ExtKeyUsageClientAuth)
		// Also where the server asks for none of that authority.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	c.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func secureOptions(c *certificates) Options {
	c.serve("serving")
	o := testOptions()
	o.Secure = SecureOptions{CertFile: c.path("serving.crt"), KeyFile: c.path("serving.key"), BindAddress: "127.0.0.1"}
	return o
}

// allow has a fake API server give every right to a user.
func allow(client *fake.Clientset, name string) {
	client.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		review.Status.Allowed = review.Spec.User == name
		return true, review, nil
	})
}

// Who may do what over TLS; package identity has the rules.
func TestSecureAccess(t *testing.T) {
	const (
		malformed    = http.StatusBadRequest // reached, and the body is none
		unauthorized = http.StatusUnauthorized
		forbidden    = http.StatusForbidden
	)
	ca := newCertificates(t)
	o := secureOptions(ca)
	o.Secure.ClientCAFile, o.Secure.AdmissionClients = ca.path("ca.crt"), []string{"apiserver"}
	api := fake.NewClientset(testNode("a"))
	allow(api, "scheduler")
	a := startApp(t, o, api)
	cases := map[string]struct {
		client *http.Client
		want   map[string]int
	}{
		"no certificate": {ca.client("", nil), map[string]int{
			"GET /readyz": 200, "GET /livez": 200, "GET /version": 200, "POST /admission": unauthorized,
			"GET /v1/nodes": unauthorized,
			"POST /bind":    unauthorized, "GET /metrics": unauthorized, "GET /nothing": unauthorized,
		}},
		"a scheduler": {ca.client("scheduler", ca.Authority), map[string]int{
			"GET /livez": 200, "POST /admission": forbidden, "GET /v1/nodes": 200, "POST /bind": malformed, "GET /nothing": 404,
			"GET /metrics": 200,
		}},
		"a kubelet": {ca.client("system:node:a", ca.Authority), map[string]int{
			"GET /livez": 200, "POST /admission": forbidden, "GET /v1/nodes": forbidden, "POST /bind": forbidden,
			"GET /metrics": forbidden,
		}},
		"the API server": {ca.client("apiserver", ca.Authority), map[string]int{
			"GET /livez": 200, "POST /admission": malformed, "GET /admission": 405, "POST /bind": forbidden,
		}},
		"a scheduler of another authority": {
			ca.client("scheduler", authority.New()),
			map[string]int{"GET /v1/nodes": unauthorized},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for request, want := range tc.want {
				method, path, _ := strings.Cut(request, " ")
				code, body := ask(t, tc.client, method, "https://"+addrOf(a, "HTTPS")+path)
				assert.Equal(t, want, code, "%s: %s", request, body)
			}
		})
	}
}

// A renewed certificate is served without a restart.
func TestCertificateIsReadAgain(t *testing.T) {
	ca := newCertificates(t)
	a := startApp(t, secureOptions(ca), fake.NewClientset())
	served := func() string {
		response, err := ca.client("", nil).Get("https://" + addrOf(a, "HTTPS") + "/livez") // over a new connection
		require.NoError(t, err)
		defer response.Body.Close()
		return response.TLS.PeerCertificates[0].SerialNumber.String()
	}
	before := served()
	ca.serve("serving")
	require.Eventually(t, func() bool { return served() != before }, time.Minute, 20*time.Millisecond)
}

// What one address sends is bounded where others can reach the port. On loopback all are one, and nobody is refused.
func TestPaceOfPlainHTTP(t *testing.T) {
	for address, bounded := range map[string]bool{"127.0.0.1": false, "0.0.0.0": true} {
		t.Run(address, func(t *testing.T) {
			o := testOptions()
			o.BindAddress, o.AllowInsecureHTTP = address, true
			a := startApp(t, o, fake.NewClientset(testNode("a")))
			refused := 0
			ask := func(from string) int {
				r := httptest.NewRequest(http.MethodGet, "/livez", http.NoBody)
				r.RemoteAddr = from + ":1"
				w := httptest.NewRecorder()
				listenerOf(a, "HTTP").server.Handler.ServeHTTP(w, r)
				return w.Code
			}
			synctest.Test(t, func(*testing.T) { // so in no time, and more than one may send at once
				for range 20_000 {
					if ask("192.0.2.1") == http.StatusTooManyRequests {
						refused++
					}
				}
			})
			assert.Equal(t, bounded, refused > 0, refused)
			assert.Equal(t, http.StatusOK, ask("192.0.2.2"))
			_, metrics := get(t, a, "/metrics")
			assert.Equal(t, !bounded, strings.Contains(metrics, `globalreserve_refused_requests_total{reason="Rate"} 0`+"\n"))
		})
	}
}

// What a web page of another site has a browser send is refused, also where the site's name points to loopback.
func TestOtherSitesAreRefused(t *testing.T) {
	handler := notForBrowsers([]string{"ledger.example.com"}, http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
	}))
	tests := map[string]struct {
		host, local string
		header      map[string]string
		want        int
	}{
		"localhost":               {host: "localhost:23456", local: "127.0.0.1", want: 200},
		"an address":              {host: "127.0.0.1:23456", local: "127.0.0.1", want: 200},
		"an address of IPv6":      {host: "[::1]:23456", local: "::1", want: 200},
		"no port":                 {host: "127.0.0.1", local: "127.0.0.1", want: 200},
		"a name that is given":    {host: "ledger.example.com:23456", local: "127.0.0.1", want: 200},
		"a name that points here": {host: "evil.example.com:23456", local: "127.0.0.1", want: 421},
		"a name like localhost":   {host: "localhost.evil.example.com", local: "::1", want: 421},
		"a Service":               {host: "globalreserve.globalreserve-system.svc:23456", local: "10.0.0.7", want: 200},
		"a page of another site": {
			host: "127.0.0.1:23456", local: "127.0.0.1",
			header: map[string]string{"Sec-Fetch-Site": "cross-site"}, want: 403,
		},
		"a page of another origin": {
			host: "127.0.0.1:23456", local: "127.0.0.1",
			header: map[string]string{"Origin": "https://evil.example.com"}, want: 403,
		},
		"a page of another, sandbox": {
			host: "127.0.0.1:23456", local: "127.0.0.1",
			header: map[string]string{"Origin": "null"}, want: 403,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/bind", http.NoBody)
			r.Host = tt.host
			for key, value := range tt.header {
				r.Header.Set(key, value)
			}
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(tt.local)}))
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			assert.Equal(t, tt.want, w.Code, w.Body)
		})
	}
}
