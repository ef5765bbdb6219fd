package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel/trace"
	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics/tracing"
	"github.com/globalreserve/globalreserve/pkg/requeue"
)

// maxBody bounds a request in bytes. The API server stores objects up to 1.5 MiB,
// which as JSON may be several times as long.
const maxBody = 16 << 20

// maxName bounds names and UIDs in bytes, as the API server does.
const maxName = 253

// The results of decisions in metrics and log lines.
const (
	resultGranted = "granted"
	resultRefused = "refused"
	resultWarned  = "warned"  // allowed, with a warning that it would be refused
	resultSkipped = "skipped" // not ours to decide
	resultPlanned = "planned" // what would be granted; a log line only
)

// verdict is the answer to one request.
type verdict struct {
	verb    string         // in metrics and log lines
	kind    string         // of the object under review, in log lines: pod or claim
	refusal *metav1.Status // nil: allowed
	warned  bool           // the refusal is a warning only
	// rejection is the ledger's, where it was the ledger that refused.
	rejection *ledger.Rejection
	// times is how often a repeated Binding was refused, see decide.Admitted.
	times   int
	skipped bool // allowed without a decision
	planned bool // another review decides, unless it is refused already
	patch   patch
	warning string
	pod     *cluster.Pod // nil where it was not found
	ref     ledger.PodRef
	node    string
	from    string // the node that the Binding named, where it was redirected
	dryRun  bool
	span    trace.Span    // nil where there is none to end
	asked   ledger.PodRef // ref, as the request had it
}

// newVerdict begins the answer to a request.
func newVerdict(request *admissionv1.AdmissionRequest) *verdict {
	return &verdict{
		verb: verb, kind: "pod",
		ref: ledger.PodRef{Namespace: request.Namespace, Name: request.Name}, dryRun: ptr.Deref(request.DryRun, false),
	}
}

// found notes what is known of the pod, and why it is refused, if err says so.
func (v *verdict) found(pod *cluster.Pod, err error) error {
	if v.pod = pod; pod != nil {
		v.ref = pod.Ref
	}
	if err == nil {
		return nil
	}
	return v.refuse(err)
}

// traced starts the span of the decision, which serve ends.
func (v *verdict) traced(ctx context.Context) context.Context {
	v.asked = v.ref
	ctx, v.span = tracing.Pod(ctx, verb, v.ref)
	return ctx
}

// endSpan ends it.
func (v *verdict) endSpan(ctx context.Context) {
	if v.span == nil {
		return // nothing was to be decided
	}
	if v.asked.UID == "" { // by now it may be known
		tracing.Members(trace.ContextWithSpan(ctx, v.span), verb, []ledger.Placement{{Pod: v.ref, Node: v.node}})
	}
	var why error
	if v.refusal != nil {
		why = errors.New(v.refusal.Message)
	}
	tracing.Placed(v.span, v.result(), v.node, why)
	v.span.End()
}

// serve answers one AdmissionReview.
func (a *Admission) serve(w http.ResponseWriter, r *http.Request) error {
	start := time.Now()
	var review admissionv1.AdmissionReview
	release, err := a.o.Intake.Decode(w, r, maxBody, &review)
	defer release()
	if err != nil {
		return err
	}
	if err := checkReview(&review); err != nil {
		return err
	}
	v, err := a.decide(r.Context(), r.URL.Path, review.Request)
	if err != nil {
		a.o.Log.WithError(err).WithFields(logrus.Fields{
			"path": r.URL.Path, "user": httpjson.Clip(review.Request.UserInfo.Username),
		}).Warn("could not decide on a write: the webhook's failurePolicy decides")
		return err
	}
	if v.refusal != nil && a.o.Arbiter.AdmissionWarns() {
		v.warn()
	}
	v.endSpan(r.Context())
	response, err := v.response(review.Request)
	if err != nil {
		return err
	}
	httpjson.Write(w, http.StatusOK, &admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: response})
	if a.o.Observer == nil {
		a.report(v, review.Request, time.Since(start))
	}
	return nil
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
		return httpjson.Errorf(http.StatusBadRequest,
			"request.namespace \"%s\" is not the name of a namespace: bindings and pods are in one",
			httpjson.Clip(request.Namespace))
	default:
		return nil
	}
}

// decide decides by the path of the webhook.
func (a *Admission) decide(ctx context.Context, path string, request *admissionv1.AdmissionRequest) (*verdict, error) {
	switch {
	case a.o.Observer != nil:
		return a.allow(request), nil
	case path == PodsPath:
		return a.decidePod(ctx, request)
	case path == ResourceClaimsPath:
		return a.decideClaim(ctx, request)
	default:
		return a.decideKind(ctx, request)
	}
}

