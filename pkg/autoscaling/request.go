package autoscaling

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/policy"
)

// requests is the kind of a ProvisioningRequest.
var (
	groupVersion = schema.GroupVersion{Group: "autoscaling.x-k8s.io", Version: "v1"}
	requests     = groupVersion.WithResource("provisioningrequests")
)

const (
	// managedByLabel has the value managedBy on all that is made here.
	managedByLabel, managedBy = "app.kubernetes.io/managed-by", "globalreserve"
	// maxPodSets is how many kinds of pods the API lets a request have.
	maxPodSets = 32
	// maxPrefix is how much of a reservation's name comes before its UID in the names of what is made for it.
	maxPrefix = 150
	// image is never pulled: no pod is made from the templates.
	image = "registry.k8s.io/pause:3.10"
)

// podSet is slots that ask for the same.
type podSet struct {
	template v1.PodTemplateSpec
	count    int64
}

// podSets returns what a reservation asks for, or why an autoscaler cannot be asked for it.
func podSets(rsv *v1alpha1.Reservation) (sets []podSet, why string) {
	for i := range rsv.Spec.Slots {
		slot := &rsv.Spec.Slots[i]
		switch {
		case slot.NodeName != "":
			return nil, fmt.Sprintf("slot %s is for node %s, which a new node cannot be", slot.Name, slot.NodeName)
		case len(slot.Devices) > 0:
			return nil, fmt.Sprintf("slot %s keeps devices, of which an autoscaler knows nothing", slot.Name)
		}
		template := templateOf(slot)
		k := slices.IndexFunc(sets, func(s podSet) bool { return apiequality.Semantic.DeepEqual(s.template, template) })
		if k < 0 {
			k, sets = len(sets), append(sets, podSet{template: template})
		}
		sets[k].count++
		if len(sets) > maxPodSets {
			return nil, fmt.Sprintf("the slots ask for more than %d different amounts or kinds of nodes", maxPodSets)
		}
	}
	return sets, ""
}

// templateOf is a pod that asks for as much as a slot.
func templateOf(slot *v1alpha1.Slot) v1.PodTemplateSpec {
	container := v1.Container{
		Name: "slot", Image: image,
		// For resources other than CPU and memory the limits have to be equal to the requests.
		Resources: v1.ResourceRequirements{Requests: slot.Requests, Limits: slot.Requests},
	}
	for _, p := range slot.HostPorts {
		container.Ports = append(container.Ports, v1.ContainerPort{
			ContainerPort: p.Port, HostPort: p.Port, HostIP: p.HostIP,
			Protocol: p.Protocol,
		})
	}
	return v1.PodTemplateSpec{Spec: v1.PodSpec{
		Containers: []v1.Container{container}, NodeSelector: maps.Clone(slot.NodeSelector), Tolerations: slot.Tolerations,
	}}
}

// requestName is the name of the one request for a reservation: another reservation of the same name has another one.
func requestName(rsv *v1alpha1.Reservation) string {
	prefix := strings.TrimRight(rsv.Name[:min(len(rsv.Name), maxPrefix)], "-.")
	return prefix + "-" + string(rsv.UID)
}

// meta returns the metadata of an object that is made for a reservation, and goes with it.
func meta(rsv *v1alpha1.Reservation, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: rsv.Namespace, Name: name, Labels: map[string]string{managedByLabel: managedBy},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Reservation", Name: rsv.Name, UID: rsv.UID,
		}},
	}
}

// podTemplates are those of a request.
func podTemplates(rsv *v1alpha1.Reservation, sets []podSet) []*v1.PodTemplate {
	templates := make([]*v1.PodTemplate, len(sets))
	for i := range sets {
		templates[i] = &v1.PodTemplate{
			ObjectMeta: meta(rsv, fmt.Sprintf("%s-%d", requestName(rsv), i)),
			Template:   sets[i].template,
		}
	}
	return templates
}

// newRequest returns the request for the pods of the templates.
func newRequest(rsv *v1alpha1.Reservation, sets []podSet,
	rules *policy.ProvisioningRequests,
) (*unstructured.Unstructured, error) {
	m := meta(rsv, requestName(rsv))
	metadata, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&m)
	if err != nil {
		return nil, err
	}
	list := make([]any, len(sets))
	for i := range sets {
		list[i] = map[string]any{"count": sets[i].count, "podTemplateRef": map[string]any{"name": fmt.Sprintf("%s-%d", m.Name,
			i)}}
	}
	spec := map[string]any{"provisioningClassName": rules.ClassName, "podSets": list}
	if len(rules.Parameters) > 0 {
		parameters := map[string]any{}
		for name, value := range rules.Parameters {
			parameters[name] = value
		}
		spec["parameters"] = parameters
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": groupVersion.String(), "kind": "ProvisioningRequest", "metadata": metadata, "spec": spec,
	}}, nil
}

// ownerOf names the reservation that a request was made for here; it is empty for any other.
func ownerOf(request *unstructured.Unstructured) metav1.OwnerReference {
	for _, owner := range request.GetOwnerReferences() {
		ofOurs := owner.Kind == "Reservation" && owner.APIVersion == v1alpha1.SchemeGroupVersion.String()
		if ofOurs && owner.UID != "" && strings.HasSuffix(request.GetName(), "-"+string(owner.UID)) {
			return owner
		}
	}
	return metav1.OwnerReference{}
}

// The reasons of the condition ProvisioningRequested. Some are the conditions of a request that say how far it is.
const (
	reasonRequested     = "Requested"
	reasonAccepted      = "Accepted"
	reasonProvisioned   = "Provisioned"
	reasonRevoked       = "CapacityRevoked"
	reasonFailed        = "Failed"
	reasonRequestFailed = "RequestFailed"
	// reasonNotRequestable is of what an autoscaler cannot be asked for.
	reasonNotRequestable = "NotRequestable"
)

// answers are the conditions of a request that count, the last first.
var answers = []string{reasonFailed, reasonRevoked, reasonProvisioned, reasonAccepted}

// answerOf is how far a request is, as a reason and a message.
func answerOf(request *unstructured.Unstructured) (reason, message string) {
	var status struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	raw, _, _ := unstructured.NestedMap(request.Object, "status")
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &status) // what cannot be read says nothing
	reason, message = reasonRequested, "ProvisioningRequest "+request.GetName()
	for _, kind := range answers {
		if c := apimeta.FindStatusCondition(status.Conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
			return kind, fmt.Sprintf("%s is %s: %s: %s", message, kind, c.Reason, c.Message)
		}
	}
	return reason, message + " was made; no autoscaler has accepted it yet"
}
