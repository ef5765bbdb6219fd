package devices

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	typed "github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/typed/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

const gpu = "nvidia.com/gpu"

// kinds are those of the objects that the tests and examples apply.
var kinds = map[string]struct {
	schema.GroupVersionResource
	cluster bool
}{
	"Pod":                   {GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods")},
	"ConfigMap":             {GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps")},
	"ServiceAccount":        {GroupVersionResource: corev1.SchemeGroupVersion.WithResource("serviceaccounts")},
	"Deployment":            {GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}},
	"Job":                   {GroupVersionResource: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}},
	"RoleBinding":           {GroupVersionResource: rbac("rolebindings")},
	"ClusterRole":           {GroupVersionResource: rbac("clusterroles"), cluster: true},
	"ClusterRoleBinding":    {GroupVersionResource: rbac("clusterrolebindings"), cluster: true},
	"Reservation":           {GroupVersionResource: v1alpha1.SchemeGroupVersion.WithResource("reservations")},
	"ExtendedResource":      {GroupVersionResource: v1alpha1.SchemeGroupVersion.WithResource("extendedresources"), cluster: true},
	"ExtendedResourceClaim": {GroupVersionResource: v1alpha1.SchemeGroupVersion.WithResource("extendedresourceclaims")},
}

func rbac(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}
}

func (c *cluster) kind(object *unstructured.Unstructured) dynamic.ResourceInterface {
	c.t.Helper()
	kind, ok := kinds[object.GetKind()]
	require.True(c.t, ok, "add %s to kinds", object.GetKind())
	if kind.cluster {
		return c.dynamic.Resource(kind.GroupVersionResource)
	}
	if object.GetNamespace() == "" {
		object.SetNamespace(namespace)
	}
	return c.dynamic.Resource(kind.GroupVersionResource).Namespace(object.GetNamespace())
}

// documents are the objects of a YAML text.
func (c *cluster) documents(content []byte) (all []*unstructured.Unstructured) {
	c.t.Helper()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(c.t, err)
		object := &unstructured.Unstructured{}
		require.NoError(c.t, yaml.UnmarshalStrict(document, object))
		all = append(all, object)
	}
}

// apply creates the objects of a YAML text.
func (c *cluster) apply(content string) {
	c.t.Helper()
	for _, object := range c.documents([]byte(content)) {
		_, err := c.kind(object).Create(c.t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		require.NoError(c.t, err)
	}
}

// example is a file of examples/extended-resources.
func (c *cluster) example(file string) string {
	c.t.Helper()
	content, err := os.ReadFile(filepath.Join(exampleDir(c.t), file))
	require.NoError(c.t, err)
	return string(content)
}

func exampleDir(t require.TestingT) string {
	root, err := controlplane.RepositoryRoot()
	require.NoError(t, err)
	return filepath.Join(root, "examples", "extended-resources")
}

func (c *cluster) devices() typed.ExtendedResourceInterface {
	return c.objects.GlobalreserveV1alpha1().ExtendedResources()
}

func (c *cluster) claims() typed.ExtendedResourceClaimInterface {
	return c.objects.GlobalreserveV1alpha1().ExtendedResourceClaims(namespace)
}

// createDevice creates a GPU whose ID is GPU- and its name.
func (c *cluster) createDevice(name, node, model string) {
	c.t.Helper()
	_, err := c.devices().Create(c.t.Context(), newDevice(name, node, model), metav1.CreateOptions{})
	require.NoError(c.t, err)
}

func newDevice(name, node, model string) *v1alpha1.ExtendedResource {
	return &v1alpha1.ExtendedResource{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ExtendedResourceSpec{
			NodeName: node, ResourceName: gpu, DeviceID: "GPU-" + name, Properties: map[string]string{"model": model, "memory": "12Gi"},
		},
	}
}

// createClaim creates a claim of count GPUs of a model; an empty model is any.
func (c *cluster) createClaim(name, model string, count int32) {
	c.t.Helper()
	_, err := c.claims().Create(c.t.Context(), newClaim(name, model, count), metav1.CreateOptions{})
	require.NoError(c.t, err)
}

func newClaim(name, model string, count int32) *v1alpha1.ExtendedResourceClaim {
	claim := &v1alpha1.ExtendedResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.ExtendedResourceClaimSpec{ResourceName: gpu, Count: count},
	}
	if model != "" {
		claim.Spec.Selector = &v1alpha1.DeviceSelector{MatchProperties: map[string]string{"model": model}}
	}
	return claim
}

