package admission

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// otherHook is a validating webhook on bindings of somebody else. The API server calls it after ours.
type otherHook struct {
	mu     sync.Mutex
	decide func(*admissionv1.AdmissionRequest) bool
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
	c.t.Helper()
	h := &otherHook{decide: allow}
	certFile, keyFile, err := c.ServingCertificate("other-hook")
	require.NoError(c.t, err)
	certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(c.t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(c.t, err)
	server := &http.Server{Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}} //nolint:gosec // a test's server, gone in seconds
	var running sync.WaitGroup
	running.Go(func() { _ = server.ServeTLS(listener, "", "") })
	c.t.Cleanup(func() {
		_ = server.Close()
		running.Wait()
	})
	ca, err := os.ReadFile(c.CAFile())
	require.NoError(c.t, err)
	c.installOtherHook("https://"+listener.Addr().String(), ca)
	return h
}

func (c *cluster) installOtherHook(url string, ca []byte) {
	c.t.Helper()
	_, err := c.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(c.t.Context(),
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "other"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name:         "bindings.other.example.com",
				ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{corev1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"pods/binding"},
					},
				}},
				FailurePolicy: ptr.To(admissionregistrationv1.Fail), TimeoutSeconds: ptr.To[int32](30),
				SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			}},
		}, metav1.CreateOptions{})
	require.NoError(c.t, err)
}
