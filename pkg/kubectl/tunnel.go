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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
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
	port string // a name or a number; empty: the only or the first one
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

// choosePod finds a pod of the Service that answers: ready, not being deleted and with the port. Of
// several it takes the first by name, so that repeated commands speak to the same one.
func choosePod(ctx context.Context, kube kubernetes.Interface, ref serviceRef) (podPort, error) {
	service, err := kube.CoreV1().Services(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return podPort{}, unreachablef("there is no Service %s: install GlobalReserve with kubectl apply -k manifests/base, "+
			"name its Service with --service namespace/name, or give the server's address with --ledger-url URL", ref)
	case err != nil:
		return podPort{},
			explainAPIError(fmt.Sprintf("find the GlobalReserve server by its Service %s (--ledger-url URL does without)", ref),
				err)
	case len(service.Spec.Selector) == 0:
		return podPort{},
			unreachablef("Service %s selects no pods, so no port can be forwarded to one: give the server's address with "+
				"--ledger-url URL", ref)
	}
	servicePort, err := findServicePort(service, ref)
	if err != nil {
		return podPort{}, err
	}
	pods, err := kube.CoreV1().Pods(ref.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.SelectorFromSet(service.Spec.Selector).String(),
	})
	if err != nil {
		return podPort{}, explainAPIError(fmt.Sprintf("list the pods of Service %s", ref), err)
	}
	pod, err := readyPod(pods.Items, ref)
	if err != nil {
		return podPort{}, err
	}
	port, err := containerPort(pod, servicePort)
	if err != nil {
		return podPort{}, err
	}
	return podPort{namespace: pod.Namespace, pod: pod.Name, port: port, scheme: schemeOf(servicePort)}, nil
}

func findServicePort(service *corev1.Service, ref serviceRef) (*corev1.ServicePort, error) {
	var have []string
	for i := range service.Spec.Ports {
		p := &service.Spec.Ports[i]
		number := strconv.Itoa(int(p.Port))
		if ref.port == "" || ref.port == p.Name || ref.port == number {
			return p, nil
		}
		have = append(have, strings.TrimPrefix(p.Name+" "+number, " "))
	}
	if len(have) == 0 {
		return nil, unreachablef("Service %s has no ports: give the server's address with --ledger-url URL", ref)
	}
	return nil, usageErrorf("Service %s has no port %q: it has %s", ref, ref.port, strings.Join(have, ", "))
}

// readyPod returns the first by name of the pods that can answer.
func readyPod(pods []corev1.Pod, ref serviceRef) (*corev1.Pod, error) {
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	states := make([]string, 0, len(pods))
	for i := range pods {
		state := podState(&pods[i])
		if state == "" {
			return &pods[i], nil
		}
		states = append(states, pods[i].Name+" is "+state)
	}
	if len(states) == 0 {
		return nil,
			unreachablef("Service %s has no pods: see kubectl -n %s get deployments,pods, or give the server's address with "+
				"--ledger-url URL",
				ref, ref.Namespace)
	}
	return nil, unreachablef("Service %s has no ready pod: %s: see kubectl -n %s describe pods",
		ref, strings.Join(states, ", "), ref.Namespace)
}

// podState says why a pod cannot answer; empty when it can.
func podState(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "being deleted"
	}
	if pod.Status.Phase != corev1.PodRunning {
		return strings.ToLower(string(cmp.Or(pod.Status.Phase, corev1.PodPending)))
	}
	ready := func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }
	if !slices.ContainsFunc(pod.Status.Conditions, ready) {
		return "not ready"
	}
	return ""
}

// containerPort resolves a Service's target port, which may be the name of a container's port.
func containerPort(pod *corev1.Pod, port *corev1.ServicePort) (int32, error) {
	if port.TargetPort.Type == intstr.Int {
		return cmp.Or(port.TargetPort.IntVal, port.Port), nil
	}
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if p.Name == port.TargetPort.StrVal {
				return p.ContainerPort, nil
			}
		}
	}
	return 0,
		unreachablef("pod %s/%s has no port named %q, which its Service leads to: give the server's address with "+
			"--ledger-url URL",
			pod.Namespace, pod.Name, port.TargetPort.StrVal)
}

// schemeOf tells whether a Service's port speaks TLS: by its appProtocol or, without one, its name.
func schemeOf(port *corev1.ServicePort) string {
	if strings.HasPrefix(strings.ToLower(ptr.Deref(port.AppProtocol, port.Name)), "https") {
		return "https"
	}
	return "http"
}
