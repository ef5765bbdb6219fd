package callers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
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

// requests are one for each path, with who is answered with 200. All the others of the callers below are refused: with
// 401 who is unknown, with 403 who is known.
func (c *cluster) requests(pod *corev1.Pod) []request {
	gang := &reserver.Request{SchedulerName: team, Pods: []*corev1.Pod{pod}, Nodes: c.nodes[:1], TTLSeconds: 600}
	back := &reserver.Request{SchedulerName: team, Pods: []*corev1.Pod{pod}}
	advice := c.advice(pod)
	review := &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "u", Operation: admissionv1.Create, Namespace: pod.Namespace, Name: "new", DryRun: ptr.To(true),
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Object: runtime.RawExtension{Object: testbed.NewPod("new", team, "1")},
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
		{"GET", "/v1/reservations", nil, looks},
		{"GET", "/v1/gangs", nil, looks},
		{"GET", "/v1/refusals", nil, looks},
		{"GET", "/v1/pending", nil, looks},
		{"GET", "/v1/explain?namespace=" + pod.Namespace + "&pod=" + pod.Name, nil, looks},
		{"GET", "/v1/watch", nil, looks},
		{"POST", "/v1/whatif", &reserver.Request{Pods: []*corev1.Pod{pod}, Nodes: c.nodes[:1]}, looks},
		{"POST", "/v1/refused", &reserver.RefusedRequest{Pods: []reserver.PodName{{Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID)}}}, schedules},
		{"POST", "/filter", advice["/filter"], schedules},
		{"POST", "/prioritize", advice["/prioritize"], schedules},
		{"POST", "/preempt", advice["/preempt"], schedules},
		{"POST", "/reserve", gang, "reserver " + schedules},
		{"POST", "/unreserve", back, "reserver " + schedules},
		{"POST", "/bind", &extenderv1.ExtenderBindingArgs{PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID, Node: c.nodes[0]}, schedules},
		{"GET", "/debug/ledger", nil, "admin"},
		{"POST", "/admission", review, "API server"},
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

// advice are the requests by which a scheduler asks about a pod.
func (c *cluster) advice(pod *corev1.Pod) map[string]any {
	args := &extenderv1.ExtenderArgs{Pod: pod, NodeNames: &c.nodes}
	return map[string]any{
		"/filter": args, "/prioritize": args,
		"/preempt": &extenderv1.ExtenderPreemptionArgs{Pod: pod, NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{}},
	}
}

type request struct {
	method, path string
	question     any
	allowed      string
}

func (r *request) allows(name string) bool {
	return r.allowed == "everybody" || slices.Contains(strings.Split(r.allowed, " "), name) || r.allowed == name
}

// unknown are those of the callers that prove nothing.
var unknown = []string{"none", "wrong CA", "expired", "bad token"}

// The rights to act for the scheduler of the tests, and to reserve.
var (
	useTeam     = rbacv1.PolicyRule{Verbs: []string{"use"}, APIGroups: []string{"globalreserve.io"}, Resources: []string{"schedulers"}, ResourceNames: []string{team}}
	reserveOnly = rbacv1.PolicyRule{Verbs: []string{"post"}, NonResourceURLs: []string{"/reserve", "/unreserve"}}
)

// callers are all kinds of callers.
func (c *cluster) callers() map[string]*caller {
	c.T.Helper()
	c.role("use-team", useTeam)
	c.role("reserve-only", reserveOnly)
	c.grant("reserve-only", accountOf("reserver"))
	c.grant("use-team", accountOf("reserver"))
	c.grant("globalreserve-viewer", accountOf("viewer"))
	c.grant("globalreserve-scheduler", userOf("scheduler"))
	c.grant("use-team", userOf("scheduler"))
	c.grant("globalreserve-admin", userOf("admin-of-reservations"))
	foreign := c.foreignCertificate("scheduler")
	return map[string]*caller{
		"none": c.newCaller(nil, ""), "wrong CA": c.newCaller(&foreign, ""), "expired": c.withCertificate(-time.Minute, "scheduler"),
		"bad token": c.newCaller(nil, "no.such.token"), "kubelet": c.withCertificate(time.Hour, "system:node:"+c.nodes[0], "system:nodes"),
		"without the right": c.withToken("stranger"), "reserver": c.withToken("reserver"), "viewer": c.withToken("viewer"),
		"scheduler": c.withCertificate(time.Hour, "scheduler"), "admin": c.withCertificate(time.Hour, "admin-of-reservations"),
		"API server": c.withCertificate(time.Hour, controlplane.WebhookClient),
	}
}

