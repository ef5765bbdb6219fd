package controlplane

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/globalreserve/globalreserve/test/authority"
)

// AdminUser is the user of AdminKubeconfig and Client; its group passes every authorization check.
const (
	AdminUser  = "admin"
	AdminGroup = "system:masters"
)

// certificateLife is far longer than any run.
const certificateLife = 365 * 24 * time.Hour

const protobufContentType = "application/vnd.kubernetes.protobuf"

// identities issues client certificates and writes kubeconfigs, one per user, groups and server.
type identities struct {
	authority *authority.Authority
	dir       string

	mu    sync.Mutex // guards pairs and the files in dir
	pairs map[string]tls.Certificate
}

// pair returns the client certificate of an identity, the same one every time.
func (i *identities) pair(user string, groups []string) tls.Certificate {
	key := user + "\x00" + strings.Join(groups, "\x00")
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, known := i.pairs[key]; !known {
		i.pairs[key] = i.authority.Issue(user, certificateLife, x509.ExtKeyUsageClientAuth, groups...)
	}
	return i.pairs[key]
}

func (i *identities) restConfig(server, user string, groups []string) *rest.Config {
	certificate, key := authority.Pair(i.pair(user, groups))
	return &rest.Config{
		Host:            server,
		TLSClientConfig: rest.TLSClientConfig{CAData: i.authority.PEM(), CertData: certificate, KeyData: key},
		ContentConfig: rest.ContentConfig{
			ContentType:        protobufContentType,
			AcceptContentTypes: protobufContentType + ",application/json",
		},
		QPS: -1,
	}
}

func (i *identities) kubeconfig(server, user string, groups []string) (string, error) {
	certificate, key := authority.Pair(i.pair(user, groups))
	const entry = "globalreserve-test"
	config := clientcmdapi.NewConfig()
	config.Clusters[entry] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: i.authority.PEM()}
	config.AuthInfos[entry] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	config.Contexts[entry] = &clientcmdapi.Context{Cluster: entry, AuthInfo: entry}
	config.CurrentContext = entry
	path := filepath.Join(i.dir, kubeconfigName(server, user, groups))
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("write the kubeconfig of %q: %w", user, err)
	}
	return path, nil
}

// kubeconfigName is readable and yet different for every identity and server.
func kubeconfigName(server, user string, groups []string) string {
	hash := sha256.Sum256([]byte(strings.Join(append([]string{server, user}, groups...), "\x00")))
	return fmt.Sprintf("%s-%x.kubeconfig", strings.NewReplacer(":", "_", "/", "_").Replace(user), hash[:4])
}

// Kubeconfig returns the path of a kubeconfig that authenticates as the user with the groups, by a
// client certificate. A service account is the user system:serviceaccount:NAMESPACE:NAME in the
// groups system:serviceaccounts and system:serviceaccounts:NAMESPACE.
func (c *ControlPlane) Kubeconfig(user string, groups ...string) (string, error) {
	return c.identities.kubeconfig(c.URL(), user, groups)
}

// AdminKubeconfig returns the path of a kubeconfig that may do everything.
func (c *ControlPlane) AdminKubeconfig() (string, error) {
	return c.Kubeconfig(AdminUser, AdminGroup)
}

// RESTConfig returns a client configuration for the user with the groups: no client-side limit on requests per second,
// and protobuf where the type allows it. Set ContentType back for a client of custom resources.
func (c *ControlPlane) RESTConfig(user string, groups ...string) *rest.Config {
	return c.identities.restConfig(c.URL(), user, groups)
}

// AdminRESTConfig returns RESTConfig for an identity that may do everything.
func (c *ControlPlane) AdminRESTConfig() *rest.Config {
	return c.RESTConfig(AdminUser, AdminGroup)
}

// Client returns a clientset that may do everything. All callers share it.
func (c *ControlPlane) Client() kubernetes.Interface { return c.client }

// writePrivate writes a file only its owner can read.
func writePrivate(path string, content []byte) error { return os.WriteFile(path, content, 0o600) }

// ClientCertificate makes a client certificate of an identity that is valid for so long, or was.
func (c *ControlPlane) ClientCertificate(life time.Duration, user string, groups ...string) tls.Certificate {
	return c.identities.authority.Issue(user, life, x509.ExtKeyUsageClientAuth, groups...)
}

// ServingCertificate writes a certificate for the loopback address, signed by the control plane's CA
// (CAFile), and its key, and returns their paths.
func (c *ControlPlane) ServingCertificate(name string) (certFile, keyFile string, err error) {
	pair := c.identities.authority.Issue("localhost", certificateLife, x509.ExtKeyUsageServerAuth)
	certificate, key := authority.Pair(pair)
	certFile, keyFile = c.path("pki", name+".crt"), c.path("pki", name+".key")
	if err := writePrivate(keyFile, key); err != nil {
		return "", "", err
	}
	return certFile, keyFile, writePrivate(certFile, certificate)
}
