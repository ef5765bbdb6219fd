package admission

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// decideBinding decides on a Binding.
func (a *Admission) decideBinding(ctx context.Context, request *admissionv1.AdmissionRequest) (*verdict, error) {
	v := &verdict{ref: ledger.PodRef{Namespace: request.Namespace, Name: request.Name}, dryRun: isDryRun(request)}
	var binding v1.Binding
	if v.refusal = decode(request, &binding); v.refusal != nil {
		return v, nil
	}
	v.ref.Name, v.ref.UID, v.node = binding.Name, binding.UID, binding.Target.Name
	if v.refusal = checkBinding(&binding, request); v.refusal != nil {
		return v, nil
	}
	found, refusal, err := a.find(ctx, v.ref, binding.ResourceVersion)
	if err != nil || refusal != nil {
		v.refusal = refusal
		return v, err
	}
	v.pod, v.ref = found.pod, found.pod.Ref
	asked := ask{placement: a.placement(found.pod, v.node), own: a.isSelf(request.UserInfo.Username)}
	if v.dryRun {
		v.refusal = a.tryOut(&asked.placement)
	} else {
		asked.grant, v.refusal = a.claim(ctx, &asked)
	}
	switch {
	case v.refusal != nil:
	case asked.inFlight:
		v.skipped = true
	default:
		v.patch = bindingPatch(&binding, &found, a.told(found.pod, &asked, v.dryRun))
	}
	return v, nil
}

// decode reads the object under review.
func decode(request *admissionv1.AdmissionRequest, into any) *refusal {
	if err := httpjson.Unmarshal(request.Object.Raw, into, podinfo.Quantities); err != nil {
		return refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, "the object under review cannot be read: "+err.Error())
	}
	return nil
}

// count makes the compact form of a pod.
func (a *Admission) count(pod *v1.Pod) (*podinfo.Info, *refusal) {
	info, err := podinfo.New(a.o.Ledger.Table(), pod)
	if err != nil {
		return nil, invalid("the pod cannot be scheduled: " + err.Error())
	}
	return info, nil
}

func invalid(message string) *refusal {
	return refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, message)
}

// checkBinding refuses what the API server would not carry out.
func checkBinding(binding *v1.Binding, request *admissionv1.AdmissionRequest) *refusal {
	wrong := func(format string, args ...any) *refusal {
		return refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf(format, args...))
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

// found is a pod that can be bound, and the resourceVersion it was seen at.
type found struct {
	pod     *podinfo.Info
	version string
}

// find looks the pod of a Binding up. ref.UID and version are the preconditions
// of the Binding, empty where it has none. A pod that the informer shows in a
// state that does not go with the Binding is read live: the informer may be behind.
func (a *Admission) find(ctx context.Context, ref ledger.PodRef, version string) (found, *refusal, error) {
	if info, ok := a.o.Pods.Pod(ref.Namespace, ref.Name); ok && bindable(info, ref, version) {
		return found{info, formatVersion(info)}, nil, nil
	}
	pod, err := a.get(ctx, ref)
	switch {
	case apierrors.IsNotFound(err):
		return found{}, refuse(http.StatusNotFound, metav1.StatusReasonNotFound,
			fmt.Sprintf("pod %s does not exist; do not schedule it", ref)), nil
	case err != nil:
		return found{}, nil, httpjson.Errorf(http.StatusServiceUnavailable, "pod %s cannot be read, so nothing can be decided on it: %s", ref, err)
	}
	if refusal := judge(pod, ref, version); refusal != nil {
		return found{}, refusal, nil
	}
	info, refusal := a.count(pod)
	return found{info, pod.ResourceVersion}, refusal, nil
}

// bindable reports whether the informer's pod is surely the one to be bound. A
// pod that asks for a resource no node had when it was seen is looked at anew.
func bindable(info *podinfo.Info, ref ledger.PodRef, version string) bool {
	return info.Node == "" && !info.Finished && !info.Deleting && len(info.Request.Unlisted) == 0 &&
		info.ResourceVersion != 0 && (version == "" || version == formatVersion(info)) &&
		(ref.UID == "" || ref.UID == info.Ref.UID)
}

func formatVersion(info *podinfo.Info) string { return strconv.FormatUint(info.ResourceVersion, 10) }

// judge refuses a pod that the API server would not bind.
func judge(pod *v1.Pod, ref ledger.PodRef, version string) *refusal {
	finished := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	switch {
	case ref.UID != "" && ref.UID != pod.UID:
		return conflict(fmt.Sprintf("pod %s has the UID %s, not %s: it was deleted and created again; schedule the new pod",
			ref, pod.UID, httpjson.Clip(string(ref.UID))))
	case pod.Spec.NodeName != "":
		return alreadyBound(ref, pod.Spec.NodeName)
	case pod.DeletionTimestamp != nil || finished:
		return conflict(fmt.Sprintf("pod %s is being deleted or has finished; do not schedule it", ref))
	case version != "" && version != pod.ResourceVersion:
		return conflict(fmt.Sprintf("pod %s has the resourceVersion %s, not %s: it has changed; look at it again",
			ref, pod.ResourceVersion, httpjson.Clip(version)))
	default:
		return nil
	}
}

func alreadyBound(ref ledger.PodRef, node string) *refusal {
	return conflict(fmt.Sprintf("pod %s is bound to node %q already; nothing is left to do", ref, node))
}

func (a *Admission) get(ctx context.Context, ref ledger.PodRef) (*v1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return a.o.Client.Get(ctx, ref.Namespace, ref.Name)
}

func (a *Admission) placement(pod *podinfo.Info, node string) ledger.Placement {
	placement := pod.Placement(node)
	placement.Holds = a.o.Reservations.Candidates(pod)
	if pod.Devices != nil {
		placement.Devices = a.o.Devices.Devices(pod)
	}
	placement.Preempt = pod.Ref.UID != "" && a.o.Preemptors.Allowed(pod.Ref.UID)
	return placement
}

// told is what a pod is told, by its annotations, of what it was granted. A trial grants
// nothing.
func (a *Admission) told(pod *podinfo.Info, asked *ask, dryRun bool) map[string]string {
	annotations := pod.Matching(asked.grant.Hold, a.o.Reservations.Origin)
	if dryRun {
		return annotations
	}
	return pod.Given(annotations, asked.grant.Devices)
}

// bindingPatch adds the preconditions under which a Binding may be carried out,
// and what tells of the hold that its pod uses.
func bindingPatch(binding *v1.Binding, pod *found, annotations map[string]string) patch {
	var p patch
	if binding.UID == "" {
		p.set("/metadata/uid", pod.pod.Ref.UID)
	}
	if binding.ResourceVersion == "" {
		p.set("/metadata/resourceVersion", pod.version)
	}
	p.annotate(binding.Annotations, trueMatches(binding.Annotations, annotations))
	return p
}

// trueMatches adds to annotations what takes away the claim of an object under
// review to use a hold that it does not use.
func trueMatches(present, annotations map[string]string) map[string]string {
	const matched = v1alpha1.MatchedReservationAnnotation
	if present[matched] == "" || annotations[matched] != "" {
		return annotations
	}
	return map[string]string{matched: ""}
}
