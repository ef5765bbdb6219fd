package extendeddevices

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// reasonNotMade is of Events on pods whose claims the API server does not let the server make.
const reasonNotMade = "DeviceClaimNotMade"

// Waits is called with a pod without a node that was first seen, or names other claims now. The claims that it gets
// from templates are made.
func (c *Controller) Waits(pod *cluster.Pod) {
	if c.Ready.IsOpen() { // until then start looks at all pods
		c.makeFor(pod)
	}
}

// makeFor queues a pod that gets claims from templates: those that it lacks are made.
func (c *Controller) makeFor(pod *cluster.Pod) {
	if pod.Node == "" && pod.Devices != nil && pod.Devices.Templates != nil {
		c.queue.Add(object{pod.Ref.Namespace, pod.Ref.Name, pod.Ref.UID})
	}
}

// observeTemplate takes in a template: pods may wait for it.
func (c *Controller) observeTemplate(template *v1alpha1.ExtendedResourceClaimTemplate, _ bool) {
	c.claims.mu.Lock()
	c.claims.templates[keyOf(template)] = template
	c.claims.mu.Unlock()
	for _, pod := range c.Pods.Claimants(template.Namespace) {
		if pod.Devices != nil && slices.Contains(pod.Devices.Templates, template.Name) {
			c.makeFor(pod)
		}
	}
}

// forgetTemplate drops a template whose object is gone. The claims that were made from it stay.
func (c *Controller) forgetTemplate(template *v1alpha1.ExtendedResourceClaimTemplate) {
	c.claims.mu.Lock()
	defer c.claims.mu.Unlock()
	delete(c.claims.templates, keyOf(template))
}

// bringPods queues all pods that may lack claims, and bound pods whose annotations somebody has changed while no server
// was there. It finds the bound pods by the status of claims, because annotations can be taken off.
func (c *Controller) bringPods() {
	for _, pod := range c.Pods.Claimants(metav1.NamespaceAll) {
		c.makeFor(pod)
	}
	for _, key := range c.claims.keys("") {
		claim := c.claims.get(key)
		if claim == nil || claim.obj.Status.PodRef == nil {
			continue
		}
		if pod, ok := c.Pods.Pod(key.Namespace, claim.obj.Status.PodRef.Name); ok && pod.Node != "" {
			c.AnnotationsChanged(pod)
		}
	}
}

// makeClaims makes the claims that a pod is to get from templates and does not have. The name of a claim follows from
// the pod, so that one claim is made, however often and by whichever server that is tried.
func (c *Controller) makeClaims(ctx context.Context, pod *cluster.Pod) error {
	if pod.Deleting || pod.Finished {
		return nil
	}
	for k, name := range pod.Devices.Claims {
		template := c.claims.template(types.NamespacedName{Namespace: pod.Ref.Namespace, Name: pod.Devices.Template(k)})
		if template == nil || c.claims.get(types.NamespacedName{Namespace: pod.Ref.Namespace, Name: name}) != nil {
			continue
		}
		_, err := c.Client.GlobalreserveV1alpha1().ExtendedResourceClaims(pod.Ref.Namespace).
			Create(ctx, claimFrom(template, pod.Ref, name), metav1.CreateOptions{FieldManager: c.Term.Get().Manager()})
		switch {
		case apierrors.IsAlreadyExists(err):
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
			c.refusals.Warn(informer.PodReference(pod.Ref.Namespace, pod.Ref.Name, pod.Ref.UID), reasonNotMade, "MakeClaim",
				err.Error())
			fallthrough
		case err != nil:
			return fmt.Errorf("making claim %s of pod %s from template %s: %w", name, pod.Ref, template.Name, err)
		}
	}
	return nil
}

// claimFrom returns the claim that a pod gets from a template. It goes with the pod, which owns it.
func claimFrom(template *v1alpha1.ExtendedResourceClaimTemplate, pod ledger.PodRef,
	name string,
) *v1alpha1.ExtendedResourceClaim {
	owned := true
	return &v1alpha1.ExtendedResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: name,
			Annotations: map[string]string{v1alpha1.ClaimTemplateAnnotation: template.Name},
			Finalizers:  []string{v1alpha1.ExtendedResourceClaimFinalizer},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1.SchemeGroupVersion.String(), Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: &owned,
			}},
		},
		Spec: *template.Spec.DeepCopy(),
	}
}

// ownerOf returns the pod that a claim was made for, "" where it was not made for one.
func ownerOf(claim *v1alpha1.ExtendedResourceClaim) types.UID {
	owner := metav1.GetControllerOfNoCopy(claim)
	if owner == nil || owner.APIVersion != v1.SchemeGroupVersion.String() || owner.Kind != "Pod" {
		return ""
	}
	return owner.UID
}

// soon reports whether a pod lacks only claims that are about to be made.
func (c *Controller) soon(pod *cluster.Pod) bool {
	missing := false
	for k, name := range pod.Devices.Claims {
		if c.claims.get(types.NamespacedName{Namespace: pod.Ref.Namespace, Name: name}) != nil {
			continue
		}
		if c.claims.template(types.NamespacedName{Namespace: pod.Ref.Namespace, Name: pod.Devices.Template(k)}) == nil {
			return false
		}
		missing = true
	}
	return missing
}

// template returns a template, nil where there is none, or none is known.
func (s *claimSet) template(key types.NamespacedName) *v1alpha1.ExtendedResourceClaimTemplate {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.templates[key]
}

// whyNotMade says why a pod has no claim of a template yet.
func (s *claimSet) whyNotMade(pod *cluster.Pod, template string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case pod.Ref.UID == "":
		return fmt.Sprintf("the claim from ExtendedResourceClaimTemplate %s is made for a pod that exists: create the pod",
			template)
	case s.templates[types.NamespacedName{Namespace: pod.Ref.Namespace, Name: template}] == nil:
		return fmt.Sprintf("there is no ExtendedResourceClaimTemplate %s in namespace %s: create it there; templates of "+
			"other namespaces cannot be used",
			template, pod.Ref.Namespace)
	default:
		return fmt.Sprintf("the claim from ExtendedResourceClaimTemplate %s is not made yet: the server makes it, and the "+
			"pod is tried again then", template)
	}
}
