package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"

	"github.com/globalreserve/globalreserve/test/authority"
)

const (
	serviceCIDR = "10.96.0.0/16"
	// nodeGracePeriod is how long a node may be silent before the controller manager calls it
	// unreachable. kwok renews a node's lease four times within leaseSeconds; both are longer than
	// in production, so that thousands of fake nodes do not keep a small machine busy.
	nodeGracePeriod = "400s"
	leaseSeconds    = 200
	probeTimeout    = 5 * time.Second
)

// setUpIdentities makes the CA, the certificate all parts serve with, the key of service account
// tokens, and the client of the admin.
func (c *ControlPlane) setUpIdentities() error {
	ca := authority.New()
	c.identities = &identities{authority: ca, dir: c.path("kubeconfig"), pairs: map[string]tls.Certificate{}}
	accountKey, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	if _, _, err := c.ServingCertificate("serving"); err != nil {
		return err
	}
	if err := errors.Join(writePrivate(c.CAFile(), ca.PEM()), writePrivate(c.accountKey(), accountKey)); err != nil {
		return err
	}
	if c.apiPort, err = c.ports.take(); err != nil {
		return err
	}
	config := c.AdminRESTConfig()
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	c.dynamic, err = dynamic.NewForConfig(config)
	return err
}

// CAFile is the certificate of the CA that signs every certificate of the control plane, in PEM.
func (c *ControlPlane) CAFile() string             { return c.path("pki", "ca.crt") }
func (c *ControlPlane) servingCertificate() string { return c.path("pki", "serving.crt") }
func (c *ControlPlane) servingKey() string         { return c.path("pki", "serving.key") }
func (c *ControlPlane) accountKey() string         { return c.path("pki", "service-account.key") }

func (c *ControlPlane) startEtcdAndAPIServer(ctx context.Context) error {
	clientPort, err := c.ports.take()
	if err != nil {
		return err
	}
	peerPort, err := c.ports.take()
	if err != nil {
		return err
	}
	clientURL := "http://127.0.0.1:" + strconv.Itoa(clientPort)
	c.etcdURL = clientURL
	peerURL := "http://127.0.0.1:" + strconv.Itoa(peerPort)
	args := []string{
		"--name=default", "--data-dir=" + c.path("etcd"),
		"--listen-client-urls=" + clientURL, "--advertise-client-urls=" + clientURL,
		"--listen-peer-urls=" + peerURL, "--initial-advertise-peer-urls=" + peerURL,
		"--initial-cluster=default=" + peerURL, "--quota-backend-bytes=8589934592",
		// A killed process loses nothing by it, only a crash of the whole machine does.
		"--unsafe-no-fsync",
		"--log-level=warn",
	}
	_, err = c.StartProcess(ctx, ProcessOptions{
		Name: Etcd, Path: filepath.Join(c.bin, Etcd), Args: args, Ready: HTTPReady(clientURL+"/health", nil),
	})
	if err != nil {
		return err
	}
	return c.startAPIServer(ctx, clientURL)
}

// WebhookClient is the user of the client certificate that the API server shows to webhooks: the one that
// manifests/admission names.
const WebhookClient = "kube-apiserver-kubelet-client"

// webhookClientConfig has the API server show webhooks who it is, and returns the file that says so.
func (c *ControlPlane) webhookClientConfig() (string, error) {
	certificate, key := authority.Pair(c.identities.pair(WebhookClient, nil))
	users := clientcmdapi.NewConfig()
	users.AuthInfos["*"] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	kubeconfig := c.path("config", "webhook-client.kubeconfig")
	if err := clientcmd.WriteToFile(*users, kubeconfig); err != nil {
		return "", fmt.Errorf("write who the API server is to webhooks: %w", err)
	}
	config := c.path("config", "admission.yaml")
	content := `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
`
	for _, plugin := range []string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"} {
		content += `- name: ` + plugin + `
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: ` + kubeconfig + "\n"
	}
	return config, writePrivate(config, []byte(content))
}

