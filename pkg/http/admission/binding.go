package admission

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// decideBinding decides on a Binding.
func (a *Admission) decideBinding(ctx context.Context, request *admissionv1.AdmissionRequest) (*verdict, error) {
	v := newVerdict(request)
	var binding v1.Binding
	if v.refusal = decode(request.Object.Raw, &binding); v.refusal == nil {
		v.ref.Name, v.ref.UID, v.node = binding.Name, binding.UID, binding.Target.Name
		v.refusal = checkBinding(&binding, request)
	}
	if v.refusal != nil {
		v.patch.disownUnread(request.Object.Raw)
		return v, nil
	}
	said, err := a.o.Arbiter.AdmitBinding(v.traced(ctx), &decide.BindingQuery{
		Pod: v.ref, Version: binding.ResourceVersion, Node: v.node, User: request.UserInfo.Username, DryRun: v.dryRun,
	})
	v.skipped, v.times = said.Own, said.Times
	if err := v.found(said.Pod, err); err != nil || said.Own {
		return v, err
	}
	binding.Annotations = v.patch.disown(binding.Annotations)
	if v.refusal != nil {
		v.patch.annotate(binding.Annotations, withoutMatch(said.Pod))
		return v, nil
	}
	v.patch.precondition(&binding, said.Pod)
	v.patch.annotate(binding.Annotations, said.Annotations)
	if said.RedirectTo != "" {
		v.patch.set("/target/name", said.RedirectTo)
		v.from, v.node = v.node, said.RedirectTo
	}
	return v, nil
}

// decode reads the object under review.
func decode(object []byte, into any) *metav1.Status {
	if err := httpjson.Unmarshal(object, into, httpjson.Quantities); err != nil {
		return status(http.StatusBadRequest, metav1.StatusReasonBadRequest, "the object under review cannot be read: "+
			err.Error())
	}
	return nil
}

// checkBinding refuses what the API server would not carry out.
func checkBinding(binding *v1.Binding, request *admissionv1.AdmissionRequest) *metav1.Status {
	wrong := func(format string, args ...any) *metav1.Status {
		return status(http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf(format, args...))
	}
	switch {
	case request.SubResource != "" && binding.Name != request.Name:
		return wrong("the Binding names pod \"%s\", the URL \"%s\": send the same name in both",
			httpjson.Clip(binding.Name), httpjson.Clip(request.Name))
	case len(validation.IsDNS1123Subdomain(binding.Name)) > 0:
		return wrong("the Binding's metadata.name \"%s\" is not the name of a pod", httpjson.Clip(binding.Name))
	case binding.Target.Kind != "" && binding.Target.Kind != "Node":
		return wrong("the Binding's target.kind is \"%s\": pods are bound to a Node", httpjson.Clip(binding.Target.Kind))
	case binding.Target.Name == "":
		return wrong("the Binding's target.name is missing: send the name of the node")
	case len(binding.Target.Name) > maxName || len(binding.UID) > maxName:
		return wrong("the Binding's target.name or metadata.uid is longer than %d bytes: nothing has such a name", maxName)
	default:
		return nil
	}
}

// precondition adds the preconditions under which a Binding may be carried out.
func (p *patch) precondition(binding *v1.Binding, pod *cluster.Pod) {
	if binding.UID == "" {
		p.set("/metadata/uid", pod.Ref.UID)
	}
	if binding.ResourceVersion == "" {
		p.set("/metadata/resourceVersion", strconv.FormatUint(pod.ResourceVersion, 10))
	}
}

// withoutMatch takes away what a pod says of its slot, when its Binding is refused. Where a refusal is only a warning
// the pod is bound all the same, and the ledger would believe the annotation.
func withoutMatch(pod *cluster.Pod) map[string]string {
	if pod == nil || pod.Matched() == (ledger.SlotRef{}) {
		return nil
	}
	return map[string]string{v1alpha1.MatchedReservationAnnotation: ""}
}
