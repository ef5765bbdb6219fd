package testbed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/openapi"
)

const (
	// Namespace is where pods are, unless a test has namespaces of its own.
	Namespace = corev1.NamespaceDefault
	// Poll is how often a condition is looked at.
	Poll = 20 * time.Millisecond
	// Never is for how long something is watched that must not happen.
	Never = 1500 * time.Millisecond
)

// Soon is how long a condition may take to come true.
var Soon = controlplane.Patience

// Cluster is a control plane in the hands of one test, with what judges it and, mostly, a GlobalReserve server.
type Cluster struct {
	*controlplane.ControlPlane
	T         testing.TB
	Namespace string
	// Objects is a client of our kinds that may do everything.
	Objects versioned.Interface
	Watcher *clusterload.Watcher
	// Server is the server, nil where there is none, and Ledger whoever serves the ledger.
	Server *Server
	Ledger Caller
	// KubeScheduler is what StartKubeScheduler starts, but for name and configuration. Default: that of the control plane.
	KubeScheduler controlplane.SchedulerOptions
	// Proxy stands between the server, and nobody else, and the API server where one was asked for.
	Proxy *controlplane.FaultProxy
}

// NewCluster follows all pods and nodes until the test ends, and shows its pods to those who look. The test fails where
// a server was asked or has answered what the OpenAPI document does not have.
func NewCluster(t testing.TB, cp *controlplane.ControlPlane, look ...clusterload.PodFunc) Cluster {
	t.Helper()
	undocumented.Report(t)
	config := cp.AdminRESTConfig()
	config.ContentType = "application/json" // our kinds have no protobuf form
	objects, err := versioned.NewForConfig(config)
	require.NoError(t, err)
	watcher := clusterload.NewWatcher(cp.Client(), look...)
	require.NoError(t, watcher.Start(t.Context()))
	t.Cleanup(watcher.Stop)
	return Cluster{ControlPlane: cp, T: t, Namespace: Namespace, Objects: objects, Watcher: watcher}
}

// In gives a subtest a namespace of its own.
func (c *Cluster) In(t testing.TB, namespace string) Cluster {
	t.Helper()
	inner := *c
	inner.T, inner.Namespace = t, namespace
	require.NoError(t, c.CreateNamespace(t.Context(), namespace))
	return inner
}

// StartServer starts the server.
func (c *Cluster) StartServer(o clusterload.ServerOptions) {
	c.T.Helper()
	c.Server = StartServer(c.T, c.ControlPlane, o)
	c.Ledger = c.Server.Caller
}

// StartAsked starts the server, and has the API server ask it about pods and bindings.
func (c *Cluster) StartAsked(o clusterload.ServerOptions) *clusterload.Webhook {
	c.T.Helper()
	webhook, err := clusterload.NewWebhook(c.ControlPlane)
	require.NoError(c.T, err)
	o.Args = slices.Concat(webhook.Args, o.Args)
	c.StartServer(o)
	require.NoError(c.T, webhook.Install(c.T.Context(), c.ControlPlane, nil))
	return webhook
}

// StartKubeScheduler starts a kube-scheduler with a file of scheduler-config/, in front of the ledger or,
// without one, on its own. edits are texts of the file, each with what is put in its place.
func (c *Cluster) StartKubeScheduler(name, file string, edits ...string) {
	c.T.Helper()
	config, err := clusterload.SchedulerConfig(file, c.Documented())
	require.NoError(c.T, err)
	for i := 0; i < len(edits); i += 2 {
		require.Contains(c.T, string(config), edits[i])
	}
	config = []byte(strings.NewReplacer(edits...).Replace(string(config)))
	scheduler := c.KubeScheduler
	scheduler.Name, scheduler.Config = name, config
	require.NoError(c.T, c.RunScheduler(c.T.Context(), scheduler))
}

// Documented is where other programs ask whoever serves the ledger now, so that what they ask and are answered is held
// against the OpenAPI document. For what goes over TLS there is DocumentedTLS.
func (c *Cluster) Documented() (url string) {
	c.T.Helper()
	if !strings.HasPrefix(c.Ledger.URL, "http:") {
		return c.Ledger.URL
	}
	return openapi.Proxy(c.T, c.Ledger.URL)
}

