package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// certificateLife is far longer than any run; clocks may differ by an hour backwards.
const certificateLife, clocksDiffer = 365 * 24 * time.Hour, time.Hour

// authority is a certificate authority that lives as long as one control plane.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	pem         []byte
}

// keyPair is a certificate with its key, both in PEM.
type keyPair struct {
	certificate, key []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the CA key: %w", err)
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{
		CommonName: "globalreserve-test-ca", NotBefore: time.Now().Add(-clocksDiffer),
	}, key)
	if err != nil {
		return nil, fmt.Errorf("sign the CA certificate: %w", err)
	}
	encoded, err := cert.EncodeCertificates(certificate)
	return &authority{key: key, certificate: certificate, pem: encoded}, err
}

// pool holds the CA alone.
func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// serving issues a server certificate for the loopback address and the names Kubernetes clients use for the API server.
func (a *authority) serving() (keyPair, error) {
	return a.issue(certificateLife, &x509.Certificate{
		Subject: pkix.Name{CommonName: "localhost"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, firstServiceIP},
	})
}

// client issues a client certificate for so long from now on, or until so long ago: Kubernetes reads the user from the
// common name and the groups from the organizations.
func (a *authority) client(life time.Duration, user string, groups []string) (keyPair, error) {
	return a.issue(life, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *authority) issue(life time.Duration, template *x509.Certificate) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("make a key: %w", err)
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-clocksDiffer), time.Now().Add(life)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("sign the certificate of %q: %w", template.Subject.CommonName, err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	return keyPair{pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}), encoded}, err
}

// writePrivate writes a file only its owner can read.
func writePrivate(path string, content []byte) error { return os.WriteFile(path, content, 0o600) }

// ClientCertificate makes a client certificate of an identity that is valid for so long, or was, in PEM.
func (c *ControlPlane) ClientCertificate(life time.Duration, user string,
	groups ...string,
) (certificate, key []byte, err error) {
	pair, err := c.identities.authority.client(life, user, groups)
	return pair.certificate, pair.key, err
}

// ServingCertificate writes a certificate for the loopback address, signed by the control plane's CA
// (CAFile), and its key, and returns their paths.
func (c *ControlPlane) ServingCertificate(name string) (certFile, keyFile string, err error) {
	pair, err := c.identities.authority.serving()
	if err != nil {
		return "", "", err
	}
	certFile, keyFile = c.path("pki", name+".crt"), c.path("pki", name+".key")
	if err := writePrivate(keyFile, pair.key); err != nil {
		return "", "", err
	}
	return certFile, keyFile, writePrivate(certFile, pair.certificate)
}
