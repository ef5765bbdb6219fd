package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
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
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/cert"
)

// authority issues certificates for a test.
type authority struct {
	t           *testing.T
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	serial      int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	ca := &authority{t: t, dir: t.TempDir()}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca.certificate, err = cert.NewSelfSignedCACert(cert.Config{CommonName: "ca"}, key)
	require.NoError(t, err)
	ca.key = key
	ca.write("ca.crt", "CERTIFICATE", ca.certificate.Raw)
	return ca
}

func (ca *authority) path(name string) string { return filepath.Join(ca.dir, name) }

func (ca *authority) write(name, kind string, der []byte) {
	content := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	require.NoError(ca.t, os.WriteFile(ca.path(name), content, 0o600))
}

// issue writes name.crt and name.key for the loopback address.
func (ca *authority) issue(name string) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(ca.t, err)
	ca.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(ca.serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, key.Public(), ca.key)
	require.NoError(ca.t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(ca.t, err)
	ca.write(name+".key", "PRIVATE KEY", keyDER)
	ca.write(name+".crt", "CERTIFICATE", der)
}

// client trusts the authority and shows a certificate of that name, none for "".
func (ca *authority) client(name string) *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(ca.certificate)
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if name != "" {
		certificate, err := tls.LoadX509KeyPair(ca.path(name+".crt"), ca.path(name+".key"))
		require.NoError(ca.t, err)
		config.Certificates = []tls.Certificate{certificate}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	ca.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func secureOptions(ca *authority) Options {
	ca.issue("serving")
	o := testOptions()
	o.Secure = SecureOptions{CertFile: ca.path("serving.crt"), KeyFile: ca.path("serving.key"), BindAddress: "127.0.0.1"}
	return o
}

func ask(t *testing.T, client *http.Client, a *App, method, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "https://"+a.SecureAddr()+path, strings.NewReader("{}"))
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	return read(t, response)
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
	cases := map[string]struct {
		client string
		want   map[string]int
	}{
		"no certificate": {want: map[string]int{
			"GET /readyz": 200, "GET /livez": 200, "GET /version": 200, "POST /admission": unauthorized, "GET /v1/nodes": unauthorized,
			"POST /bind": unauthorized, "GET /metrics": unauthorized, "GET /nothing": unauthorized,
		}},
		"a scheduler": {client: "scheduler", want: map[string]int{
			"GET /livez": 200, "POST /admission": forbidden, "GET /v1/nodes": 200, "POST /bind": malformed, "GET /nothing": 404, "GET /metrics": 200,
		}},
		"a kubelet": {client: "system:node:a", want: map[string]int{
			"GET /livez": 200, "POST /admission": forbidden, "GET /v1/nodes": forbidden, "POST /bind": forbidden, "GET /metrics": forbidden,
		}},
		"the API server": {client: "apiserver", want: map[string]int{
			"GET /livez": 200, "POST /admission": malformed, "GET /admission": 405, "POST /bind": forbidden,
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ca := newAuthority(t)
			o := secureOptions(ca)
			o.Secure.ClientCAFile, o.Secure.AdmissionClients = ca.path("ca.crt"), []string{"apiserver"}
			if tc.client != "" {
				ca.issue(tc.client)
			}
			api := fake.NewClientset(testNode("a"))
			allow(api, "scheduler")
			a, _ := startApp(t, o, api)
			require.NoError(t, a.WaitReady(t.Context()))
			client := ca.client(tc.client)
			for request, want := range tc.want {
				method, path, _ := strings.Cut(request, " ")
				code, body := ask(t, client, a, method, path)
				assert.Equal(t, want, code, "%s: %s", request, body)
			}
		})
	}
}

