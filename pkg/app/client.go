package app

import (
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/metrics/tracing"
	"github.com/globalreserve/globalreserve/pkg/version"
)

// Clients are the ways to the API server.
type Clients struct {
	// Core is for pods, nodes and what else Kubernetes itself has. Its pods lack what no decision needs
	// (cluster.LeanClient).
	Core kubernetes.Interface
	// Whole is the same with whole pods, for what compares the ledger with them.
	Whole kubernetes.Interface
	// Reservations is for Reservation objects; it speaks JSON.
	Reservations versioned.Interface
	// Metadata is for objects of which only names and annotations matter.
	Metadata metadata.Interface
	// Objects is for objects of kinds that are known from the policy alone, such as PodGroups.
	Objects dynamic.Interface
}

// clientsOf returns the clients for a kubeconfig file, or without one for the service account of the pod.
func clientsOf(kubeconfig string, tracer tracing.Tracer) (Clients, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return Clients{}, err
	}
	tracer.Wrap(config)
	return NewClients(config)
}

// NewClients returns clients without a rate limit of their own: binds would queue behind it, and the API server has its
// own fairness. Nor do they ask for compressed answers: kube-apiserver 1.37 would compress, change by change, what it
// sends about all pods, which costs both sides more time than the network saves. The configuration is not changed.
func NewClients(config *rest.Config) (Clients, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.RateLimiter = nil
	config.DisableCompression = true
	config.UserAgent = "globalreserve/" + version.Get().GitVersion
	// What is asked for comes as protobuf by default; what is sent does not.
	inCore := rest.CopyConfig(config)
	inCore.ContentType = runtime.ContentTypeProtobuf
	core, err := newCore(inCore)
	if err != nil {
		return Clients{}, fmt.Errorf("making the API server's client: %w", err)
	}
	whole, err := kubernetes.NewForConfig(inCore)
	if err != nil {
		return Clients{}, fmt.Errorf("making the API server's client: %w", err)
	}
	names, err := metadata.NewForConfig(config)
	if err != nil {
		return Clients{}, fmt.Errorf("making the client for metadata: %w", err)
	}
	others, err := dynamic.NewForConfig(config)
	if err != nil {
		return Clients{}, fmt.Errorf("making the client for objects of other schedulers: %w", err)
	}
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeJSON
	objects, err := versioned.NewForConfig(config)
	if err != nil {
		return Clients{}, fmt.Errorf("making the client for reservations: %w", err)
	}
	return Clients{Core: core, Whole: whole, Reservations: objects, Metadata: names, Objects: others}, nil
}

func newCore(config *rest.Config) (kubernetes.Interface, error) {
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return bufferWatches{inner} })
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	core, err := kubernetes.NewForConfigAndClient(config, transport)
	if err != nil {
		return nil, err
	}
	return cluster.LeanClient(config, transport, core)
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig %s: %w", kubeconfig, err)
		}
		return config, nil
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("not running inside a cluster: give --kubeconfig")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the service account: %w", err)
	}
	return config, nil
}