// patchDevice changes a device as it is now, or its status.
func (c *cluster) patchDevice(name, patch string, subresources ...string) {
	c.t.Helper()
	_, err := c.devices().Patch(c.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	require.NoError(c.t, err)
}

// forgeStatus writes to a device that nobody has it.
func (c *cluster) forgeStatus(device string) {
	c.t.Helper()
	c.patchDevice(device, `{"status":{"phase":"Available","claimRef":null}}`, "status")
}

// deleteClaims deletes all claims and waits until they are gone.
func (c *cluster) deleteClaims() {
	c.t.Helper()
	require.NoError(c.t, c.claims().DeleteCollection(c.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	c.eventually(func(t *assert.CollectT) {
		list, err := c.claims().List(c.t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		assert.Empty(t, list.Items)
	})
}

// newPod is a pod that names claims, if any, and asks for a tenth of a CPU.
func newPod(name, schedulerName, claims string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			SchedulerName: schedulerName, TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.invalid/none",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
			}},
		},
	}
	if claims != "" {
		pod.Annotations = map[string]string{v1alpha1.ExtendedResourceClaimsAnnotation: claims}
	}
	return pod
}

func (c *cluster) create(pod *corev1.Pod) *corev1.Pod {
	c.t.Helper()
	created, err := c.Client().CoreV1().Pods(pod.Namespace).Create(c.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(c.t, err)
	return created
}

func (c *cluster) deletePod(name string) {
	c.t.Helper()
	require.NoError(c.t, c.Client().CoreV1().Pods(namespace).Delete(c.t.Context(), name, metav1.DeleteOptions{}))
}

func (c *cluster) pod(name string) *corev1.Pod {
	c.t.Helper()
	pod, err := c.Client().CoreV1().Pods(namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	return pod
}

// given is what a pod was told it has.
func given(pod *corev1.Pod) string { return pod.Annotations[v1alpha1.ExtendedResourcesAnnotation] }

// awaitBound waits until a pod is bound and returns it and when that was seen.
func (c *cluster) awaitBound(name string) (*corev1.Pod, time.Time) {
	c.t.Helper()
	var pod *corev1.Pod
	c.eventually(func(t *assert.CollectT) {
		pod = c.pod(name)
		assert.NotEmpty(t, pod.Spec.NodeName, "%s: %+v", name, pod.Status.Conditions)
	})
	return pod, time.Now()
}

// awaitRefused waits until the scheduler has refused a pod, and returns what it says.
func (c *cluster) awaitRefused(name string) (message string) {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) {
		pod := c.pod(name)
		require.Empty(c.t, pod.Spec.NodeName, "it was bound")
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				message = condition.Message
			}
		}
		assert.NotEmpty(t, message, "no scheduler has refused %s yet", name)
	})
	return message
}

// awaitClaim waits until a claim is in a phase and returns it.
func (c *cluster) awaitClaim(name string, phase v1alpha1.ExtendedResourceClaimPhase) (claim *v1alpha1.ExtendedResourceClaim) {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) {
		var err error
		claim, err = c.claims().Get(c.t.Context(), name, metav1.GetOptions{})
		if assert.NoError(t, err) {
			assert.Equal(t, phase, claim.Status.Phase, "%+v", claim.Status)
		}
	})
	return claim
}

// awaitDevice waits until a device is in a phase and returns it.
func (c *cluster) awaitDevice(name string, phase v1alpha1.ExtendedResourcePhase) (device *v1alpha1.ExtendedResource) {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) {
		var err error
		device, err = c.devices().Get(c.t.Context(), name, metav1.GetOptions{})
		if assert.NoError(t, err) {
			assert.Equal(t, phase, device.Status.Phase, "%+v", device.Status)
		}
	})
	return device
}

// awaitEvent waits for an Event on an object that says something.
func (c *cluster) awaitEvent(kind, name, reason, text string) {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) {
		notes := c.eventsOf(kind, name, reason)
		assert.Contains(t, strings.Join(notes, "\n"), text, "Events %s of %s %s", reason, kind, name)
	})
}

// eventsOf are the notes of Events on an object.
func (c *cluster) eventsOf(kind, name, reason string) (notes []string) {
	c.t.Helper()
	list, err := c.Client().CoreV1().Events(metav1.NamespaceAll).List(c.t.Context(), metav1.ListOptions{
		FieldSelector: fmt.Sprintf("involvedObject.kind=%s,involvedObject.name=%s,reason=%s", kind, name, reason),
	})
	require.NoError(c.t, err)
	for i := range list.Items {
		notes = append(notes, list.Items[i].Message)
	}
	return notes
}
