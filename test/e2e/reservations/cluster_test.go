package reservations

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	typed "github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/typed/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	// poll is how often a condition is looked at, soon how long it may take to come true: far above
	// what it takes on an idle machine.
	poll = 20 * time.Millisecond
	soon = 30 * time.Second
)

// cluster is a control plane with a GlobalReserve server.
type cluster struct {
	*controlplane.ControlPlane
	t         *testing.T
	versioned versioned.Interface
	watcher   *clusterload.Watcher
	server    *testbed.Server
	namespace string
}

// newCluster starts a cluster without nodes. args are added to the server's command line.
func newCluster(t *testing.T, args ...string) *cluster {
	t.Helper()
	c := &cluster{ControlPlane: shared.StartT(t), t: t, namespace: "default"}
	c.versioned = testbed.Objects(t, c.ControlPlane)
	c.watcher = testbed.Watch(t, c.ControlPlane)
	c.server = testbed.StartServer(t, c.ControlPlane, clusterload.ServerOptions{Args: args})
	return c
}

// in returns the same cluster for a subtest with a namespace of its own.
func (c *cluster) in(t *testing.T, namespace string) *cluster {
	t.Helper()
	inner := *c
	inner.t, inner.namespace = t, namespace
	require.NoError(t, c.CreateNamespace(t.Context(), namespace))
	return &inner
}

// nodes adds n nodes of four CPUs, named after the namespace.
func (c *cluster) nodes(n int) []string {
	c.t.Helper()
	names, err := c.CreateNodes(c.t.Context(), n, controlplane.NodeTemplate{
		Prefix: c.namespace + "-", Labels: map[string]string{"pool": c.namespace},
		Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"),
			corev1.ResourcePods: resource.MustParse("110"),
		},
	})
	require.NoError(c.t, err)
	return names
}

func (c *cluster) deleteNode(name string) {
	c.t.Helper()
	require.NoError(c.t, c.Client().CoreV1().Nodes().Delete(c.t.Context(), name, metav1.DeleteOptions{}))
}

func (c *cluster) reservations() typed.ReservationInterface {
	return c.versioned.GlobalreserveV1alpha1().Reservations(c.namespace)
}

// apply creates an object as kubectl does of a file, and returns what the API server says.
func (c *cluster) apply(name, spec string) error {
	c.t.Helper()
	body := fmt.Sprintf("apiVersion: globalreserve.io/v1alpha1\nkind: Reservation\nmetadata: {name: %s}\nspec: %s\n", name, spec)
	return c.versioned.GlobalreserveV1alpha1().RESTClient().Post().Namespace(c.namespace).Resource("reservations").
		Param("fieldValidation", "Strict").SetHeader("Content-Type", "application/yaml").Body([]byte(body)).Do(c.t.Context()).Error()
}

// reserve applies an object that must be taken.
func (c *cluster) reserve(name, spec string) {
	c.t.Helper()
	require.NoError(c.t, c.apply(name, spec))
}

// get returns a Reservation, nil where there is none.
func (c *cluster) get(name string) *v1alpha1.Reservation {
	c.t.Helper()
	rsv, err := c.reservations().Get(c.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(c.t, err)
	return rsv
}

// await waits until a Reservation is in a phase.
func (c *cluster) await(name string, phase v1alpha1.ReservationPhase) *v1alpha1.Reservation {
	c.t.Helper()
	var rsv *v1alpha1.Reservation
	c.eventually(soon, func(t *assert.CollectT) {
		if rsv = c.get(name); assert.NotNil(t, rsv) {
			assert.Equal(t, phase, rsv.Status.Phase, "%+v", rsv.Status)
		}
	})
	return rsv
}

// eventually polls a condition until it holds; what it last failed by is reported.
func (c *cluster) eventually(within time.Duration, condition func(t *assert.CollectT)) {
	c.t.Helper()
	require.EventuallyWithT(c.t, condition, within, poll)
}

// waitFor does what `kubectl wait --for=condition=...` does: it watches the object until the
// condition is there.
func (c *cluster) waitFor(name, condition string, status metav1.ConditionStatus) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), soon)
	defer cancel()
	stream, err := c.reservations().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	require.NoError(c.t, err)
	defer stream.Stop()
	for event := range stream.ResultChan() {
		rsv, ok := event.Object.(*v1alpha1.Reservation)
		require.True(c.t, ok, "%+v", event)
		for _, found := range rsv.Status.Conditions {
			if found.Type == condition && found.Status == status && found.ObservedGeneration == rsv.Generation {
				return
			}
		}
	}
	require.Fail(c.t, "the condition did not come", "%s of %s: %+v", condition, name, c.get(name))
}

// reason is that of the Available condition.
func reason(rsv *v1alpha1.Reservation) string {
	for _, condition := range rsv.Status.Conditions {
		if condition.Type == v1alpha1.ConditionAvailable {
			return condition.Reason
		}
	}
	return ""
}

// columns are what `kubectl get rsv NAME` prints.
func (c *cluster) columns(name string) string {
	c.t.Helper()
	content, err := c.versioned.GlobalreserveV1alpha1().RESTClient().Get().Namespace(c.namespace).Resource("reservations").Name(name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(c.t.Context()).Raw()
	require.NoError(c.t, err)
	var table metav1.Table
	require.NoError(c.t, json.Unmarshal(content, &table))
	require.Len(c.t, table.Rows, 1)
	cells := map[string]string{}
	for i, definition := range table.ColumnDefinitions {
		cells[definition.Name] = fmt.Sprint(table.Rows[0].Cells[i])
	}
	return strings.Join([]string{cells["NodeName"], cells["Status"], cells["Consumed"]}, "|")
}

// newPod is a pod of some CPUs. index, if any, is the room it may use.
func (c *cluster) newPod(name, cpu, index string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name},
		Spec: corev1.PodSpec{
			SchedulerName: "nobody", TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{
				Name: "main", Image: "none",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
			}},
		},
	}
	if index != "" {
		pod.Annotations = map[string]string{v1alpha1.ReservationIndexAnnotation: index}
	}
	return pod
}

// createPod creates a pod and returns it as it was stored.
func (c *cluster) createPod(name, cpu, index string) *corev1.Pod {
	c.t.Helper()
	pod, err := c.Client().CoreV1().Pods(c.namespace).Create(c.t.Context(), c.newPod(name, cpu, index), metav1.CreateOptions{})
	require.NoError(c.t, err)
	return pod
}

// bind asks the server to bind a pod, as a scheduler does, and returns why it did not.
func (c *cluster) bind(pod *corev1.Pod, node string) string {
	c.t.Helper()
	refusal, err := c.server.TryBind(c.t.Context(), pod, node)
	require.NoError(c.t, err)
	return refusal
}

// patchTTL does what `kubectl patch rsv NAME --type=merge` does.
func (c *cluster) patchTTL(name, ttl string) error {
	patch := fmt.Appendf(nil, `{"spec":{"ttl":%q}}`, ttl)
	_, err := c.reservations().Patch(c.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
