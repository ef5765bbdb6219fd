package admission_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// What no API server would send is refused with 4xx and changes nothing.
func TestHostileRequests(t *testing.T) {
	good := encode(t, review(t, "p", "pods", "binding", binding("p", "a")))
	with := func(was, is string) string { return strings.Replace(good, was, is, 1) }
	const bad = http.StatusBadRequest
	cases := map[string]struct {
		body string
		code int
		want string
	}{
		"too long":         {`{"x":"` + strings.Repeat("x", 17<<20) + `"}`, http.StatusRequestEntityTooLarge, ""},
		"no request":       {`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, bad, "request is missing"},
		"v1beta1":          {with("k8s.io/v1", "k8s.io/v1beta1"), bad, "admission.k8s.io/v1"},
		"another kind":     {with(`"kind":"AdmissionReview"`, `"kind":"Pod"`), bad, "send an AdmissionReview"},
		"no UID":           {with(`"uid":"review"`, `"uid":""`), bad, "request.uid"},
		"endless UID":      {with(`"uid":"review"`, `"uid":"`+strings.Repeat("x", 300)+`"`), bad, "request.uid"},
		"namespace a path": {with(`"namespace":"ns"`, `"namespace":"../x"`), bad, "request.namespace"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before := w.Ledger.Snapshot()
			code, answer := w.post(tc.body)
			assert.Equal(t, tc.code, code, answer)
			assert.Contains(t, answer, tc.want)
			assert.Contains(t, answer, `"Error"`)
			assert.Equal(t, before, w.Ledger.Snapshot())
		})
	}
}

// Mistakes in the object under review are its sender's, not the API server's: they are refusals, and
// no errors, for which a policy Ignore would let the object through.
func TestHostileObjects(t *testing.T) {
	object := func(raw string) func(*admissionv1.AdmissionRequest) {
		return func(r *admissionv1.AdmissionRequest) { r.Object = runtime.RawExtension{Raw: []byte(raw)} }
	}
	pods := func(r *admissionv1.AdmissionRequest) { r.SubResource = "" }
	long := strings.Repeat("x", 1000)
	cases := map[string][]func(*admissionv1.AdmissionRequest){
		"no object":          {object(`null`)},
		"endless name":       {object(`{"metadata":{"name":"` + long + `"},"target":{"name":"a"}}`)},
		"endless UID":        {object(`{"metadata":{"name":"p","uid":"` + long + `"},"target":{"name":"a"}}`)},
		"endless node":       {object(`{"metadata":{"name":"p"},"target":{"name":"` + long + `"}}`)},
		"pod's endless node": {object(`{"metadata":{"name":"p"},"spec":{"nodeName":"` + long + `"}}`), pods},
		"names differ":       {object(`{"metadata":{"name":"q"},"target":{"name":"a"}}`)},
		"slow quantity": {object(
			`{"metadata":{"name":"p"},"spec":{"nodeName":"a","containers":[{"resources":{"requests":{"cpu":"1e99999999"}}}]}}`,
		), pods},
	}
	for name, changes := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.add(pod("p", "1"))
			before := w.Ledger.Snapshot()
			response := w.ask(review(t, "p", "pods", "binding", binding("p", "a"), changes...))
			assert.False(t, response.Allowed)
			assert.NotEmpty(t, response.Result.Message)
			assert.Less(t, len(response.Result.Message), 500)
			assert.Equal(t, before, w.Ledger.Snapshot())
		})
	}
}

// Whatever comes, the webhook answers, and with one of the codes it may.
func FuzzRequest(f *testing.F) {
	f.Add(encode(f, review(f, "p", "pods", "binding", binding("p", "a"))))
	f.Add(encode(f, review(f, "p", "bindings", "", binding("p", "b"))))
	f.Add(encode(f, review(f, "p", "pods", "", withNode("p", "1", "a"))))
	f.Add(
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"x","namespace":"ns","operation":"CREATE","resource":{"version":"v1","resource":"pods"},"object":{}}}`,
	)
	f.Add("{")
	f.Fuzz(func(t *testing.T, body string) {
		w := newWorld(t)
		w.add(pod("p", "1"))
		code, answer := w.post(body)
		switch code {
		case http.StatusOK, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusServiceUnavailable:
		default:
			t.Fatalf("%d: %s", code, answer)
		}
	})
}