// DocumentedTLS is where one user, with a certificate, asks a server that serves TLS, as Documented has it. The proxy
// asks with a certificate of the same user.
func (c *Cluster) DocumentedTLS(server, user string) (url string) {
	c.T.Helper()
	certFile, keyFile, err := c.ServingCertificate("documented-" + user)
	require.NoError(c.T, err)
	serving, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(c.T, err)
	asks := c.ClientTLS(user)
	return openapi.TLSProxy(c.T, server,
		&tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{serving},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: asks.RootCAs,
			VerifyConnection: func(with tls.ConnectionState) error {
				if shown := with.PeerCertificates[0].Subject.CommonName; shown != user {
					return fmt.Errorf("this is for %s, and not for %s", user, shown)
				}
				return nil
			},
		}, asks)
}

// ClientTLS is how a user speaks TLS, with a certificate of the cluster's authority; "" is somebody without one.
func (c *Cluster) ClientTLS(user string, groups ...string) *tls.Config {
	c.T.Helper()
	ca, err := os.ReadFile(c.CAFile())
	require.NoError(c.T, err)
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	require.True(c.T, config.RootCAs.AppendCertsFromPEM(ca))
	if user != "" {
		config.Certificates = []tls.Certificate{c.ClientCertificate(time.Hour, user, groups...)}
	}
	return config
}

// AddNodes creates nodes, of 4 CPUs and 16 GiB unless the template says otherwise.
func (c *Cluster) AddNodes(n int, template controlplane.NodeTemplate) []string {
	c.T.Helper()
	names, err := c.CreateNodes(c.T.Context(), n, template)
	require.NoError(c.T, err)
	return names
}

// ChangeNode changes a node as it is now.
func (c *Cluster) ChangeNode(name string, change func(*corev1.Node)) {
	c.T.Helper()
	nodes := c.Client().CoreV1().Nodes()
	require.NoError(c.T, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := nodes.Get(c.T.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(node)
		_, err = nodes.Update(c.T.Context(), node, metav1.UpdateOptions{})
		return err
	}))
}

// DeleteNode deletes a node.
func (c *Cluster) DeleteNode(name string) {
	c.T.Helper()
	require.NoError(c.T, c.Client().CoreV1().Nodes().Delete(c.T.Context(), name, metav1.DeleteOptions{}))
}

// AwaitUntainted waits until pods may be scheduled to the nodes that labels select.
func (c *Cluster) AwaitUntainted(labels string) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		list, err := c.Client().CoreV1().Nodes().List(c.T.Context(), metav1.ListOptions{LabelSelector: labels})
		require.NoError(t, err)
		for i := range list.Items {
			assert.Empty(t, list.Items[i].Spec.Taints, list.Items[i].Name)
		}
	})
}

// CreatePriorityClass creates one, whose pods preempt others unless a policy says otherwise.
func (c *Cluster) CreatePriorityClass(name string, value int32, policy ...corev1.PreemptionPolicy) {
	c.T.Helper()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
	for i := range policy {
		class.PreemptionPolicy = &policy[i]
	}
	_, err := c.Client().SchedulingV1().PriorityClasses().Create(c.T.Context(), class, metav1.CreateOptions{})
	require.NoError(c.T, err)
}

// Eventually polls a condition until it holds; what it last failed by is reported.
func (c *Cluster) Eventually(condition func(t *assert.CollectT), what ...any) {
	c.T.Helper()
	require.EventuallyWithT(c.T, condition, Soon, Poll, what...)
}

// RequireNeverOvercommitted fails if at any event a node had more bound than it offers, or a pod was bound twice.
func (c *Cluster) RequireNeverOvercommitted() {
	c.T.Helper()
	c.CatchUp()
	require.Empty(c.T, c.Watcher.Violations(), "nodes were overcommitted")
	require.Empty(c.T, c.Watcher.Rebinds(), "pods were bound more than once")
}