// A client certificate of another authority is none, which the answer says.
func TestForeignClientCertificate(t *testing.T) {
	ca, foreign := newAuthority(t), newAuthority(t)
	o := secureOptions(ca)
	o.Secure.ClientCAFile = ca.path("ca.crt")
	a, _ := startApp(t, o, fake.NewClientset())
	foreign.issue("scheduler")
	client := foreign.client("scheduler")
	config := client.Transport.(*http.Transport).TLSClientConfig
	config.RootCAs.AddCert(ca.certificate)
	own := config.Certificates[0]
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil } // though nobody asks for such
	code, body := ask(t, client, a, http.MethodGet, "/v1/nodes")
	assert.Equal(t, http.StatusUnauthorized, code, body)
}

// A renewed certificate is served without a restart.
func TestCertificateIsReadAgain(t *testing.T) {
	ca := newAuthority(t)
	a, _ := startApp(t, secureOptions(ca), fake.NewClientset())
	served := func() string {
		client := ca.client("") // a new connection
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+a.SecureAddr()+"/livez", http.NoBody)
		require.NoError(t, err)
		response, err := client.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		return response.TLS.PeerCertificates[0].SerialNumber.String()
	}
	before := served()
	ca.issue("serving")
	require.Eventually(t, func() bool { return served() != before }, time.Minute, 20*time.Millisecond)
}

// Until the account is complete, the webhook answers with an error: its failurePolicy decides.
func TestWebhookIsGated(t *testing.T) {
	ca := newAuthority(t)
	o := secureOptions(ca)
	o.Secure.AdmissionClients = []string{user.Anonymous}
	a, _ := startUnfenced(t, o, fake.NewClientset()) // it waits for what one before it may have sent
	code, body := ask(t, ca.client(""), a, http.MethodPost, "/admission")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, `"Error"`)
}

func TestWebhookIsNotServedWithoutTLS(t *testing.T) {
	a, _ := startApp(t, testOptions(), fake.NewClientset())
	require.NoError(t, a.WaitReady(t.Context()))
	assert.Empty(t, a.SecureAddr())
	require.Eventually(t, func() bool {
		code, _ := post(t, a, "/admission", "{}")
		return code == http.StatusNotFound
	}, 10*time.Second, 20*time.Millisecond)
}

func TestSecureOptions(t *testing.T) {
	cases := map[string]struct {
		change func(*SecureOptions)
		want   string
	}{
		"certificate alone":     {change: func(o *SecureOptions) { o.CertFile = "x" }, want: "belong together"},
		"key alone":             {change: func(o *SecureOptions) { o.KeyFile = "x" }, want: "belong together"},
		"bad address":           {change: func(o *SecureOptions) { o.BindAddress = "localhost" }, want: "--secure-bind-address"},
		"bad port":              {change: func(o *SecureOptions) { o.Port = 70000 }, want: "--secure-port"},
		"client CA without TLS": {change: func(o *SecureOptions) { o.ClientCAFile = "x" }, want: "--client-ca-file needs TLS"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := testOptions()
			tc.change(&o.Secure)
			require.ErrorContains(t, o.Validate(), tc.want)
		})
	}
}

func TestSecureStartErrors(t *testing.T) {
	ca := newAuthority(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	cases := map[string]struct {
		change func(*SecureOptions)
		want   string
	}{
		"no certificate": {change: func(o *SecureOptions) { o.CertFile += ".gone" }, want: "--tls-cert-file"},
		"other key":      {change: func(o *SecureOptions) { ca.issue("other"); o.KeyFile = ca.path("other.key") }, want: "--tls-cert-file"},
		"no client CA":   {change: func(o *SecureOptions) { o.ClientCAFile = ca.path("gone") }, want: "--client-ca-file"},
		"port taken":     {change: func(o *SecureOptions) { o.Port = taken.Addr().(*net.TCPAddr).Port }, want: "choose another with --secure-port"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := secureOptions(ca)
			tc.change(&o.Secure)
			a, err := New(o, testClients(fake.NewClientset()), &logBuffer{})
			require.NoError(t, err)
			require.ErrorContains(t, a.Start(t.Context()), tc.want)
		})
	}
}
