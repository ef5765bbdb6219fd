// Package authority issues certificates for tests of what is served by TLS.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/cert"
)

// Authority is the certificate authority of a test.
type Authority struct {
	Certificate *x509.Certificate
	t           testing.TB
	key         *ecdsa.PrivateKey
	issued      int64
}

// New makes an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "ca"}, key)
	require.NoError(t, err)
	return &Authority{Certificate: certificate, t: t, key: key}
}

// PEM is the authority's own certificate.
func (a *Authority) PEM() []byte {
	pem, err := cert.EncodeCertificates(a.Certificate)
	require.NoError(a.t, err)
	return pem
}

// Issue makes a certificate of a user, or of a server at the loopback address, that ends so long from now on.
func (a *Authority) Issue(name string, ends time.Duration, usage x509.ExtKeyUsage, groups ...string) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	a.issued++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.issued), Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(ends),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Certificate, key.Public(), a.key)
	require.NoError(a.t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
