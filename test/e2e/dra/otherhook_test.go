//go:build e2e

package dra

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
)

// otherHook is a validating webhook of somebody else that takes its time for one claim. The API server asks it at the
// same time as ours.
type otherHook struct {
	name string
	// asked is closed when it is asked, and it answers when goOn is closed.
	asked, goOn chan struct{}
	once        sync.Once
}

func (h *otherHook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if review.Request.Name == h.name {
		h.once.Do(func() { close(h.asked) })
		select {
		case <-h.goOn:
		case <-r.Context().Done():
		}
	}
	_ = json.NewEncoder(w).Encode(&admissionv1.AdmissionReview{
		TypeMeta: review.TypeMeta, Response: &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true},
	})
}

// startOtherHook has the API server ask it about every write of a ResourceClaim's status.
func (c *cluster) startOtherHook(slow string) *otherHook {
	c.T.Helper()
	h := &otherHook{name: slow, asked: make(chan struct{}), goOn: make(chan struct{})}
	certFile, keyFile, err := c.ServingCertificate("other-hook")
	require.NoError(c.T, err)
	certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(c.T, err)
	listener, err := new(net.ListenConfig).Listen(c.T.Context(), "tcp", "127.0.0.1:0")
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
	c.Apply(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: other}
webhooks:
- name: claims.other.example.com
  clientConfig: {url: %q, caBundle: %s}
  rules:
  - {operations: [UPDATE], apiGroups: [resource.k8s.io], apiVersions: [v1], resources: [resourceclaims/status]}
  failurePolicy: Fail
  timeoutSeconds: 30
  sideEffects: None
  admissionReviewVersions: [v1]
`, "https://"+listener.Addr().String(), base64.StdEncoding.EncodeToString(ca)))
	return h
}
