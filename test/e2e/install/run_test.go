//go:build e2e

package install

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// node has 4 CPUs.
const node = "node-0"

// kubeScheduler is the user whom manifests/base/callers.yaml lets ask.
const kubeScheduler = "system:kube-scheduler"

// Servers, and schedulers with or behind one, run with the flags, the files, the rights and the webhooks that are
// rendered, and with no others: they get ready, reserve, bind and are asked by the API server, and the API server
// denies them nothing.
func TestServersRunAsRendered(t *testing.T) {
	run := map[string]string{}
	for _, r := range renderings(t) {
		key := deployed(t, r.objects)
		if key == "" {
			continue
		}
		if before, there := run[key]; there {
			t.Logf("%s runs as %s does", r.name, before)
			continue
		}
		run[key] = r.name
		t.Run(r.name, func(t *testing.T) {
			c := newCluster(t)
			c.AddNodes(1, controlplane.NodeTemplate{})
			c.install(t, r.objects)
			c.work(t, r.objects)
			assert.Empty(t, c.denied(t))
		})
	}
}

// deployed is all by which a process differs from another one: what its pod runs, mounts and may do. "" means that
// there is no pod.
func deployed(t *testing.T, objects []*unstructured.Unstructured) string {
	t.Helper()
	var all []string
	add := func(part any) {
		content, err := json.Marshal(part)
		require.NoError(t, err)
		all = append(all, string(content))
	}
	for _, pod := range pods(t, objects) {
		pod.Spec.Affinity, pod.Spec.Tolerations = nil, nil
		add(pod.Spec)
	}
	if len(all) == 0 {
		return ""
	}
	for _, object := range objects {
		switch object.GetKind() {
		case "ConfigMap":
			if object.GetName() != "globalreserve-dashboard" {
				inner := map[string]map[string]any{}
				decoded(t, inner, []*unstructured.Unstructured{object})
				add(inner)
			}
		case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount":
			add(object)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// work starts the programs, the server first, and has them do what they are for.
func (c *cluster) work(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	var server *program
	for _, pod := range pods(t, objects) {
		url := ""
		if server != nil {
			url = server.url("https", "23456")
		}
		p := c.run(t, objects, pod, url)
		if server == nil {
			server = p
		}
		if scheduler := schedulerName(t, objects, pod); scheduler != "" {
			c.CreatePod("scheduled", scheduler, "1")
			c.AwaitBound("scheduled")
			c.Delete("scheduled")
		}
	}
	require.NotNil(t, server)
	ask := c.caller(t, server)
	if server.has("--observe") {
		c.observes(t, ask)
	} else {
		c.reservesAndBinds(t, ask)
	}
	c.isAsked(t, objects, server)
	page := server.url("http", "23460")
	ports := pods(t, objects)[0].Spec.Containers[0].Ports
	require.True(t, page != "" || !slices.ContainsFunc(ports, func(p corev1.ContainerPort) bool { return p.Name == "ui" }),
		"nobody has told the program to serve the page, whose port is open")
	if page != "" {
		response, err := http.Get(page)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, http.StatusOK, response.StatusCode)
	}
}

// schedulerName is the one that a globalreserve-scheduler is for, "" for a server.
func schedulerName(t *testing.T, objects []*unstructured.Unstructured, pod *corev1.Pod) string {
	t.Helper()
	if !strings.Contains(filepath.Base(pod.Spec.Containers[0].Image), "globalreserve-scheduler") {
		return ""
	}
	into := map[string]map[string]any{}
	decoded(t, into, []*unstructured.Unstructured{find(t, objects, "ConfigMap", "globalreserve-scheduler")})
	for _, config := range into {
		profiles, _, err := unstructured.NestedSlice(config, "data", "config.yaml", "profiles")
		require.NoError(t, err)
		return profiles[0].(map[string]any)["schedulerName"].(string)
	}
	return ""
}

// caller asks a server as kube-scheduler does: by TLS with its certificate, or on loopback.
func (c *cluster) caller(t *testing.T, server *program) testbed.Caller {
	t.Helper()
	if server.has("--port") {
		return testbed.Caller{URL: server.url("http", "23456")}
	}
	transport := &http.Transport{TLSClientConfig: c.ClientTLS(kubeScheduler)}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: testbed.Documented(transport), Timeout: testbed.Soon}
	return testbed.Caller{URL: server.url("https", "23456"), Client: client}
}

func reserve(t *testing.T, ask testbed.Caller, pod *corev1.Pod) (answer reserver.Answer) {
	t.Helper()
	require.NoError(t, ask.Post(t.Context(), testbed.ReservePath, &reserver.Request{
		SchedulerName: corev1.DefaultSchedulerName, Pods: []*corev1.Pod{pod}, Nodes: []string{node}, Durable: ptr.To(true),
	}, &answer))
	return answer
}

func bind(t *testing.T, ask testbed.Caller, pod *corev1.Pod) (refusal string) {
	t.Helper()
	refusal, err := ask.TryBind(t.Context(), pod, node)
	require.NoError(t, err)
	return refusal
}

// reservesAndBinds has 2 of 4 CPUs reserved, by an object, and used.
func (c *cluster) reservesAndBinds(t *testing.T, ask testbed.Caller) {
	t.Helper()
	first := c.CreatePod("first", corev1.DefaultSchedulerName, "2")
	answer := reserve(t, ask, first)
	require.Empty(t, answer.Error)
	require.Len(t, c.ListReservations(), 1, "durable")
	second := c.CreatePod("second", corev1.DefaultSchedulerName, "3")
	require.Contains(t, bind(t, ask, second), "too little cpu", "it is reserved")
	require.Empty(t, bind(t, ask, first))
	bound, _ := c.AwaitBound("first")
	require.Equal(t, node, bound.Spec.NodeName)
	c.Eventually(func(e *assert.CollectT) { assert.Empty(e, c.ListReservations(), "it is used up") })
}

// observes has 5 of 4 CPUs bound.
func (c *cluster) observes(t *testing.T, ask testbed.Caller) {
	t.Helper()
	first, second := c.CreatePod("first", corev1.DefaultSchedulerName, "2"),
		c.CreatePod("second", corev1.DefaultSchedulerName, "3")
	require.Contains(t, reserve(t, ask, first).Error, "only observes")
	require.Empty(t, bind(t, ask, first))
	require.Empty(t, bind(t, ask, second))
}

// isAsked has the API server ask the webhooks, where there are any, about a pod for which there is no capacity, and
// judges what its sender is told by what was rendered.
func (c *cluster) isAsked(t *testing.T, objects []*unstructured.Unstructured, server *program) {
	t.Helper()
	ca, err := os.ReadFile(c.CAFile())
	require.NoError(t, err)
	port, asked := "23456", false
	if server.has("--port") {
		port = "23457"
	}
	for _, object := range objects {
		if strings.HasSuffix(object.GetKind(), "WebhookConfiguration") {
			require.NoError(t, c.apply(t, pointed(t, object, server.url("https", port), ca), false))
			asked = true
		}
	}
	pod := c.CreatePod("asking", "nobody", "4")
	warnings := &heard{}
	bind := func() error { return c.bindWarned(t, pod, warnings) }
	switch warns := strings.Contains(fmt.Sprint(server.args), "--admission-warn") ||
		strings.Contains(schedulerConfig(t, objects), "admissionWarn: true"); {
	case !asked, server.has("--observe"):
		require.NoError(t, bind())
	case warns:
		c.Eventually(func(e *assert.CollectT) {
			require.NoError(e, bind())
			assert.Contains(e, warnings.all(), "GlobalReserve would refuse this")
		})
	default:
		c.Eventually(func(e *assert.CollectT) { assert.ErrorContains(e, bind(), "too little cpu") })
	}
}

func schedulerConfig(t *testing.T, objects []*unstructured.Unstructured) string {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() == "ConfigMap" && object.GetName() == "globalreserve-scheduler" {
			text, _, err := unstructured.NestedString(object.Object, "data", "config.yaml")
			require.NoError(t, err)
			return text
		}
	}
	return ""
}