// CatchUp waits until the Watcher has seen all that the API server knows now. The server may have seen it long before.
func (c *Cluster) CatchUp() {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(c.T.Context(), Soon)
	defer cancel()
	require.NoError(c.T, c.Watcher.CatchUp(ctx))
}

// Bind asks for a bind, as a scheduler does, and returns why it is refused.
func (c *Cluster) Bind(pod *corev1.Pod, node string) (refusal string) {
	c.T.Helper()
	refusal, err := c.Ledger.TryBind(c.T.Context(), pod, node)
	require.NoError(c.T, err)
	return refusal
}

// BindHeld asks the server to bind a pod, and does something while its Binding is on its way to the API server.
func (c *Cluster) BindHeld(pod *corev1.Pod, node string, meanwhile func()) (refusal string) {
	c.T.Helper()
	held, free := make(chan struct{}), make(chan struct{})
	var first sync.Once
	c.Proxy.SetFault(func(r *http.Request) (lost bool) {
		if controlplane.IsBinding(r) {
			first.Do(func() { close(held) })
			<-free
		}
		return false
	})
	defer c.Proxy.SetFault(nil)
	var bind errgroup.Group
	bind.Go(func() (err error) {
		refusal, err = c.Ledger.TryBind(c.T.Context(), pod, node)
		return err
	})
	select {
	case <-held:
		meanwhile()
	case <-time.After(Soon):
		assert.Fail(c.T, "no Binding was sent")
	}
	close(free)
	require.NoError(c.T, bind.Wait())
	return refusal
}

// Filter asks where a pod could go, and returns the reason for each node where it cannot.
func (c *Cluster) Filter(pod *corev1.Pod, nodes ...string) map[string]string {
	c.T.Helper()
	reasons, err := c.Ledger.Filter(c.T.Context(), pod, nodes...)
	require.NoError(c.T, err)
	return reasons
}

// Reserve asks for capacity.
func (c *Cluster) Reserve(request *reserver.Request) *reserver.Answer {
	c.T.Helper()
	answer := &reserver.Answer{}
	require.NoError(c.T, c.Ledger.Post(c.T.Context(), ReservePath, request, answer))
	return answer
}

// Unreserve gives back what was asked for.
func (c *Cluster) Unreserve(request *reserver.Request) *reserver.Answer {
	c.T.Helper()
	back, answer := *request, &reserver.Answer{}
	back.TTLSeconds = 0 // which does not apply
	require.NoError(c.T, c.Ledger.Post(c.T.Context(), UnreservePath, &back, answer))
	return answer
}

// Allocations are the allocations of all pods.
func (c *Cluster) Allocations() reserver.AllocationsAnswer {
	c.T.Helper()
	allocations, err := c.Ledger.Allocations(c.T.Context())
	require.NoError(c.T, err)
	return allocations
}

// Held lists the slots that the server keeps, as namespace/name/slot@node.
func (c *Cluster) Held() []string {
	c.T.Helper()
	answer, err := c.Ledger.Reservations(c.T.Context())
	require.NoError(c.T, err)
	held := []string{}
	for _, r := range answer.Reservations {
		for _, s := range r.Slots {
			held = append(held, r.Namespace+"/"+r.Name+"/"+s.Name+"@"+s.Node)
		}
	}
	return held
}

// CPU is the account of one node's CPU.
func (c *Cluster) CPU(node string) reserver.NodeAmount {
	c.T.Helper()
	var answer reserver.NodeAnswer
	require.NoError(c.T, c.Ledger.Get(c.T.Context(), NodesPath+"/"+node, &answer))
	return answer.Node.Resources["cpu"]
}

// Scrape reads the server's metrics.
func (c *Cluster) Scrape() Families {
	c.T.Helper()
	families, err := c.Ledger.Metrics(c.T.Context())
	require.NoError(c.T, err)
	return families
}

// Metric adds up the series of a metric that carry the labels given as name, value, name, value.
func (c *Cluster) Metric(name string, labels ...string) int {
	c.T.Helper()
	return int(c.Scrape().Sum(name, labels...))
}
