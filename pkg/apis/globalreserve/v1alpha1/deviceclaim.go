package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// MaxClaimedDevices is the most devices of one ExtendedResourceClaim.
	MaxClaimedDevices = 64

	// MaxPodClaims is the most claims that one pod may name in its annotation.
	MaxPodClaims = 16
)

// ExtendedResourceClaim asks for devices of one resource, all of them on one node, for a pod of its
// namespace that names it in the annotation globalreserve.io/extended-resource-claims. It serves one
// pod at a time: another pod that names it waits until the first is gone.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=erc
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Resource",type=string,JSONPath=`.spec.resourceName`,description="The resource the devices are of"
// +kubebuilder:printcolumn:name="Count",type=integer,JSONPath=`.spec.count`,description="How many devices are claimed"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`,description="The phase of the claim"
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`,description="The node the devices are on"
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.status.podRef.name`,description="The pod that uses the devices"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Devices",type=string,priority=1,JSONPath=`.status.extendedResources`,description="The devices"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Bound")].reason`,description="Why the claim is or is not bound"
type ExtendedResourceClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is which devices are wanted. It is fixed at creation.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a claim's spec is immutable: delete the claim and create another"
	Spec ExtendedResourceClaimSpec `json:"spec"`

	// Status is which devices the claim has, and for whom. The server alone writes it.
	Status ExtendedResourceClaimStatus `json:"status,omitempty"`
}

// ExtendedResourceClaimList is a list of ExtendedResourceClaims.
//
// +kubebuilder:object:root=true
type ExtendedResourceClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ExtendedResourceClaim `json:"items"`
}

// ExtendedResourceClaimSpec says which devices are wanted: so many, of a resource, each of which the
// selector selects, and among them those that are named.
//
// +kubebuilder:validation:XValidation:rule="!has(self.extendedResourceNames) || !has(self.count) || size(self.extendedResourceNames) <= self.count",message="extendedResourceNames names more devices than count asks for"
type ExtendedResourceClaimSpec struct {
	// ResourceName is the resource the devices are of: nvidia.com/gpu.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	ResourceName string `json:"resourceName"`

	// Count is how many devices are wanted, all on one node, from 1, the default, to 64.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Count int32 `json:"count,omitempty"`

	// Selector selects devices by their properties. Absent or empty: every device of the resource.
	Selector *DeviceSelector `json:"selector,omitempty"`

	// ExtendedResourceNames are names of ExtendedResource objects that have to be among the devices,
	// at most count of them, and at most 64. The selector has to select these, too.
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	ExtendedResourceNames []string `json:"extendedResourceNames,omitempty"`
}

// DeviceSelector selects devices by their properties, as a label selector selects objects by their
// labels. A device has to meet all of it.
type DeviceSelector struct {
	// MatchProperties are properties with the very value a device must have, at most 32.
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) > 0 && size(key) <= 317)",message="a property's name has 1 to 317 characters"
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(self[key]) <= 253)",message="a property's value has at most 253 characters"
	MatchProperties map[string]string `json:"matchProperties,omitempty"`

	// MatchExpressions are conditions on single properties, at most 32.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	MatchExpressions []PropertyRequirement `json:"matchExpressions,omitempty"`
}

// PropertyRequirement is a condition on one property of a device.
//
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)",message="In and NotIn need values"
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0",message="Exists and DoesNotExist take no values"
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['Gt', 'Lt']) || (has(self.values) && size(self.values) == 1 && self.values[0].matches('^[+-]?([0-9]{1,18}([.][0-9]{0,9})?|[.][0-9]{1,9})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$'))",message="Gt and Lt need one value that is a number or a quantity, such as 12 or 12Gi"
type PropertyRequirement struct {
	// Key is the name of the property.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Key string `json:"key"`

	// Operator says how the device's value is compared with values. In: it is one of them. NotIn: it is none of them,
	// or the device has no such property. Exists: the device has the property, whatever its value. DoesNotExist: it has
	// not. Gt and Lt: it is a number or a quantity greater, or less, than the one value: 12Gi is greater than 8Gi.
	Operator PropertyOperator `json:"operator"`

	// Values are what the device's value is compared with: one or more, at most 64, for In and NotIn, none for
	// Exists and DoesNotExist, one number or quantity for Gt and Lt.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Values []string `json:"values,omitempty"`
}

// PropertyOperator says how a device's property is compared with values.
//
// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist;Gt;Lt
type PropertyOperator string

const (
	// PropertyIn wants the property to have one of the values.
	PropertyIn PropertyOperator = "In"

	// PropertyNotIn wants the property to have none of the values. A device without it will do.
	PropertyNotIn PropertyOperator = "NotIn"

	// PropertyExists wants the device to have the property, whatever its value.
	PropertyExists PropertyOperator = "Exists"

	// PropertyDoesNotExist wants the device not to have the property.
	PropertyDoesNotExist PropertyOperator = "DoesNotExist"

	// PropertyGt wants the property to be a number or a quantity greater than the value: 12Gi is
	// greater than 8Gi. A device without it, or with something else there, will not do.
	PropertyGt PropertyOperator = "Gt"

	// PropertyLt wants the property to be a number or a quantity less than the value.
	PropertyLt PropertyOperator = "Lt"
)

// ExtendedResourceClaimStatus is which devices a claim has, and for whom. It is a projection of the
// pods that are bound.
type ExtendedResourceClaimStatus struct {
	// Phase sums up where the claim stands. Empty: the server has not seen it yet. Pending: no pod that names it is bound,
	// so that it has no devices. Bound: the pod of podRef has its devices. Lost: a device was deleted while that pod used
	// it.
	Phase ExtendedResourceClaimPhase `json:"phase,omitempty"`

	// ObservedGeneration is the metadata.generation that this status was made from.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// NodeName is the node the devices are on.
	NodeName string `json:"nodeName,omitempty"`

	// ExtendedResources are the names of the ExtendedResource objects the claim has, at most 64.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	ExtendedResources []string `json:"extendedResources,omitempty"`

	// PodRef is the pod, of the claim's namespace, that uses the devices.
	PodRef *PodReference `json:"podRef,omitempty"`

	// Conditions are Bound.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ExtendedResourceClaimPhase sums up where an ExtendedResourceClaim stands.
//
// +kubebuilder:validation:Enum=Pending;Bound;Lost
type ExtendedResourceClaimPhase string

const (
	// ExtendedResourceClaimPending has no devices: no pod that names it is bound.
	ExtendedResourceClaimPending ExtendedResourceClaimPhase = "Pending"

	// ExtendedResourceClaimBound has its devices, for the pod of its podRef.
	ExtendedResourceClaimBound ExtendedResourceClaimPhase = "Bound"

	// ExtendedResourceClaimLost had its devices, and one of them was deleted while the pod used it.
	ExtendedResourceClaimLost ExtendedResourceClaimPhase = "Lost"
)

// ConditionBound is True while an ExtendedResourceClaim has its devices. While False, its reason and
// message say what is missing.
const ConditionBound = "Bound"

// ExtendedResourceClaimFinalizer keeps a claim that a pod uses from going before the pod, so that its
// devices stay counted until then.
const ExtendedResourceClaimFinalizer = "globalreserve.io/extended-resource-claim-in-use"
