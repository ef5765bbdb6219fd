package controlplane

import (
	"os"
	"path/filepath"
)

// ServingCertificate writes a certificate for the loopback address, signed by the control plane's CA
// (CAFile), and its key, and returns their paths. Every call with the same name replaces them by new
// ones, as a certificate's renewal does: each file by a rename, the key first.
func (c *ControlPlane) ServingCertificate(name string) (certFile, keyFile string, err error) {
	pair, err := c.identities.authority.serving()
	if err != nil {
		return "", "", err
	}
	certFile, keyFile = c.path("pki", name+".crt"), c.path("pki", name+".key")
	if err := replacePrivate(keyFile, pair.key); err != nil {
		return "", "", err
	}
	return certFile, keyFile, replacePrivate(certFile, pair.certificate)
}

func replacePrivate(path string, content []byte) error {
	next := filepath.Join(filepath.Dir(path), ".new-"+filepath.Base(path))
	if err := writePrivate(next, content); err != nil {
		return err
	}
	return os.Rename(next, path)
}
