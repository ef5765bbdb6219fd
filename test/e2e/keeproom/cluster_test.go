package keeproom

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	scheduler = "default-scheduler"
	// poll is how often a condition is looked at; soon and late are how long it may take to come
	// true. Both are far above what it takes on an idle machine.
	poll = 50 * time.Millisecond
	soon = 30 * time.Second
	late = 90 * time.Second
	// never is for how long something is watched that must not happen.
	never = 2 * time.Second
	// wakeWithin is how soon a waiting pod has to run after the room was given back that it waits for.
	wakeWithin = 2 * time.Second
)

// cluster is a control plane with a GlobalReserve server and one kube-scheduler behind it.
type cluster struct {
	*controlplane.ControlPlane
	t            *testing.T
	reservations versioned.Interface
	watcher      *clusterload.Watcher
	server       *testbed.Server
	namespace    string
}

// newCluster starts a cluster without nodes. args are added to the server's command line.
func newCluster(t *testing.T, args ...string) *cluster {
	t.Helper()
	c := &cluster{ControlPlane: shared.StartT(t), t: t, namespace: "default"}
	c.reservations = testbed.Objects(t, c.ControlPlane)
	c.watcher = testbed.Watch(t, c.ControlPlane)
	c.server = testbed.StartServer(t, c.ControlPlane, clusterload.ServerOptions{Args: args})
	return c
}

// startScheduler starts the kube-scheduler with the file of scheduler-config/; settings replace
// some of its.
func (c *cluster) startScheduler(change func(config []byte) []byte) {
	c.t.Helper()
	config, err := clusterload.SchedulerConfig("default-scheduler.yaml", c.server.URL)
	require.NoError(c.t, err)
	if change != nil {
		config = change(config)
	}
	require.NoError(c.t, c.StartScheduler(c.t.Context(), scheduler, config))
}

// in returns the same cluster for a subtest with a namespace of its own.
func (c *cluster) in(t *testing.T, namespace string) *cluster {
	t.Helper()
	inner := *c
	inner.t, inner.namespace = t, namespace
	require.NoError(t, c.CreateNamespace(t.Context(), namespace))
	return &inner
}

// nodes adds n nodes of four CPUs that only the pods of this namespace are for, and waits until pods may be
// scheduled there.
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
	c.eventually(late, func(t *assert.CollectT) {
		list, err := c.Client().CoreV1().Nodes().List(c.t.Context(), metav1.ListOptions{LabelSelector: "pool=" + c.namespace})
		require.NoError(t, err)
		assert.Len(t, list.Items, n)
		for i := range list.Items {
			assert.Empty(t, list.Items[i].Spec.Taints, list.Items[i].Name)
		}
	})
	return names
}

// eventually polls a condition until it holds; what it last failed by is reported.
func (c *cluster) eventually(within time.Duration, condition func(t *assert.CollectT), what ...any) {
	c.t.Helper()
	require.EventuallyWithT(c.t, condition, within, poll, what...)
}

// get returns a pod as it is now, nil if there is none of that name.
func (c *cluster) get(name string) *corev1.Pod {
	c.t.Helper()
	pods := c.pods("metadata.name=" + name)
	if len(pods) == 0 {
		return nil
	}
	return &pods[0]
}

// pods lists the pods of the namespace.
func (c *cluster) pods(fields string) []corev1.Pod {
	c.t.Helper()
	list, err := c.Client().CoreV1().Pods(c.namespace).List(c.t.Context(), metav1.ListOptions{FieldSelector: fields})
	require.NoError(c.t, err)
	return list.Items
}

// awaitBound waits until a pod is bound and returns it and when that was seen.
func (c *cluster) awaitBound(name string) (*corev1.Pod, time.Time) {
	c.t.Helper()
	var pod *corev1.Pod
	c.eventually(soon, func(t *assert.CollectT) {
		pod = c.get(name)
		if assert.NotNil(t, pod) {
			assert.NotEmpty(t, pod.Spec.NodeName, "%s: %+v", name, pod.Status.Conditions)
		}
	})
	return pod, time.Now()
}

// awaitRefused waits until the scheduler has refused a pod.
func (c *cluster) awaitRefused(name string) {
	c.t.Helper()
	c.eventually(soon, func(t *assert.CollectT) {
		pod := c.get(name)
		require.NotNil(t, pod)
		require.Empty(t, pod.Spec.NodeName, "it was bound")
		refused := false
		for _, condition := range pod.Status.Conditions {
			refused = refused || (condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse)
		}
		assert.True(t, refused, "no scheduler has refused %s yet", name)
	})
}

// awaitReservation waits until a Reservation of a name is in a phase.
func (c *cluster) awaitReservation(name string, phase v1alpha1.ReservationPhase) *v1alpha1.Reservation {
	c.t.Helper()
	var rsv *v1alpha1.Reservation
	c.eventually(soon, func(t *assert.CollectT) {
		var err error
		rsv, err = c.reservations.GlobalreserveV1alpha1().Reservations(c.namespace).Get(c.t.Context(), name, metav1.GetOptions{})
		if assert.NoError(t, err) {
			assert.Equal(t, phase, rsv.Status.Phase)
		}
	})
	return rsv
}

// list returns the Reservations of the namespace.
func (c *cluster) list() []v1alpha1.Reservation {
	c.t.Helper()
	list, err := c.reservations.GlobalreserveV1alpha1().Reservations(c.namespace).List(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	return list.Items
}

// columns are what `kubectl get reservation NAME` prints of a Reservation.
func (c *cluster) columns(name string) map[string]string {
	c.t.Helper()
	content, err := c.reservations.Discovery().RESTClient().Get().
		AbsPath("/apis/globalreserve.io/v1alpha1/namespaces", c.namespace, "reservations", name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(c.t.Context()).Raw()
	require.NoError(c.t, err)
	var table metav1.Table
	require.NoError(c.t, json.Unmarshal(content, &table))
	require.Len(c.t, table.Rows, 1)
	columns := map[string]string{}
	for i, definition := range table.ColumnDefinitions {
		columns[definition.Name] = fmt.Sprint(table.Rows[0].Cells[i])
	}
	return columns
}

// matched are the pods among those given that were bound with reserved room: what they were bound
// with, by the pod's name.
func matched(pods []corev1.Pod) map[string]string {
	with := map[string]string{}
	for i := range pods {
		if value := pods[i].Annotations[v1alpha1.MatchedReservationAnnotation]; value != "" {
			with[pods[i].Name] = value
		}
	}
	return with
}

// requireNeverOvercommitted fails if at any event a node had more bound than it offers.
func (c *cluster) requireNeverOvercommitted() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), soon)
	defer cancel()
	require.NoError(c.t, c.watcher.CatchUp(ctx))
	require.Empty(c.t, c.watcher.Violations(), "nodes were overcommitted")
}
