//go:build e2e

package callers

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// requests are one for each path, with who is answered with 200. All the others of the callers below are refused with
// 403.
func (c *cluster) requests(pod *corev1.Pod) []request {
	gang := &reserver.Request{SchedulerName: team, Pods: []*corev1.Pod{pod}, Nodes: c.nodes[:1], TTLSeconds: 600}
	back := &reserver.Request{SchedulerName: team, Pods: []*corev1.Pod{pod}}
	args := &extenderv1.ExtenderArgs{Pod: pod, NodeNames: &c.nodes}
	preempt := &extenderv1.ExtenderPreemptionArgs{Pod: pod, NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{}}
	review := &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "u", Operation: admissionv1.Create, Namespace: pod.Namespace, Name: "new", DryRun: ptr.To(true),
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Object:   runtime.RawExtension{Object: testbed.NewPod("new", team, "1")},
		},
	}
	const everybody, looks, schedules = "everybody", "viewer scheduler admin", "scheduler admin"
	return []request{
		{"GET", "/livez", nil, everybody},
		{"GET", "/readyz", nil, everybody},
		{"GET", "/healthz", nil, everybody},
		{"GET", "/version", nil, everybody},
		{"GET", "/metrics", nil, "viewer admin"},
		{"GET", "/openapi.yaml", nil, looks},
		{"GET", "/v1/revision", nil, looks},
		{"GET", "/v1/nodes", nil, looks},
		{"GET", "/v1/nodes/" + c.nodes[0], nil, looks},
		{"GET", "/v1/allocations", nil, looks},
		{"GET", "/v1/reservations", nil, "drainer " + looks},
		{"GET", "/v1/gangs", nil, looks},
		{"GET", "/v1/refusals", nil, looks},
		{"GET", "/v1/pending", nil, looks},
		{"GET", "/v1/explain?namespace=" + pod.Namespace + "&pod=" + pod.Name, nil, looks},
		{"GET", "/v1/watch", nil, looks},
		{"POST", "/v1/whatif", &reserver.Request{Pods: []*corev1.Pod{pod}, Nodes: c.nodes[:1]}, looks},
		{"POST", "/v1/drain/plan", &reserver.DrainPlanRequest{Nodes: c.nodes[:1]}, "drainer"},
		{"POST", "/filter", args, schedules},
		{"POST", "/prioritize", args, schedules},
		{"POST", "/preempt", preempt, schedules},
		{"POST", "/reserve", gang, "reserver " + schedules},
		{"POST", "/unreserve", back, "reserver " + schedules},
		{"POST", "/bind", &extenderv1.ExtenderBindingArgs{
			PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID,
			Node: c.nodes[0],
		}, schedules},
		{"GET", "/debug/ledger", nil, "admin"},
		{"GET", "/debug/diff", nil, "admin"},
		{"POST", "/admission", review, "API server"},
		{"POST", "/admission/pods", review, "API server"},
		{"POST", "/admission/resourceclaims", review, "API server"}, // allowed with a warning, since it is about a pod
	}
}

// requireAll fails where the server has a route that the matrix lacks.
func (c *cluster) requireAll(requests []request) {
	c.T.Helper()
	reply, err := c.servers[0].Send(c.T.Context(), http.MethodGet, testbed.OpenAPIPath, nil)
	require.NoError(c.T, err)
	var document struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	require.NoError(c.T, yaml.Unmarshal(reply.Body, &document))
	require.NotEmpty(c.T, document.Paths)
	for path, methods := range document.Paths {
		for method := range methods {
			path := strings.ReplaceAll(path, "{name}", c.nodes[0])
			assert.True(c.T, slices.ContainsFunc(requests, func(r request) bool {
				asked, _, _ := strings.Cut(r.path, "?")
				return asked == path && strings.EqualFold(r.method, method)
			}), "the matrix lacks %s %s", method, path)
		}
	}
}

type request struct {
	method, path string
	question     any
	allowed      string
}

func (r *request) allows(name string) bool {
	return r.allowed == "everybody" || slices.Contains(strings.Fields(r.allowed), name) || r.allowed == name
}

