package keeproom

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

// TestExamples goes through examples/reservations/README.md, on the three nodes it speaks of.
func TestExamples(t *testing.T) {
	c := newCluster(t)
	c.startScheduler(nil)
	_, err := c.CreateNodes(t.Context(), 3, controlplane.NodeTemplate{})
	require.NoError(t, err)
	c.eventually(late, func(t *assert.CollectT) {
		list, err := c.Client().CoreV1().Nodes().List(c.t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for i := range list.Items {
			assert.Empty(t, list.Items[i].Spec.Taints)
		}
	})
	for _, example := range []struct {
		name string
		walk func(*cluster)
	}{
		{"a single pod", examplePod},
		{"a Deployment", exampleDeployment},
		{"a group", exampleGroup},
		{"a capacity buffer", exampleBuffer},
	} {
		t.Run(example.name, func(t *testing.T) {
			inner := *c
			inner.t = t
			example.walk(&inner)
		})
	}
	c.requireNeverOvercommitted()
}

// resources are the kinds that the examples have.
var resources = map[string]schema.GroupVersionResource{
	"Pod":         corev1.SchemeGroupVersion.WithResource("pods"),
	"Deployment":  {Group: "apps", Version: "v1", Resource: "deployments"},
	"Job":         {Group: "batch", Version: "v1", Resource: "jobs"},
	"Reservation": v1alpha1.SchemeGroupVersion.WithResource("reservations"),
}

// apply creates the object of a file of the examples; the function it returns deletes it.
func (c *cluster) apply(file string) (remove func()) {
	c.t.Helper()
	root, err := controlplane.RepositoryRoot()
	require.NoError(c.t, err)
	content, err := os.ReadFile(filepath.Join(root, "examples", "reservations", file))
	require.NoError(c.t, err)
	object := &unstructured.Unstructured{}
	require.NoError(c.t, yaml.UnmarshalStrict(content, object))
	config, err := c.AdminRESTConfig()
	require.NoError(c.t, err)
	client, err := dynamic.NewForConfig(config)
	require.NoError(c.t, err)
	api := client.Resource(resources[object.GetKind()]).Namespace(c.namespace)
	_, err = api.Create(c.t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	require.NoError(c.t, err)
	return func() {
		background := metav1.DeletePropagationBackground
		require.NoError(c.t, api.Delete(c.t.Context(), object.GetName(), metav1.DeleteOptions{PropagationPolicy: &background}))
	}
}

// awaitEmpty waits until an example has left nothing behind.
func (c *cluster) awaitEmpty() {
	c.t.Helper()
	c.eventually(late, func(t *assert.CollectT) {
		assert.Empty(t, c.pods(""))
		assert.Empty(t, c.list())
	})
}

func examplePod(c *cluster) {
	c.apply("pod.yaml")
	was, _ := c.awaitBound("trainer")
	c.delete("trainer")
	c.awaitReservation("trainer", v1alpha1.ReservationAvailable)
	require.Equal(c.t, was.Spec.NodeName, c.columns("trainer")["NodeName"])
	c.apply("pod-back.yaml")
	back, _ := c.awaitBound("trainer-again")
	require.Equal(c.t, was.Spec.NodeName, back.Spec.NodeName)
	require.Equal(c.t, "default/trainer/deleted-pod", back.Annotations[ours])
	c.delete("trainer-again")
	c.awaitEmpty()
}

func exampleDeployment(c *cluster) {
	remove := c.apply("deployment.yaml")
	c.awaitPods("web", 3)
	c.scale("web", 0)
	c.eventually(soon, func(t *assert.CollectT) { assert.Len(t, c.list(), 3) })
	c.scale("web", 5)
	require.Len(c.t, matched(c.awaitPods("web", 5)), 3)
	remove()
	c.awaitEmpty() // the Deployment that asked is gone, and nobody is left to use the room
}

func exampleGroup(c *cluster) {
	removeRoom := c.apply("group.yaml")
	c.awaitReservation("training", v1alpha1.ReservationAvailable)
	require.Equal(c.t, "0/3", c.columns("training")["Consumed"])
	removePods := c.apply("group-pods.yaml")
	c.awaitReservation("training", v1alpha1.ReservationSucceeded)
	require.Len(c.t, matched(c.pods("")), 3)
	removePods()
	removeRoom()
	c.awaitEmpty()
}

func exampleBuffer(c *cluster) {
	removeBuffer := c.apply("buffer.yaml")
	buffer := c.awaitReservation("buffer", v1alpha1.ReservationAvailable)
	require.Nil(c.t, buffer.Status.ExpiresAt)
	removeLoad := c.apply("buffer-load.yaml")
	c.awaitPods("load", 4)
	c.awaitReservation("buffer", v1alpha1.ReservationAvailable)
	c.scale("load", 5)
	c.awaitPods("load", 5)
	c.awaitReservation("buffer", v1alpha1.ReservationPreempted)
	removeLoad()
	removeBuffer()
	c.awaitEmpty()
}
