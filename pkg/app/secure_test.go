package app

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

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
	c := &certificates{Authority: authority.New(t), t: t, dir: t.TempDir()}
	require.NoError(t, os.WriteFile(c.path("ca.crt"), c.PEM(), 0o600))
	return c
}

func (c *certificates) path(name string) string { return filepath.Join(c.dir, name) }

// serve writes name.crt and name.key for a server.
func (c *certificates) serve(name string) {
	c.t.Helper()
	pair := c.Issue(name, time.Hour, x509.ExtKeyUsageServerAuth)
	key, err := keyutil.MarshalPrivateKeyToPEM(pair.PrivateKey)
	require.NoError(c.t, err)
	chain, err := cert.EncodeCertificates(pair.Leaf)
	require.NoError(c.t, err)
	require.NoError(c.t, os.WriteFile(c.path(name+".key"), key, 0o600))
	require.NoError(c.t, os.WriteFile(c.path(name+".crt"), chain, 0o600))
}

// client trusts the authority and shows a certificate of that name that another one, or this one, has signed. It has
// none for "".
func (c *certificates) client(name string, by *authority.Authority) *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(c.Certificate)
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
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
			ca.client("scheduler", authority.New(t)),
			map[string]int{"GET /v1/nodes": unauthorized},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for request, want := range tc.want {
				method, path, _ := strings.Cut(request, " ")
				code, body := ask(t, tc.client, method, "https://"+a.secureAddr()+path)
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
		response, err := ca.client("", nil).Get("https://" + a.secureAddr() + "/livez") // over a new connection
		require.NoError(t, err)
		defer response.Body.Close()
		return response.TLS.PeerCertificates[0].SerialNumber.String()
	}
	before := served()
	ca.serve("serving")
	require.Eventually(t, func() bool { return served() != before }, time.Minute, 20*time.Millisecond)
}
