//go:build e2e || soak

package admission

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// otherHook is a validating webhook of somebody else. The API server calls it after our mutating one.
type otherHook struct {
	mu     sync.Mutex
	decide func(*admissionv1.AdmissionRequest) bool
	// client is the webhook's clientConfig.
	client string
	// install makes the API server call the webhook, until the function it returns is called.
	install func() (uninstall func())
}

// set says what the webhook does from now on; it may take its time.
func (h *otherHook) set(decide func(*admissionv1.AdmissionRequest) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.decide = decide
}

func allow(*admissionv1.AdmissionRequest) bool  { return true }
func refuse(*admissionv1.AdmissionRequest) bool { return false }

func (h *otherHook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	decide := h.decide
	h.mu.Unlock()
	response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: decide(review.Request)}
	if !response.Allowed {
		response.Result = &metav1.Status{Code: http.StatusForbidden, Message: "the other webhook does not want it"}
	}
	_ = json.NewEncoder(w).Encode(&admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: response})
}

// startOtherHook serves the webhook and makes the API server call it. It allows all until told else.
func (c *cluster) startOtherHook() *otherHook {
	c.T.Helper()
	h := c.serveOtherHook()
	h.install()
	return h
}

// serveOtherHook serves the webhook, which the API server does not call yet.
func (c *cluster) serveOtherHook() *otherHook {
	c.T.Helper()
	h := &otherHook{decide: allow}
	certFile, keyFile, err := c.ServingCertificate("other-hook")
	require.NoError(c.T, err)
	certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(c.T, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(c.T, err)
	server := &http.Server{Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}}
	var running sync.WaitGroup
	running.Go(func() { _ = server.ServeTLS(listener, "", "") })
	c.T.Cleanup(func() {
		_ = server.Close()
		running.Wait()
	})
	ca, err := os.ReadFile(c.CAFile())
	require.NoError(c.T, err)
	h.client = fmt.Sprintf(`{url: "https://%s", caBundle: %s}`, listener.Addr(), base64.StdEncoding.EncodeToString(ca))
	h.install = func() (uninstall func()) { return c.installOtherHook(h.client, bindingsAndResizes) }
	return h
}

// bindingsAndResizes and createdPods are rules of the other webhook.
const (
	bindingsAndResizes = `
  - {operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods/binding]}
  - {operations: [UPDATE], apiGroups: [""], apiVersions: [v1], resources: [pods/resize]}`
	createdPods = `
  - {operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}`
)

func (c *cluster) installOtherHook(client, rules string) (uninstall func()) {
	c.T.Helper()
	return c.Apply(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: other}
webhooks:
- name: bindings.other.example.com
  clientConfig: %s
  rules: %s
  failurePolicy: Fail
  timeoutSeconds: 30
  sideEffects: None
  admissionReviewVersions: [v1]
`, client, rules))
}

// awaitOtherHook waits until the API server calls the other webhook.
func (c *cluster) awaitOtherHook(h *otherHook) {
	c.T.Helper()
	h.set(refuse)
	c.create("probe", "1m")
	c.Eventually(func(t *assert.CollectT) {
		assert.ErrorContains(t, c.BindDirectly("probe", "node-0", metav1.DryRunAll), "the other webhook")
	})
	h.set(allow)
	c.Delete("probe")
}
