package sim

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// Devices are of one resource, and of one of so many models.
const (
	gpu       v1.ResourceName = "example.com/gpu"
	maxModels                 = 2
	// maxDevices is how many a node has, and maxClaims how many names the claims of users have.
	maxDevices = 3
	maxClaims  = 6
	// template is what claims are made from for single pods.
	template = "any-gpu"
)

// port is the one of their nodes that some pods want.
const port = 8080

var oneDevice = *resource.NewQuantity(1, resource.DecimalSI)

func (c *Cluster) model() map[string]string {
	return map[string]string{"model": fmt.Sprintf("model-%d", c.random.IntN(maxModels))}
}

// createDevices creates the devices of all nodes, and what claims are made from.
func (c *Cluster) createDevices(ctx context.Context) error {
	for n := range c.options.Nodes {
		for d := range maxDevices {
			if err := c.createDevice(ctx, n, d, d); err != nil {
				return err
			}
		}
	}
	made := &v1alpha1.ExtendedResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: template}}
	made.Spec.ResourceName, made.Spec.Count = string(gpu), 1
	_, err := c.objects.ExtendedResourceClaimTemplates("default").Create(ctx, made, metav1.CreateOptions{})
	return err
}

// createDevice creates an object for the device of an index on a node. Objects may say that they are the same device.
func (c *Cluster) createDevice(ctx context.Context, node, object, device int) error {
	_, err := c.objects.ExtendedResources().Create(ctx, &v1alpha1.ExtendedResource{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d-gpu-%d", node, object)},
		Spec: v1alpha1.ExtendedResourceSpec{
			NodeName: fmt.Sprintf("node-%d", node), ResourceName: string(gpu), DeviceID: fmt.Sprintf("GPU-%d-%d", node, device),
			Properties: c.model(), Unschedulable: c.random.IntN(10) == 0,
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// changeDevices has a device go, or come again; now and then as another object for one that there is.
func (c *Cluster) changeDevices(ctx context.Context) {
	node, object := c.random.IntN(c.options.Nodes), c.random.IntN(maxDevices+1)
	if c.random.IntN(3) == 0 {
		name := fmt.Sprintf("node-%d-gpu-%d", node, object)
		c.must(c.objects.ExtendedResources().Delete(ctx, name, metav1.DeleteOptions{}), "deleting a device")
		c.note("user", "device %s goes", name)
		return
	}
	c.must(c.createDevice(ctx, node, object, object%maxDevices), "creating a device")
}

// changeClaims has a claim come or go.
func (c *Cluster) changeClaims(ctx context.Context) {
	claims, name := c.objects.ExtendedResourceClaims("default"), fmt.Sprintf("claim-%d", c.random.IntN(maxClaims))
	if c.random.IntN(3) == 0 {
		c.must(claims.Delete(ctx, name, metav1.DeleteOptions{}), "deleting a claim")
		c.note("user", "deletes %s", name)
		return
	}
	claim := &v1alpha1.ExtendedResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	claim.Spec.ResourceName, claim.Spec.Count = string(gpu), int32(1+c.random.IntN(2))
	if c.random.IntN(2) == 0 {
		claim.Spec.Selector = &v1alpha1.DeviceSelector{MatchProperties: c.model()}
	}
	if _, err := claims.Create(ctx, claim, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		c.must(err, "creating a claim")
		c.note("user", "creates %s: %d of %v", name, claim.Spec.Count, claim.Spec.Selector)
	}
}

// wantDevices has some pods ask for devices, by number, by a claim, or by a claim of their own, and some for a port.
func (c *Cluster) wantDevices(pod *v1.Pod) {
	if c.random.IntN(12) == 0 {
		pod.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: port, HostPort: port}}
	}
	switch c.random.IntN(12) {
	case 0:
		r := &pod.Spec.Containers[0].Resources
		r.Requests[gpu] = oneDevice
		r.Limits = v1.ResourceList{gpu: oneDevice}
	case 1:
		pod.Annotations[v1alpha1.ExtendedResourceClaimsAnnotation] = fmt.Sprintf("claim-%d", c.random.IntN(maxClaims))
	case 2:
		pod.Annotations[v1alpha1.ExtendedResourceClaimsAnnotation] = v1alpha1.ClaimTemplatePrefix + template
	}
}

// editAnnotations has a user take from bound pods what says which devices they have. (Of pods without a claim only this
// says it.)
func (c *Cluster) editAnnotations(ctx context.Context) {
	claims, err := c.objects.ExtendedResourceClaims("default").List(ctx, metav1.ListOptions{})
	c.must(err, "listing the claims")
	bound := map[types.UID]bool{}
	for i := range claims.Items {
		if s := &claims.Items[i].Status; s.Phase == v1alpha1.ExtendedResourceClaimBound {
			bound[s.PodRef.UID] = true
		}
	}
	for _, pod := range c.choose(func(p *v1.Pod) bool { return bound[p.UID] && !ended(p) && len(devicesOf(p)) > 0 }) {
		pod = pod.DeepCopy()
		delete(pod.Annotations, v1alpha1.ExtendedResourcesAnnotation)
		_, err := c.admin.CoreV1().Pods(pod.Namespace).Update(ctx, pod, metav1.UpdateOptions{})
		c.must(err, "editing a pod")
		c.note("user", "takes from %s what says which devices it has", pod.Name)
	}
}

// collectGarbage deletes the claims that belonged to pods which are gone, as the garbage collector does.
func (c *Cluster) collectGarbage(ctx context.Context) {
	claims, err := c.objects.ExtendedResourceClaims("default").List(ctx, metav1.ListOptions{})
	c.must(err, "listing the claims")
	for i := range claims.Items {
		for _, owner := range claims.Items[i].OwnerReferences {
			if c.judge.isGone(owner.UID) {
				c.must(c.objects.ExtendedResourceClaims("default").Delete(ctx, claims.Items[i].Name,
					*metav1.NewPreconditionDeleteOptions(string(claims.Items[i].UID))), "collecting a claim")
			}
		}
	}
}

// devicesOf returns the devices that a pod was told it has.
func devicesOf(pod *v1.Pod) []string {
	said := pod.Annotations[v1alpha1.ExtendedResourcesAnnotation]
	return strings.FieldsFunc(said, func(r rune) bool { return r == ',' })
}
