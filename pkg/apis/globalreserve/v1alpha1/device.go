package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ExtendedResource is one device of one node, such as a GPU, with the properties that distinguish it from
// the others. A count in a node's status.allocatable cannot do that.
//
// Whoever knows the devices writes these objects: a person, or an agent on the node. Which pod uses
// a device is decided by the server; a pod asks by an ExtendedResourceClaim.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=er
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`,description="The node the device is on"
// +kubebuilder:printcolumn:name="Resource",type=string,JSONPath=`.spec.resourceName`,description="The resource the device is one of"
// +kubebuilder:printcolumn:name="Device",type=string,JSONPath=`.spec.deviceID`,description="What a container calls the device by"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`,description="The phase of the device"
// +kubebuilder:printcolumn:name="Claim",type=string,JSONPath=`.status.claimRef.name`,description="The claim that has the device"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Claim-Namespace",type=string,priority=1,JSONPath=`.status.claimRef.namespace`,description="The namespace of that claim"
// +kubebuilder:printcolumn:name="Unschedulable",type=boolean,priority=1,JSONPath=`.spec.unschedulable`,description="Whether the device is kept from further claims"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Online")].reason`,description="Why the device is or is not online"
type ExtendedResource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the device is, and where.
	Spec ExtendedResourceSpec `json:"spec"`

	// Status is who has the device. The server alone writes it.
	Status ExtendedResourceStatus `json:"status,omitempty"`
}

// ExtendedResourceList is a list of ExtendedResources.
//
// +kubebuilder:object:root=true
type ExtendedResourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ExtendedResource `json:"items"`
}

// MaxProperties is the most properties of one device.
const MaxProperties = 64

// ExtendedResourceSpec says what a device is, and where. Which device it is never changes; its
// properties may, and count for the claims that are decided from then on.
type ExtendedResourceSpec struct {
	// NodeName is the node the device is on.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeName is immutable: delete the device and create another"
	NodeName string `json:"nodeName"`

	// ResourceName is the resource the device is one of, with the domain of whoever defines it: nvidia.com/gpu.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="resourceName is immutable: delete the device and create another"
	ResourceName string `json:"resourceName"`

	// DeviceID is what the node and a container call the device by, such as a GPU's UUID or a path. It has no comma,
	// semicolon, equals sign or space, because pods are given lists of them. Two objects with the same node, resource and
	// ID are the same device, which is given out once.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9/]([-A-Za-z0-9_.:/@+]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="deviceID is immutable: delete the device and create another"
	DeviceID string `json:"deviceID"`

	// Properties distinguish the device from others of its resource: model: L4, memory: 24Gi; at most 64. Claims select
	// by them. Write names as those of labels; values are any text, and those that claims compare by
	// Gt or Lt are numbers or quantities.
	// +mapType=granular
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) > 0 && size(key) <= 317)",message="a property's name has 1 to 317 characters"
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(self[key]) <= 253)",message="a property's value has at most 253 characters"
	Properties map[string]string `json:"properties,omitempty"`

	// Unschedulable keeps the device from being given out. A pod that has it keeps it. Default: it is given out.
	Unschedulable bool `json:"unschedulable,omitempty"`
}

// ExtendedResourceStatus is who has a device. It is a projection of the pods that are bound.
type ExtendedResourceStatus struct {
	// Phase sums up whether the device can be had. Empty: the server has not seen it yet. Available: no pod has it. Bound:
	// a pod has it. Offline: nobody can have it, as its node is gone or another object is the same device; the Online
	// condition says which.
	Phase ExtendedResourcePhase `json:"phase,omitempty"`

	// ObservedGeneration is the metadata.generation that this status was made from.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// ClaimRef is the claim that has the device.
	ClaimRef *ExtendedResourceClaimReference `json:"claimRef,omitempty"`

	// Conditions are Online.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ExtendedResourcePhase sums up whether a device can be had.
//
// +kubebuilder:validation:Enum=Available;Bound;Offline
type ExtendedResourcePhase string

const (
	// ExtendedResourceAvailable is a device no pod has.
	ExtendedResourceAvailable ExtendedResourcePhase = "Available"

	// ExtendedResourceBound is a device that a claim has, and through it a pod.
	ExtendedResourceBound ExtendedResourcePhase = "Bound"

	// ExtendedResourceOffline is a device nobody can use: its node is gone, or another object is the
	// same device. The Online condition shows it.
	ExtendedResourceOffline ExtendedResourcePhase = "Offline"
)

// ConditionOnline is True while an ExtendedResource's node exists and the device is there to be used.
// While False, its reason and message say why not.
const ConditionOnline = "Online"

// ExtendedResourceClaimReference names a claim.
type ExtendedResourceClaimReference struct {
	// Namespace is the claim's namespace.
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// Name is the claim's name.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// UID is the claim's UID. A claim of the same name and another UID is another claim.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid,omitempty"`
}