// The rights to act for the scheduler of the tests, and to reserve.
var (
	useTeam = rbacv1.PolicyRule{
		Verbs: []string{"use"}, APIGroups: []string{"globalreserve.io"},
		Resources: []string{"schedulers"}, ResourceNames: []string{team},
	}
	reserveOnly = rbacv1.PolicyRule{Verbs: []string{"post"}, NonResourceURLs: []string{"/reserve", "/unreserve"}}
)

// callers are those whose rights the API server knows, by certificates and by tokens.
func (c *cluster) callers() map[string]*caller {
	c.T.Helper()
	c.role("use-team", useTeam)
	c.role("reserve-only", reserveOnly)
	c.grant("reserve-only", accountOf("reserver"))
	c.grant("use-team", accountOf("reserver"))
	c.reserveIn("reserver")
	c.grant("globalreserve-viewer", accountOf("viewer"))
	c.grant("globalreserve-drainer", accountOf("drainer"))
	c.grant("globalreserve-scheduler", userOf("scheduler"))
	c.grant("use-team", userOf("scheduler"))
	c.grant("globalreserve-admin", userOf("admin-of-reservations"))
	return map[string]*caller{
		"kubelet":           c.withCertificate("system:node:"+c.nodes[0], "system:nodes"),
		"without the right": c.withToken("stranger"), "reserver": c.withToken("reserver"), "viewer": c.withToken("viewer"),
		"drainer":   c.withToken("drainer"),
		"scheduler": c.withCertificate("scheduler"), "admin": c.withCertificate("admin-of-reservations"),
		"API server": c.withCertificate(controlplane.WebhookClient),
	}
}

// Who may do what, on each path of each server, by the roles of manifests/base. What is refused leaves the ledger as it
// was. Who proves nothing, and what other listeners serve, is in the tests of pkg/http/auth and pkg/app.
func TestCallerMatrix(t *testing.T) {
	c := newCluster(t)
	callers := c.callers()
	shared := c.CreatePod("shared", team, "1")
	c.requireAll(c.requests(shared))
	for name, who := range callers {
		for i, at := range c.servers {
			pod := shared
			if name == "scheduler" || name == "admin" {
				pod = c.CreatePod(fmt.Sprintf("%s-%d", name, i), team, "1") // it will be bound
			}
			for _, r := range c.requests(pod) {
				want := http.StatusForbidden
				if r.allows(name) {
					want = http.StatusOK
				}
				what := fmt.Sprintf("%s: %s %s, server %d", name, r.method, r.path, i)
				before := c.revision()
				status, answer, err := who.ask(t.Context(), r.method, at.tls+r.path, r.question)
				require.NoError(t, err, what)
				assert.Equal(t, want, status, "%s: %s", what, answer)
				if want != http.StatusOK {
					assert.Equal(t, before, c.revision(), what)
				} else {
					assert.NotContains(t, answer, `"Error":"`+"not", what)
				}
			}
		}
	}
	assert.NotEmpty(t, c.Pod("scheduler-0").Spec.NodeName)
	assert.NotEmpty(t, c.Pod("admin-1").Spec.NodeName)
	assert.Empty(t, c.Pod("shared").Spec.NodeName)
}

// A token is good for nothing, at any server, once what it is bound to is gone.
func TestTokenThatWasTakenBack(t *testing.T) {
	c := newCluster(t)
	core := c.Client().CoreV1()
	secret, err := core.Secrets(c.Namespace).Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bound"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = core.ServiceAccounts(c.Namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "viewer"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	token, err := core.ServiceAccounts(c.Namespace).CreateToken(t.Context(), "viewer", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID,
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	c.grant("globalreserve-viewer", accountOf("viewer"))
	viewer := c.newCaller(token.Status.Token, "")
	asks := func(url string) int {
		status, _, err := viewer.ask(t.Context(), http.MethodGet, url+"/v1/revision", nil)
		require.NoError(t, err)
		return status
	}
	for _, server := range c.servers {
		require.Equal(t, http.StatusOK, asks(server.tls))
	}
	require.NoError(t, core.Secrets(c.Namespace).Delete(t.Context(), secret.Name, metav1.DeleteOptions{}))
	for _, server := range c.servers {
		c.Eventually(func(t *assert.CollectT) { assert.Equal(t, http.StatusUnauthorized, asks(server.tls)) })
	}
}
