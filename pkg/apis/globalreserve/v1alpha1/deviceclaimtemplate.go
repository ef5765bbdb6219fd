package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ExtendedResourceClaimTemplate is what claims of pods are made from: each pod of its namespace that names it in the
// annotation globalreserve.io/extended-resource-claims, as template:NAME, gets an ExtendedResourceClaim of its own,
// which goes when the pod goes. So all pods of a Deployment can name the same template.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=erct
// +kubebuilder:printcolumn:name="Resource",type=string,JSONPath=`.spec.resourceName`,description="The resource the devices are of"
// +kubebuilder:printcolumn:name="Count",type=integer,JSONPath=`.spec.count`,description="How many devices each claim is for"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ExtendedResourceClaimTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the spec of each claim that is made. It is fixed at creation.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a template's spec is immutable: delete the template and create another; the claims that were made from it stay"
	Spec ExtendedResourceClaimSpec `json:"spec"`
}

// ExtendedResourceClaimTemplateList is a list of ExtendedResourceClaimTemplates.
//
// +kubebuilder:object:root=true
type ExtendedResourceClaimTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ExtendedResourceClaimTemplate `json:"items"`
}

// ClaimTemplateAnnotation is on a claim that was made from a template, and names that.
const ClaimTemplateAnnotation = "globalreserve.io/extended-resource-claim-template"