// decideKind decides by the kind of a request at Path.
func (a *Admission) decideKind(ctx context.Context, request *admissionv1.AdmissionRequest) (*verdict, error) {
	resource := request.Resource.Resource
	if request.SubResource != "" {
		resource += "/" + request.SubResource
	}
	core := request.Resource.Group == "" && request.Resource.Version == "v1"
	create := core && request.Operation == admissionv1.Create
	switch {
	case create && (resource == "pods/binding" || resource == "bindings"):
		return a.decideBinding(ctx, request)
	case create && resource == "pods":
		return a.planPod(ctx, request)
	case core && resource == "pods/resize" && request.Operation == admissionv1.Update:
		return a.decideResize(ctx, request)
	default:
		v := newVerdict(request)
		v.skipped = true
		v.warning = "GlobalReserve decides on the creation of pods/binding, bindings and pods and on the update of " +
			"pods/resize only: correct the rules of its webhook configuration"
		return v, nil
	}
}

// allow allows a request as it is, and notes who binds a pod by it.
func (a *Admission) allow(request *admissionv1.AdmissionRequest) *verdict {
	v := newVerdict(request)
	v.skipped = true
	var binding v1.Binding
	if request.Kind.Kind == "Binding" && !v.dryRun && json.Unmarshal(request.Object.Raw, &binding) == nil {
		a.o.Observer.Asked(requeue.Admission, request.UserInfo.Username, v.ref, binding.Target.Name)
	}
	return v
}

// warn makes a warning of a refusal. A pod that is allowed that way has no allocation before the watch shows it bound.
// It is counted as bound past the ledger then.
func (v *verdict) warn() {
	v.warned, v.warning = true, "GlobalReserve would refuse this: "+v.refusal.Message
}

// result is what became of it, for metrics and log lines.
func (v *verdict) result() string {
	switch {
	case v.skipped:
		return resultSkipped
	case v.warned:
		return resultWarned
	case v.refusal != nil:
		return resultRefused
	case v.planned:
		return resultPlanned
	default:
		return resultGranted
	}
}

// response returns a verdict in the API server's form.
func (v *verdict) response(request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: v.refusal == nil || v.warned}
	if v.warning != "" {
		response.Warnings = []string{v.warning}
	}
	if !response.Allowed {
		response.Result = v.refusal
		return response, nil
	}
	if len(v.patch) == 0 {
		return response, nil
	}
	encoded, err := json.Marshal(v.patch)
	if err != nil {
		return nil, fmt.Errorf("encoding the patch of the object under review: %w", err)
	}
	kind := admissionv1.PatchTypeJSONPatch
	response.Patch, response.PatchType = encoded, &kind
	return response, nil
}

// report counts and logs a decision.
func (a *Admission) report(v *verdict, request *admissionv1.AdmissionRequest, took time.Duration) {
	scheduler, result := "", v.result()
	if v.pod != nil {
		scheduler = v.pod.Scheduler
	}
	fields := logrus.Fields{
		v.kind: httpjson.Clip(v.ref.String()), "uid": httpjson.Clip(string(v.ref.UID)),
		"user": httpjson.Clip(request.UserInfo.Username), "ms": float64(took.Microseconds()) / 1e3, "result": result,
	}
	if v.verb == verb {
		fields["node"], fields["scheduler"] = httpjson.Clip(v.node), scheduler
	}
	if v.refusal != nil {
		fields["code"], fields["error"] = v.refusal.Code, v.refusal.Message
		if v.rejection != nil {
			fields["reason"] = v.rejection.Reason.String()
		}
	}
	if v.from != "" {
		fields["redirectedFrom"] = httpjson.Clip(v.from)
	}
	if v.dryRun {
		fields["dryRun"] = true
	}
	level := logrus.InfoLevel
	if v.times > 1 {
		fields["times"] = v.times
		if !requeue.IsRound(v.times) {
			level = logrus.DebugLevel
		}
	}
	a.o.Log.WithFields(fields).Log(level, v.verb)
	if v.dryRun || result == resultPlanned {
		return // nothing was decided that holds
	}
	a.o.Metrics.ObserveDecision(v.verb, scheduler, result)
	if v.rejection != nil && !v.warned {
		a.o.Metrics.ObserveRejection(scheduler, v.rejection)
	}
}
