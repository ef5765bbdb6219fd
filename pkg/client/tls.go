package client

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
)

// tls is how connections to the server are secured. The files are read here once, so that
// one that is missing is told at the start, and again for every connection.
func (o *Options) tls(base *url.URL) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		if _, err := readAuthorities(o.CAFile); err != nil {
			return nil, err
		}
		// RootCAs would be those of the start for ever. VerifyConnection is called for every
		// connection and does what crypto/tls does itself otherwise.
		config.InsecureSkipVerify = true
		config.VerifyConnection = func(state tls.ConnectionState) error {
			return verify(state, o.CAFile, base.Hostname())
		}
	}
	if o.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile); err != nil {
			return nil, fmt.Errorf("reading the client's certificate: %w", err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
			return &pair, err
		}
	}
	return config, nil
}

// verify makes sure that a connection's certificate is the server's own, and comes from
// an authority in the file.
func verify(state tls.ConnectionState, caFile, host string) error {
	authorities, err := readAuthorities(caFile)
	if err != nil {
		return err
	}
	between := x509.NewCertPool()
	for _, certificate := range state.PeerCertificates[1:] {
		between.AddCert(certificate)
	}
	_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: between,
		// A proxy on the way has a name of its own; the state has none of an IP address.
		DNSName: cmp.Or(state.ServerName, host),
	})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
	}
	return nil
}

func readAuthorities(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the authorities of the server's certificate: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate: give the authorities of the server's certificate, in PEM", file)
	}
	return authorities, nil
}
