// Package authority issues certificates for tests of what is served by TLS. That fails for want of chance alone, by a
// panic.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// before is how long ago certificates became valid: some ended an hour ago, and clocks differ.
const before = 2 * time.Hour

// Authority is a certificate authority that lives as long as a test, or a control plane.
type Authority struct {
	Certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// New makes an authority.
func New() *Authority {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	config := cert.Config{CommonName: "globalreserve-test-ca", NotBefore: time.Now().Add(-before)}
	return &Authority{must(cert.NewSelfSignedCACert(config, key)), key}
}

// PEM is the authority's own certificate.
func (a *Authority) PEM() []byte { return must(cert.EncodeCertificates(a.Certificate)) }

// Pool holds the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.Certificate)
	return pool
}

// Issue makes a certificate of a user, or of a server at the loopback address or by the names of the API server, that
// ends so long from now on, or has. Kubernetes reads the user from the common name and the groups from the
// organizations.
func (a *Authority) Issue(name string, ends time.Duration, usage x509.ExtKeyUsage, groups ...string) tls.Certificate {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-before), NotAfter: time.Now().Add(ends),
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.IPv4(10, 96, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	der := must(x509.CreateCertificate(rand.Reader, template, a.Certificate, key.Public(), a.key))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: must(x509.ParseCertificate(der))}
}

// Pair is a certificate and its key in PEM.
func Pair(of tls.Certificate) (certificate, key []byte) {
	return must(cert.EncodeCertificates(of.Leaf)), must(keyutil.MarshalPrivateKeyToPEM(of.PrivateKey))
}
