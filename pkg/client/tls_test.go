package client_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certutil "k8s.io/client-go/util/cert"

	"github.com/globalreserve/globalreserve/pkg/client"
)

// newCertificate returns a self-made certificate of a server with that IP address or name, and
// the files it and its key are in.
func newCertificate(t *testing.T, host string) (pair tls.Certificate, certFile, keyFile string) {
	certPEM, keyPEM, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
	require.NoError(t, err)
	pair, err = tls.X509KeyPair(certPEM, keyPEM)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	require.NoError(t, os.WriteFile(certFile, certPEM, 0o600))
	require.NoError(t, os.WriteFile(keyFile, keyPEM, 0o600))
	return pair, certFile, keyFile
}

// serveTLS runs a server that answers all requests with a revision, on a listener of its own or on one that is given.
func serveTLS(t *testing.T, config *tls.Config, over net.Listener) *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"Revision":7}`)
	}))
	if over != nil {
		require.NoError(t, server.Listener.Close())
		server.Listener = over
	}
	server.EnableHTTP2, server.TLS = true, config
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// The server asks for a certificate of its clients.
func TestTLS(t *testing.T) {
	own, certFile, keyFile := newCertificate(t, "127.0.0.1")
	config := &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert}
	server := serveTLS(t, config, nil)
	c := newClient(t, client.Options{URL: server.URL, CAFile: certFile, CertFile: certFile, KeyFile: keyFile})
	_, err := c.Revision(t.Context())
	require.NoError(t, err)
	stranger := newClient(t, client.Options{
		URL: server.URL, CertFile: certFile, KeyFile: keyFile,
		RetryFor: time.Millisecond,
	})
	_, err = stranger.Revision(t.Context())
	require.ErrorContains(t, err, "certificate", "the server's certificate is of nobody it knows")
}

// A certificate of a known authority is not enough: it must be the server's own.
func TestCertificateOfAnotherHost(t *testing.T) {
	for host, name := range map[string]string{"127.0.0.2": "127.0.0.1", "elsewhere.example.com": "localhost"} {
		t.Run(host, func(t *testing.T) {
			own, file, _ := newCertificate(t, host)
			server := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{own}}, nil)
			_, port, err := net.SplitHostPort(server.Listener.Addr().String())
			require.NoError(t, err)
			c := newClient(t, client.Options{
				URL: "https://" + net.JoinHostPort(name, port), CAFile: file,
				RetryFor: time.Millisecond,
			})
			_, err = c.Revision(t.Context())
			var wrong x509.HostnameError
			require.ErrorAs(t, err, &wrong)
			assert.Equal(t, name, wrong.Host)
		})
	}
}

// mortals is a listener whose connections can go dead, as they do when a host vanishes:
// nothing that is sent arrives any more, and nobody says so.
type mortals struct {
	net.Listener
	mu    sync.Mutex
	conns []*mortal
}

type mortal struct {
	net.Conn
	dead atomic.Bool
}

func (m *mortals) Accept() (net.Conn, error) {
	conn, err := m.Listener.Accept()
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conns = append(m.conns, &mortal{Conn: conn})
	return m.conns[len(m.conns)-1], nil
}

// kill makes the connections there are dead, and returns how many that are.
func (m *mortals) kill() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, conn := range m.conns {
		conn.dead.Store(true)
	}
	return len(m.conns)
}

// Read waits, once the connection is dead, for its end.
func (m *mortal) Read(p []byte) (int, error) {
	for {
		if n, err := m.Conn.Read(p); err != nil || !m.dead.Load() {
			return n, err
		}
	}
}

func (m *mortal) Write(p []byte) (int, error) {
	if m.dead.Load() {
		return len(p), nil
	}
	return m.Conn.Write(p)
}

// A connection that has gone dead is given up after a while, and not used for all requests that
// come, which over HTTP/2 share one.
func TestDeadConnectionIsGivenUp(t *testing.T) {
	own, file, _ := newCertificate(t, "127.0.0.1")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	connections := &mortals{Listener: listener}
	server := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{own}}, connections)
	c := newClient(t, client.Options{URL: server.URL, CAFile: file, Timeout: 500 * time.Millisecond, RetryFor: eventually})
	_, err = c.Revision(t.Context())
	require.NoError(t, err)
	before := connections.kill()
	_, err = c.Revision(t.Context())
	require.NoError(t, err)
	assert.Greater(t, connections.kill(), before)
}

// A token says who the client is, as it is in the file now.
func TestToken(t *testing.T) {
	var said string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said = r.Header.Get("Authorization")
		_, _ = w.Write([]byte(`{"Revision": 1}`))
	}))
	t.Cleanup(server.Close)
	ca, token := filepath.Join(t.TempDir(), "ca.crt"), filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().
		Raw}), 0o600))
	require.NoError(t, os.WriteFile(token, []byte("from-file"), 0o600))
	for want, o := range map[string]client.Options{
		"Bearer given":     {Token: "given"},
		"Bearer from-file": {TokenFile: token},
	} {
		o.URL, o.CAFile, o.ServerName = server.URL, ca, "example.com" // as the certificate says
		_, err := newClient(t, o).Revision(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, said)
	}
	_, err := client.New(client.Options{URL: "http://127.0.0.1:1", Token: "x"})
	require.ErrorContains(t, err, "are for https", "nobody else must read it")
}
