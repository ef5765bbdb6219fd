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
// the same in PEM.
func newCertificate(t *testing.T, host string) (tls.Certificate, []byte) {
	certPEM, keyPEM, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	require.NoError(t, err)
	return pair, certPEM
}

// serveTLS runs a server whose certificate can be changed.
func serveTLS(t *testing.T, certificate *atomic.Pointer[tls.Certificate]) *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"Revision":7}`)
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*certificate.Load()}, NextProtos: []string{"h2", "http/1.1"}}, nil
	}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// A certificate of a known authority is not enough: it must be the server's own.
func TestCertificateOfAnotherHost(t *testing.T) {
	for _, host := range []string{"127.0.0.2", "elsewhere.example.com"} {
		t.Run(host, func(t *testing.T) {
			other, otherPEM := newCertificate(t, host)
			var certificate atomic.Pointer[tls.Certificate]
			certificate.Store(&other)
			server := serveTLS(t, &certificate)
			file := filepath.Join(t.TempDir(), "ca.pem")
			require.NoError(t, os.WriteFile(file, otherPEM, 0o600))
			_, port, err := net.SplitHostPort(server.Listener.Addr().String())
			require.NoError(t, err)
			for _, name := range []string{"127.0.0.1", "localhost"} {
				c := newClient(t, client.Options{URL: "https://" + net.JoinHostPort(name, port), CAFile: file, RetryFor: time.Millisecond})
				_, err := c.Revision(t.Context())
				var failed *tls.CertificateVerificationError
				require.ErrorAs(t, err, &failed)
				var wrong x509.HostnameError
				require.ErrorAs(t, failed.Err, &wrong)
				assert.Equal(t, name, wrong.Host)
			}
		})
	}
}

// wire is a way to a server whose connections can go dead, as they do when a host vanishes:
// nothing that is sent arrives any more, and nobody says so.
type wire struct {
	listener net.Listener
	target   string
	opened   atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
	dead  map[net.Conn]bool
	done  sync.WaitGroup
}

func newWire(t *testing.T, target string) *wire {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{listener: listener, target: target, dead: map[net.Conn]bool{}}
	w.done.Add(1)
	go w.accept()
	t.Cleanup(func() {
		_ = listener.Close()
		w.mu.Lock()
		for _, conn := range w.conns {
			_ = conn.Close()
		}
		w.mu.Unlock()
		w.done.Wait()
	})
	return w
}

func (w *wire) accept() {
	defer w.done.Done()
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.opened.Add(1)
		server, err := net.Dial("tcp", w.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, client, server)
		w.mu.Unlock()
		w.done.Add(2)
		go w.copy(server, client, client)
		go w.copy(client, server, client)
	}
}

// copy passes on what comes, until the connection of that client is dead: then it is swallowed.
func (w *wire) copy(to, from, client net.Conn) {
	defer w.done.Done()
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		w.mu.Lock()
		dead := w.dead[client]
		w.mu.Unlock()
		if dead && err == nil {
			continue
		}
		if !dead && n > 0 {
			_, _ = to.Write(buffer[:n])
		}
		if err != nil {
			if !dead {
				_ = to.Close()
			}
			return
		}
	}
}

// kill makes the connections there are dead.
func (w *wire) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.conns {
		w.dead[conn] = true
	}
}

// A connection that has gone dead is given up after a while, and not used for all requests that
// come, which over HTTP/2 share one.
func TestDeadConnectionIsGivenUp(t *testing.T) {
	own, ownPEM := newCertificate(t, "127.0.0.1")
	var certificate atomic.Pointer[tls.Certificate]
	certificate.Store(&own)
	w := newWire(t, serveTLS(t, &certificate).Listener.Addr().String())
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, ownPEM, 0o600))
	c := newClient(t, client.Options{
		URL: "https://" + w.listener.Addr().String(), CAFile: file, Timeout: 500 * time.Millisecond, RetryFor: eventually,
	})
	_, err := c.Revision(t.Context())
	require.NoError(t, err)
	before := w.opened.Load()
	w.kill()
	_, err = c.Revision(t.Context())
	require.NoError(t, err)
	assert.Greater(t, w.opened.Load(), before)
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
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
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
