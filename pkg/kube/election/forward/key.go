package forward

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// Key is what a server shows to others.
type Key struct {
	// Public is what they know it by.
	Public      v1alpha1.PublicKey
	certificate tls.Certificate
}

// newKey makes a key, with the certificate that TLS wants.
func newKey(name string) (*Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key for other servers to know this one by: %w", err)
	}
	// Its dates are not looked at: the clock may be wrong, or be set.
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().AddDate(100, 0, 0), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for other servers: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate for other servers: %w", err)
	}
	return &Key{
		Public:      publicKey(leaf),
		certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf},
	}, nil
}

func publicKey(c *x509.Certificate) v1alpha1.PublicKey {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return v1alpha1.PublicKey(hex.EncodeToString(sum[:]))
}

// ServerTLS is for the peer listener. Clients must prove which key they have; fromServer decides which key counts.
func (k *Key) ServerTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{k.certificate}, ClientAuth: tls.RequireAnyClientCert,
		SessionTicketsDisabled: true, NextProtos: []string{"http/1.1"},
	}
}

// clientTLS is for connections to the server that has a key.
func (k *Key) clientTLS(server v1alpha1.PublicKey) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{k.certificate},
		// No authority vouches for the server: its key is the one in the LedgerTerm, or it is not the server.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it
		VerifyConnection: func(c tls.ConnectionState) error {
			if len(c.PeerCertificates) == 0 || publicKey(c.PeerCertificates[0]) != server {
				return errors.New("it does not have the key of the server that decides")
			}
			return nil
		},
	}
}
