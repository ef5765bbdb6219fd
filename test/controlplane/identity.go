package controlplane

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// AdminUser is the user of AdminKubeconfig and Client; its group passes every authorization check.
const (
	AdminUser  = "admin"
	AdminGroup = "system:masters"
)

const protobufContentType = "application/vnd.kubernetes.protobuf"

// identities issues client certificates and writes kubeconfigs, one per user, groups and server.
type identities struct {
	authority *authority
	dir       string

	mu    sync.Mutex // guards pairs and the files in dir
	pairs map[string]keyPair
}

func newIdentities(authority *authority, dir string) *identities {
	return &identities{authority: authority, dir: dir, pairs: map[string]keyPair{}}
}

// pair returns the client certificate of an identity, the same one every time.
func (i *identities) pair(user string, groups []string) (keyPair, error) {
	key := user + "\x00" + strings.Join(groups, "\x00")
	i.mu.Lock()
	defer i.mu.Unlock()
	if pair, known := i.pairs[key]; known {
		return pair, nil
	}
	pair, err := i.authority.client(certificateLife, user, groups)
	if err != nil {
		return keyPair{}, err
	}
	i.pairs[key] = pair
	return pair, nil
}

func (i *identities) restConfig(server, user string, groups []string) (*rest.Config, error) {
	pair, err := i.pair(user, groups)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: server,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: i.authority.pem, CertData: pair.certificate, KeyData: pair.key,
		},
		ContentConfig: rest.ContentConfig{
			ContentType:        protobufContentType,
			AcceptContentTypes: protobufContentType + ",application/json",
		},
		QPS: -1,
	}, nil
}

func (i *identities) kubeconfig(server, user string, groups []string) (string, error) {
	pair, err := i.pair(user, groups)
	if err != nil {
		return "", err
	}
	const entry = "globalreserve-test"
	config := clientcmdapi.NewConfig()
	config.Clusters[entry] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: i.authority.pem}
	config.AuthInfos[entry] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.certificate, ClientKeyData: pair.key}
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
func (c *ControlPlane) RESTConfig(user string, groups ...string) (*rest.Config, error) {
	return c.identities.restConfig(c.URL(), user, groups)
}

// AdminRESTConfig returns RESTConfig for an identity that may do everything.
func (c *ControlPlane) AdminRESTConfig() (*rest.Config, error) {
	return c.RESTConfig(AdminUser, AdminGroup)
}

// Client returns a clientset that may do everything. All callers share it.
func (c *ControlPlane) Client() kubernetes.Interface { return c.client }
