package kubectl

import (
	"context"
	"sync"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/version"
)

const (
	// defaultService is where manifests/base puts the server.
	defaultService = "globalreserve-system/globalreserve"

	// defaultTimeout limits one request to either server where --request-timeout does not.
	defaultTimeout = 30 * time.Second
)

// cluster is the Kubernetes API as a command needs it.
type cluster struct {
	kube         kubernetes.Interface
	reservations versioned.Interface
}

// environment is what all commands share.
type environment struct {
	genericiooptions.IOStreams
	clock  clock.PassiveClock
	config *genericclioptions.ConfigFlags
	// serverURL is --ledger-url, service is --service; the first wins.
	serverURL, service string
	// credentials say who the client is, and how it knows the server.
	credentials   client.Options
	allNamespaces bool // of commands that have that flag

	// cluster returns clients for the kubeconfig of the flags, and forward forwards a local port to a port
	// of a pod until it is stopped. Tests put fakes in their place.
	cluster func() (*cluster, error)
	forward func(ctx context.Context, target podPort) (address string, stop func(), err error)

	// retryFor is how long the server is asked again that does not answer.
	retryFor time.Duration
	// server is nil until it is asked something.
	server *client.Client

	mu      sync.Mutex // guards closers
	closers []func()   // end connections and the forwarding of ports
}

func newEnvironment(streams genericiooptions.IOStreams) *environment {
	config := genericclioptions.NewConfigFlags(true)
	streams.Out, streams.ErrOut = plainWriter{streams.Out}, plainWriter{streams.ErrOut}
	env := &environment{
		IOStreams: streams, clock: clock.RealClock{}, config: config, service: defaultService,
		retryFor: time.Nanosecond, // a person tries again, or not
	}
	env.cluster, env.forward = env.connectCluster, env.forwardPort
	return env
}

func (e *environment) addFlags(flags *pflag.FlagSet) {
	e.config.AddFlags(flags)
	flags.StringVar(&e.serverURL, "ledger-url", e.serverURL,
		"URL of the GlobalReserve server, such as http://127.0.0.1:23456; without it a port is forwarded to --service")
	flags.StringVar(&e.credentials.CAFile, "ledger-certificate-authority", "",
		"file with the authority of the GlobalReserve server's certificate, in PEM")
	flags.StringVar(&e.credentials.ServerName, "ledger-tls-server-name", "",
		"name in the GlobalReserve server's certificate, where that is not the host of --ledger-url, as with a "+
			"forwarded port")
	flags.StringVar(&e.credentials.CertFile, "ledger-client-certificate", "",
		"file with the client certificate to show the GlobalReserve server, in PEM")
	flags.StringVar(&e.credentials.KeyFile, "ledger-client-key", "",
		"file with the key of --ledger-client-certificate, in PEM")
	flags.StringVar(&e.credentials.Token, "ledger-token", "",
		"token to show the GlobalReserve server, such as kubectl create token prints")
	flags.StringVar(&e.service, "service", e.service,
		"namespace/name of the server's Service, and :port where it has several; a port is forwarded to a ready pod of it")
}

// namespace is that of --namespace or of the kubeconfig's context, or that of all of them.
func (e *environment) namespace() (string, error) {
	if e.allNamespaces {
		return metav1.NamespaceAll, nil
	}
	namespace, _, err := e.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", explainConfigError(err)
	}
	return namespace, nil
}

// timeout is --request-timeout, or the default where that is not given.
func (e *environment) timeout() (time.Duration, error) {
	text := *e.config.Timeout
	if text == "" || text == "0" {
		return defaultTimeout, nil
	}
	timeout, err := clientcmd.ParseTimeout(text)
	if err != nil || timeout < 0 {
		return 0, usageErrorf("--request-timeout %q is not a duration: give one such as 30s", text)
	}
	return timeout, nil
}

func (e *environment) restConfig() (*rest.Config, error) {
	config, err := e.config.ToRESTConfig()
	if err != nil {
		return nil, explainConfigError(err)
	}
	config = rest.CopyConfig(config)
	config.UserAgent = "kubectl-reserve/" + version.Get().GitVersion
	config.WarningHandler = rest.NewWarningWriter(e.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	config.QPS = -1 // A person sends few requests, and the API server limits by itself.
	if config.Timeout == 0 {
		config.Timeout = defaultTimeout
	}
	return config, nil
}

// connectCluster makes the clients. Nothing is sent yet.
func (e *environment) connectCluster() (*cluster, error) {
	config, err := e.restConfig()
	if err != nil {
		return nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, explainConfigError(err)
	}
	reservations, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, explainConfigError(err)
	}
	return &cluster{kube: kube, reservations: reservations}, nil
}
