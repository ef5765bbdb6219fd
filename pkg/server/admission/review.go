package admission

import (
	"context"
	"net/http"
	"time"

	"github.com/sirupsen/logrus"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// maxBody bounds a request in bytes. The API server stores objects up to 1.5 MiB,
// which as JSON may be several times as long.
const maxBody = 16 << 20

// The memory of the requests that are being read at the same time, in bytes: whoever reaches the
// port may send them. One whose length is not told counts as the longest there is, and a short
// one as what it takes at least.
const (
	maxBodies = 16 * maxBody
	minBody   = 16 << 10
)

// maxName bounds names and UIDs in bytes, as the API server does.
const maxName = 253

// The results of decisions in metrics and log lines.
const (
	resultGranted = "granted"
	resultRefused = "refused"
	resultSkipped = "skipped" // not ours to decide
)

// verdict is the answer to one request.
type verdict struct {
	refusal *refusal // nil: allowed
	skipped bool     // allowed without a decision
	patch   patch
	warning string
	pod     *cluster.Pod // nil where it was not found
	ref     ledger.PodRef
	node    string
	dryRun  bool
}

// found notes what is known of the pod.
func (v *verdict) found(pod *cluster.Pod) {
	if v.pod = pod; pod != nil {
		v.ref = pod.Ref
	}
}

func skip(ref ledger.PodRef, node string) *verdict {
	return &verdict{skipped: true, ref: ref, node: node}
}

// serve answers one AdmissionReview.
func (a *Admission) serve(w http.ResponseWriter, r *http.Request) error {
	start := time.Now()
	room := bodyRoom(r)
	if err := a.bodies.Acquire(r.Context(), room); err != nil {
		return httpjson.Errorf(http.StatusServiceUnavailable, "too many long requests are being read: try again")
	}
	defer a.bodies.Release(room)
	var review admissionv1.AdmissionReview
	if err := httpjson.Decode(w, r, maxBody, &review); err != nil {
		return err
	}
	if err := checkReview(&review); err != nil {
		return err
	}
	v, err := a.decide(r.Context(), review.Request)
	if err != nil {
		a.o.Log.WithError(err).WithField("user", httpjson.Clip(review.Request.UserInfo.Username)).
			Warn("could not decide on a binding: the webhook's failurePolicy decides")
		return err
	}
	response, err := v.response(review.Request)
	if err != nil {
		return err
	}
	httpjson.Write(w, http.StatusOK, &admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: response})
	a.report(v, review.Request, time.Since(start))
	return nil
}

// bodyRoom is how much memory a request's body may take.
func bodyRoom(r *http.Request) int64 {
	if r.ContentLength < 0 {
		return maxBody
	}
	return min(max(r.ContentLength, minBody), maxBody)
}

// checkReview refuses what is not from an API server.
func checkReview(review *admissionv1.AdmissionReview) error {
	request := review.Request
	switch {
	case review.APIVersion != admissionv1.SchemeGroupVersion.String() || review.Kind != "AdmissionReview":
		return httpjson.Errorf(http.StatusBadRequest,
			"apiVersion \"%s\", kind \"%s\" is not supported: send an AdmissionReview of admission.k8s.io/v1",
			httpjson.Clip(review.APIVersion), httpjson.Clip(review.Kind))
	case request == nil:
		return httpjson.Errorf(http.StatusBadRequest, "request is missing: send an AdmissionReview with a request")
	case request.UID == "" || len(request.UID) > maxName:
		return httpjson.Errorf(http.StatusBadRequest, "request.uid must have 1 to %d bytes: the answer repeats it", maxName)
	case len(validation.IsDNS1123Label(request.Namespace)) > 0:
		return httpjson.Errorf(http.StatusBadRequest, "request.namespace \"%s\" is not the name of a namespace: bindings and pods are in one",
			httpjson.Clip(request.Namespace))
	default:
		return nil
	}
}

// decide tells the kinds of requests apart.
func (a *Admission) decide(ctx context.Context, request *admissionv1.AdmissionRequest) (*verdict, error) {
	resource := request.Resource.Resource
	if request.SubResource != "" {
		resource += "/" + request.SubResource
	}
	core := request.Resource.Group == "" && request.Resource.Version == "v1" && request.Operation == admissionv1.Create
	switch {
	case core && (resource == "pods/binding" || resource == "bindings"):
		return a.decideBinding(ctx, request)
	case core && resource == "pods":
		return a.decidePod(ctx, request)
	default:
		v := skip(ledger.PodRef{Namespace: request.Namespace, Name: request.Name}, "")
		v.warning = "GlobalReserve decides on the creation of pods/binding, bindings and pods only: correct the rules of its webhook configuration"
		return v, nil
	}
}

func isDryRun(request *admissionv1.AdmissionRequest) bool {
	return request.DryRun != nil && *request.DryRun
}

// response puts a verdict into the API server's words.
func (v *verdict) response(request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: v.refusal == nil}
	if v.warning != "" {
		response.Warnings = []string{v.warning}
	}
	if v.refusal != nil {
		response.Result = &metav1.Status{
			Status: metav1.StatusFailure, Code: v.refusal.code, Reason: v.refusal.reason, Message: v.refusal.message,
		}
		return response, nil
	}
	if len(v.patch) == 0 {
		return response, nil
	}
	encoded, err := v.patch.encode()
	if err != nil {
		return nil, err
	}
	kind := admissionv1.PatchTypeJSONPatch
	response.Patch, response.PatchType = encoded, &kind
	return response, nil
}

// report counts and logs a decision.
func (a *Admission) report(v *verdict, request *admissionv1.AdmissionRequest, took time.Duration) {
	scheduler, result := "", resultGranted
	if v.pod != nil {
		scheduler = v.pod.Scheduler
	}
	fields := logrus.Fields{
		"pod": httpjson.Clip(v.ref.String()), "uid": httpjson.Clip(string(v.ref.UID)), "node": httpjson.Clip(v.node), "scheduler": scheduler,
		"user": httpjson.Clip(request.UserInfo.Username), "ms": float64(took.Microseconds()) / 1e3,
	}
	switch {
	case v.skipped:
		result = resultSkipped
	case v.refusal != nil:
		result = resultRefused
		fields["code"], fields["error"] = v.refusal.code, v.refusal.message
		if r := v.refusal.rejection; r != nil {
			fields["reason"] = r.Reason.String()
		}
	}
	if v.dryRun {
		fields["dryRun"] = true
	}
	fields["result"] = result
	a.o.Log.WithFields(fields).Info(verb)
	if v.dryRun {
		return // nothing was decided that holds
	}
	a.o.Metrics.ObserveDecision(verb, scheduler, result)
	if v.refusal != nil && v.refusal.rejection != nil {
		if name, short := v.refusal.rejection.Shortage(); short {
			a.o.Metrics.ObserveConflict(scheduler, name)
		}
	}
}