// pointed is a webhook configuration with a server on this machine in the place of the Service, or of the address, and
// with the authority of its certificate.
func pointed(t *testing.T, object *unstructured.Unstructured, server string, ca []byte) *unstructured.Unstructured {
	t.Helper()
	object = object.DeepCopy()
	for _, w := range object.Object["webhooks"].([]any) {
		webhook := w.(map[string]any)
		path, there, err := unstructured.NestedString(webhook, "clientConfig", "service", "path")
		require.NoError(t, err)
		if !there {
			url, _, err := unstructured.NestedString(webhook, "clientConfig", "url")
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(url, "https://127.0.0.1:23457/"), url)
			path = strings.TrimPrefix(url, "https://127.0.0.1:23457")
		}
		webhook["clientConfig"] = map[string]any{"url": server + path, "caBundle": ca}
	}
	return object
}

// heard are warnings of the API server.
type heard struct {
	mu   sync.Mutex // guards text
	text string
}

func (h *heard) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text += text + "\n"
}

func (h *heard) all() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text
}

// bindWarned binds a pod past the server, as far as the API server's admission.
func (c *cluster) bindWarned(t *testing.T, pod *corev1.Pod, warnings *heard) error {
	t.Helper()
	config := c.AdminRESTConfig()
	config.WarningHandlerWithContext = warnings
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client.CoreV1().Pods(pod.Namespace).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}
