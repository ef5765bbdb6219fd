package kubectl

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// tunnel is a forwarded port. Close ends it.
type tunnel struct {
	// url is where the pod's port can be reached from here.
	url string
	// stop ends the goroutine that forwards and waits for it; nil in tests that need none.
	stop func()
}

// Close ends the tunnel and everything that runs for it.
func (t *tunnel) Close() {
	if t.stop != nil {
		t.stop()
	}
}

// forwardPort opens a port on the loopback interface that leads to the pod, through the API server and
// the pod's kubelet.
func (e *environment) forwardPort(ctx context.Context, target podPort) (*tunnel, error) {
	config, err := e.restConfig()
	if err != nil {
		return nil, err
	}
	config.Timeout = 0 // It would cut the connection off, not one request on it.
	dialer, err := portForwardDialer(config, target)
	if err != nil {
		return nil, err
	}
	serving, cancel := context.WithCancel(ctx)
	ready := make(chan struct{})
	forwarder, err := portforward.NewOnAddressesForStreamingWithContext(serving, dialer, []string{"127.0.0.1"},
		[]string{"0:" + strconv.Itoa(int(target.port))}, ready, io.Discard, io.Discard)
	if err != nil {
		cancel()
		return nil, forwardError(target, err)
	}
	var failed error // to be read when done is closed
	done := make(chan struct{})
	go func() {
		failed = forwarder.ForwardPorts()
		close(done)
	}()
	stop := func() {
		cancel()
		<-done
	}
	deadline, release := context.WithTimeout(ctx, defaultTimeout)
	defer release()
	select {
	case <-done:
		cancel()
		return nil, forwardError(target, failed)
	case <-deadline.Done():
		// Nothing interrupts the dialer while it dials: it is left behind, and the command ends.
		cancel()
		return nil, forwardError(target, deadline.Err())
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		stop()
		return nil, forwardError(target, err)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local)))
	return &tunnel{url: target.scheme + "://" + address, stop: stop}, nil
}

// portForwardDialer tunnels through a websocket, as kubectl does, and falls back to SPDY for API
// servers and proxies that refuse it.
func portForwardDialer(config *rest.Config, target podPort) (httpstream.Dialer, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, explainConfigError(err)
	}
	address := kube.CoreV1().RESTClient().Post().Resource("pods").
		Namespace(target.namespace).Name(target.pod).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, explainConfigError(err)
	}
	fallback := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, address)
	primary, err := portforward.NewSPDYOverWebsocketDialerForStreaming(address, config)
	if err != nil {
		return nil, explainConfigError(err)
	}
	return portforward.NewFallbackDialerForStreaming(primary, fallback, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

func forwardError(target podPort, err error) error {
	return unreachablef("cannot forward a port to pod %s/%s: %w: you need the right to create pods/portforward there; "+
		"or give the server's address with --server URL", target.namespace, target.pod, err)
}
