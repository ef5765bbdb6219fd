package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// certificateLife is far longer than any run; clocks may differ by an hour backwards.
const certificateLife = 365 * 24 * time.Hour

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
	template, err := certificateTemplate(pkix.Name{CommonName: "globalreserve-test-ca"})
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the CA certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the CA certificate back: %w", err)
	}
	return &authority{key: key, certificate: certificate, pem: encodePEM("CERTIFICATE", der)}, nil
}

// pool holds the CA alone.
func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// serving issues a server certificate for the loopback address and the names Kubernetes clients use for the API server.
func (a *authority) serving() (keyPair, error) {
	template, err := certificateTemplate(pkix.Name{CommonName: "localhost"})
	if err != nil {
		return keyPair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, firstServiceIP}
	return a.issue(template)
}

// client issues a client certificate: Kubernetes reads the user from the common name and the
// groups from the organizations.
func (a *authority) client(user string, groups []string) (keyPair, error) {
	return a.clientFor(certificateLife, user, groups)
}

// clientFor is client for so long from now on, or until so long ago.
func (a *authority) clientFor(life time.Duration, user string, groups []string) (keyPair, error) {
	template, err := certificateTemplate(pkix.Name{CommonName: user, Organization: groups})
	if err != nil {
		return keyPair{}, err
	}
	template.NotAfter = time.Now().Add(life)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("sign the certificate of %q: %w", template.Subject.CommonName, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{certificate: encodePEM("CERTIFICATE", der), key: keyPEM}, nil
}

func certificateTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(certificateLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}, nil
}

// newServiceAccountKey returns the key pair of service account tokens: the API server and the
// controller manager sign with the private half, the API server checks with the public one.
func newServiceAccountKey() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make the service account key: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("encode the service account key: %w", err)
	}
	private, err = encodeKey(key)
	return private, encodePEM("PUBLIC KEY", der), err
}

func encodeKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return encodePEM("PRIVATE KEY", der), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// writePrivate writes a file only its owner can read.
func writePrivate(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// ClientCertificate makes a client certificate of an identity that is valid for so long, or was, in PEM.
func (c *ControlPlane) ClientCertificate(life time.Duration, user string,
	groups ...string,
) (certificate, key []byte, err error) {
	pair, err := c.identities.authority.clientFor(life, user, groups)
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
