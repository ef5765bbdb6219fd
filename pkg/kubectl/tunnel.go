package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/utils/ptr"
)

// forwardPort opens a port on the loopback interface that leads to the pod, through the API server and
// the pod's kubelet. address is its URL; stop ends everything that runs for it.
func (e *environment) forwardPort(ctx context.Context, target podPort) (address string, stop func(), err error) {
	config, err := e.restConfig()
	if err != nil {
		return "", nil, err
	}
	config.Timeout = 0 // It would cut the connection off, not one request on it.
	dialer, err := portForwardDialer(config, target)
	if err != nil {
		return "", nil, err
	}
	serving, cancel := context.WithCancel(ctx)
	ready := make(chan struct{})
	forwarder, err := portforward.NewOnAddressesForStreamingWithContext(serving, dialer, []string{"127.0.0.1"},
		[]string{"0:" + strconv.Itoa(int(target.port))}, ready, io.Discard, io.Discard)
	if err != nil {
		cancel()
		return "", nil, forwardError(target, err)
	}
	done := make(chan error, 1)
	go func() {
		done <- forwarder.ForwardPorts()
		close(done)
	}()
	stop = func() {
		cancel()
		for range done { // until it is closed
		}
	}
	deadline, release := context.WithTimeout(ctx, defaultTimeout)
	defer release()
	select {
	case err := <-done:
		cancel()
		return "", nil, forwardError(target, err)
	case <-deadline.Done():
		// Nothing interrupts the dialer while it dials: it is left behind, and the command ends.
		cancel()
		return "", nil, forwardError(target, deadline.Err())
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		stop()
		return "", nil, forwardError(target, err)
	}
	return fmt.Sprintf("%s://127.0.0.1:%d", target.scheme, ports[0].Local), stop, nil
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
	return unreachablef("cannot forward a port to pod %s/%s: %w: that takes the right to create pods/portforward "+
		"there, and a kubelet that answers; "+
		"or give the server's address with --ledger-url URL", target.namespace, target.pod, err)
}

// podPort is a port of a pod's container that a Service leads to.
type podPort struct {
	namespace, pod string
	port           int32
	// scheme is http or https.
	scheme string
}

// serviceRef is a parsed --service.
type serviceRef struct {
	types.NamespacedName
	port string // its name, or the number that the pods have; empty: any
}

// parseService reads namespace/name or namespace/name:port.
func parseService(text string) (serviceRef, error) {
	path, port, withPort := strings.Cut(text, ":")
	namespace, name, ok := strings.Cut(path, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") || (withPort && port == "") {
		return serviceRef{},
			usageErrorf("--service %q is not a Service: give namespace/name, such as %s, and :port where it has several",
				text, defaultService)
	}
	return serviceRef{types.NamespacedName{Namespace: namespace, Name: name}, port}, nil
}

// readyPorts finds a port of each ready pod of the Service, as its EndpointSlices have them. They are in the
// order of the pods' names, so that repeated commands speak to the same one. There is at least one.
// With all also of those that are not ready.
func readyPorts(ctx context.Context, kube kubernetes.Interface, ref serviceRef, all bool) ([]podPort, error) {
	list, err := kube.DiscoveryV1().EndpointSlices(ref.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + ref.Name,
	})
	if err != nil {
		return nil, explainAPIError(
			fmt.Sprintf("find the GlobalReserve server by its Service %s (--ledger-url URL does without)", ref), err)
	}
	var found []podPort
	var ports []string
	known := ref.port == ""
	for i := range list.Items {
		for _, port := range list.Items[i].Ports {
			name, number := ptr.Deref(port.Name, ""), ptr.Deref(port.Port, 0)
			ports = append(ports, strings.TrimPrefix(fmt.Sprintf("%s %d", name, number), " "))
			if ref.port != "" && ref.port != name && ref.port != strconv.Itoa(int(number)) {
				continue
			}
			known = true
			for _, pod := range podsOf(&list.Items[i], all) {
				found = append(found, podPort{ref.Namespace, pod, number, schemeOf(name, port.AppProtocol)})
			}
		}
	}
	switch {
	case len(found) > 0:
		slices.SortFunc(found, func(a, b podPort) int {
			return cmp.Or(cmp.Compare(a.pod, b.pod), cmp.Compare(b.scheme, a.scheme)) // https before http
		})
		return slices.CompactFunc(found, func(a, b podPort) bool { return a.pod == b.pod }), nil
	case !known && len(ports) > 0:
		slices.Sort(ports)
		return nil, usageErrorf("no pod of Service %s has a port %q: there is %s", ref, ref.port,
			strings.Join(slices.Compact(ports), ", "))
	}
	return nil, unreachablef("there is no ready pod of a Service %s: install GlobalReserve with kubectl apply -k "+
		"manifests/base, see kubectl -n %s get services,pods, name its Service with --service namespace/name, or give the "+
		"server's address with --ledger-url URL", ref, ref.Namespace)
}

// podsOf are the names of the pods that an EndpointSlice has: of those that answer, or all.
func podsOf(slice *discoveryv1.EndpointSlice, all bool) (names []string) {
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if (all || ptr.Deref(e.Conditions.Ready, true)) && e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
			names = append(names, e.TargetRef.Name)
		}
	}
	return names
}

// schemeOf reports whether a Service's port speaks TLS: by its appProtocol or, without one, its name.
func schemeOf(name string, protocol *string) string {
	if strings.HasPrefix(strings.ToLower(ptr.Deref(protocol, name)), "https") {
		return "https"
	}
	return "http"
}