// foreignCertificate is one that its owner has signed himself.
func (c *cluster) foreignCertificate(user string) tls.Certificate {
	c.T.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(c.T, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: user, Organization: []string{controlplane.AdminGroup}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(c.T, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Who may do what, on each path of each listener of each server. What is refused leaves the ledger as it was.
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
				switch {
				case r.allows(name):
					want = http.StatusOK
				case slices.Contains(unknown, name):
					want = http.StatusUnauthorized
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
			c.others(t, name, who, at)
		}
	}
	assert.NotEmpty(t, c.Pod("scheduler-0").Spec.NodeName)
	assert.NotEmpty(t, c.Pod("admin-1").Spec.NodeName)
	assert.Empty(t, c.Pod("shared").Spec.NodeName)
}

// others are the listeners besides that of TLS: plain HTTP on loopback, where everybody may do everything but call the
// webhook; the port of probes and metrics, where there is nothing else; and that of servers, where nobody is served.
func (c *cluster) others(t *testing.T, name string, who *caller, at server) {
	before := c.revision()
	for _, r := range c.requests(c.FindPod("shared")) {
		if r.path == "/bind" || strings.HasPrefix(r.path, "/reserve") || strings.HasPrefix(r.path, "/unreserve") {
			r.question = nil // it gets there, and makes no sense
		}
		want := http.StatusOK
		if strings.HasPrefix(r.path, "/admission") {
			want = http.StatusNotFound
			if at.Server == c.servers[1].Server {
				want = http.StatusServiceUnavailable // it decides nothing itself, and passes this on for nobody here
			}
		} else if r.question == nil && r.method == http.MethodPost {
			want = http.StatusBadRequest
		}
		status, answer, err := who.ask(t.Context(), r.method, at.URL+r.path, r.question)
		require.NoError(t, err)
		assert.Equal(t, want, status, "plain: %s: %s: %s", name, r.path, answer)

		want, asks := http.StatusNotFound, caller{client: &http.Client{Transport: who.transport}, token: who.token} // the document is not of this port
		if r.allowed == "everybody" || r.path == "/metrics" {
			want, asks = http.StatusOK, *who
		}
		status, answer, err = asks.ask(t.Context(), r.method, at.health+r.path, r.question)
		require.NoError(t, err)
		assert.Equal(t, want, status, "probes: %s: %s: %s", name, r.path, answer)
	}
	// A server's certificate is vouched for by nobody, so this caller takes what it gets.
	peer := *who
	transport := who.transport.Clone()
	transport.TLSClientConfig.InsecureSkipVerify = true
	defer transport.CloseIdleConnections()
	peer.client = &http.Client{Transport: transport}
	for _, r := range c.requests(c.FindPod("shared")) {
		if status, answer, err := peer.ask(t.Context(), r.method, c.peers()+r.path, r.question); err == nil {
			assert.Equal(t, http.StatusForbidden, status, "for servers: %s: %s: %s", name, r.path, answer)
		}
	}
	assert.Equal(t, before, c.revision())
}

// What a caller has reserved, another one does not give back by naming the owner's scheduler, though it may act for it
// itself: at the server that decides, through another one, and after that one took over. And nobody asks or binds for
// a scheduler that it may not act for.
func TestWhoseReservationsAre(t *testing.T) {
	c := newCluster(t)
	callers := c.callers()
	owner, other := callers["scheduler"], callers["reserver"]
	pod, foreign := c.CreatePod("mine", team, "1"), c.CreatePod("foreign", "another-scheduler", "1")
	gang := &reserver.Request{SchedulerName: team, Pods: []*corev1.Pod{pod}, Nodes: c.nodes[:1], TTLSeconds: 600}
	back := &reserver.Request{SchedulerName: team, Pods: []*corev1.Pod{pod}}

	status, answer, err := owner.ask(t.Context(), "POST", c.servers[1].tls+"/reserve", gang)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, answer)
	require.NotEmpty(t, c.Held())
	refused := func(at server) {
		t.Helper()
		held := c.Held()
		status, answer, err := other.ask(t.Context(), "POST", at.tls+"/unreserve", back)
		require.NoError(t, err)
		assert.Equal(t, http.StatusForbidden, status, answer)
		assert.Contains(t, answer, "reserved by another caller")
		assert.Equal(t, held, c.Held())
	}
	before := c.revision()
	for _, at := range c.servers {
		refused(at)
		gang := &reserver.Request{SchedulerName: "another-scheduler", Pods: []*corev1.Pod{foreign}, Nodes: c.nodes[:1]}
		status, answer, err := owner.ask(t.Context(), "POST", at.tls+"/reserve", gang)
		require.NoError(t, err)
		assert.Equal(t, http.StatusForbidden, status, answer)
		status, answer, err = owner.ask(t.Context(), "POST", at.tls+"/bind", &extenderv1.ExtenderBindingArgs{
			PodNamespace: foreign.Namespace, PodName: foreign.Name, PodUID: foreign.UID, Node: c.nodes[0],
		})
		require.NoError(t, err)
		assert.Equal(t, http.StatusForbidden, status, answer)
		for path, question := range c.advice(foreign) {
			status, answer, err := owner.ask(t.Context(), "POST", at.tls+path, question)
			require.NoError(t, err)
			assert.Equal(t, http.StatusForbidden, status, "%s: %s", path, answer)
		}
	}
	assert.Equal(t, before, c.revision())

	_, err = c.servers[0].Stop() // which gives up its Lease
	require.NoError(t, err)
	c.servers = c.servers[1:]
	c.Ledger = c.servers[0].Caller
	require.Eventually(t, func() bool {
		leads, err := c.servers[0].Metric(t.Context(), "globalreserve_leader")
		status, _, asked := owner.ask(t.Context(), "GET", c.servers[0].tls+"/v1/revision", nil)
		return err == nil && leads == 1 && asked == nil && status == http.StatusOK
	}, testbed.Soon, testbed.Poll)
	refused(c.servers[0])
	status, answer, err = owner.ask(t.Context(), "POST", c.servers[0].tls+"/unreserve", back)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status, answer)
	assert.Empty(t, c.Held())
}