func (c *ControlPlane) startAPIServer(ctx context.Context, etcdURL string) error {
	admission, err := c.webhookClientConfig()
	if err != nil {
		return err
	}
	args := []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(c.apiPort),
		// The loopback address cannot be an endpoint of the kubernetes Service.
		"--endpoint-reconciler-type=none", "--advertise-address=127.0.0.1",
		"--tls-cert-file=" + c.servingCertificate(), "--tls-private-key-file=" + c.servingKey(),
		"--client-ca-file=" + c.CAFile(),
		// Unused, but every part logs an error for as long as it is not set.
		"--requestheader-client-ca-file=" + c.CAFile(), "--requestheader-allowed-names=front-proxy-client",
		"--service-account-issuer=https://kubernetes.default.svc",
		// With its private half the controller manager signs, too, and the API server reads the public one out of it.
		"--service-account-key-file=" + c.accountKey(), "--service-account-signing-key-file=" + c.accountKey(),
		"--service-cluster-ip-range=" + serviceCIDR,
		"--authorization-mode=Node,RBAC",
		"--admission-control-config-file=" + admission,
		// Without it, a graceful stop waits a minute for clients to end their watches.
		"--shutdown-watch-termination-grace-period=1s",
		"--allow-privileged=true",
	}
	if !c.options.Workloads {
		// Nobody makes the default service account of a namespace, nor takes the not-ready taint off a new node.
		args = append(args, "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition")
	}
	args = append(args, c.commonArgs()...)
	_, err = c.StartProcess(ctx, ProcessOptions{
		Name: APIServer, Path: filepath.Join(c.bin, APIServer),
		Args: append(args, c.options.APIServerArgs...), Ready: c.secureReady(c.URL() + "/readyz"),
	})
	return err
}

func (c *ControlPlane) startControllerManager(ctx context.Context) error {
	args, url, err := c.secureArgs("system:kube-controller-manager")
	if err != nil {
		return err
	}
	args = append(args,
		"--leader-elect=false",
		// The bootstrap roles are written for one identity per controller.
		"--use-service-account-credentials=true",
		"--flex-volume-plugin-dir="+c.path("flexvolume"),
		"--node-monitor-grace-period="+nodeGracePeriod,
		"--root-ca-file="+c.CAFile(),
		"--service-account-private-key-file="+c.accountKey(),
		"--kube-api-qps=1000", "--kube-api-burst=2000",
	)
	kubeconfig, err := c.Kubeconfig("system:kube-controller-manager")
	if err != nil {
		return err
	}
	args = append(args, "--kubeconfig="+kubeconfig)
	args = append(args, c.commonArgs()...)
	_, err = c.StartProcess(ctx, ProcessOptions{
		Name: ControllerManager, Path: filepath.Join(c.bin, ControllerManager), Args: args,
		Ready: c.secureReady(url + "/healthz"),
	})
	return err
}

// secureArgs are the flags kube-scheduler and kube-controller-manager share: where they serve, with
// which certificate, and that anybody may read their metrics.
func (c *ControlPlane) secureArgs(user string) (args []string, url string, err error) {
	port, err := c.ports.take()
	if err != nil {
		return nil, "", err
	}
	kubeconfig, err := c.Kubeconfig(user)
	if err != nil {
		return nil, "", err
	}
	return []string{
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + c.servingCertificate(), "--tls-private-key-file=" + c.servingKey(),
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics",
	}, "https://127.0.0.1:" + strconv.Itoa(port), nil
}

// commonArgs are the flags every Kubernetes part understands.
func (c *ControlPlane) commonArgs() []string {
	if len(c.options.FeatureGates) == 0 {
		return nil
	}
	var gates []string
	for _, name := range slices.Sorted(maps.Keys(c.options.FeatureGates)) {
		gates = append(gates, name+"="+strconv.FormatBool(c.options.FeatureGates[name]))
	}
	return []string{"--feature-gates=" + strings.Join(gates, ",")}
}

// secureReady is HTTPReady for a part that serves with a certificate of the CA.
func (c *ControlPlane) secureReady(url string) ReadyFunc {
	return HTTPReady(url, &tls.Config{RootCAs: c.identities.authority.Pool(), MinVersion: tls.VersionTLS12})
}

// HTTPReady returns a ReadyFunc that is satisfied by a 200 from the URL. The TLS configuration may
// be nil. No connection stays open between two calls.
func HTTPReady(url string, config *tls.Config) ReadyFunc {
	client := &http.Client{
		Timeout:   probeTimeout,
		Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true},
	}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, logTailBytes))
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s: %s", url, response.Status, body)
		}
		return nil
	}
}
