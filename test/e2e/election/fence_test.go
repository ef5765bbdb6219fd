package election

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// The API server refuses what was decided in a term that is over, and nothing else.
func TestFence(t *testing.T) {
	c := newCluster(t, shared.StartT(t), 1)
	cp := c.ControlPlane
	require.NoError(t, bind(t, cp, "before-any-term", nil))
	first := c.start("first", nil)
	c.awaitLeader(first)
	old := term(t, first)
	c.Eventually(func(t *assert.CollectT) { // the policy may be a moment old
		up, err := first.Metric(c.T.Context(), "globalreserve_fence_up")
		assert.NoError(t, err)
		assert.NotZero(t, up)
	})
	second := c.start("second", nil)
	_, err := first.Stop()
	require.NoError(t, err)
	c.awaitLeader(second)
	newer := term(t, second)
	assert.Greater(t, newer, old, "terms rise; by how much the clock says, too")

	err = bind(t, cp, "late", old.Annotate(nil))
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	assert.ErrorContains(t, err, "which is over")
	err = bindLegacy(t, cp, "late-legacy", old.Annotate(nil))
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	assert.ErrorContains(t, err, "which is over")
	require.NoError(t, bind(t, cp, "timely", newer.Annotate(nil)))
	require.NoError(t, bindLegacy(t, cp, "timely-legacy", newer.Annotate(nil)))
	require.NoError(t, bind(t, cp, "another-s", nil))
	require.Error(t, bind(t, cp, "nonsense", map[string]string{v1alpha1.TermAnnotation: "x"}))

	for name, write := range writes(t, cp) {
		err := write(old.Manager())
		require.True(t, apierrors.IsInvalid(err), "%s: %v", name, err)
		require.ErrorContains(t, err, "which is over", name)
		require.Error(t, write("globalreserve-term-x"), name)
		require.NoError(t, write(newer.Manager()), name)
		require.NoError(t, write("kubectl"), name)
		require.NoError(t, write(""), name)
	}
	_, err = cp.Client().CoreV1().Pods(metav1.NamespaceDefault).Patch(t.Context(), "pending", types.MergePatchType,
		[]byte(`{"status":{"nominatedNodeName":"n"}}`), metav1.PatchOptions{FieldManager: old.Manager()}, "status")
	require.NoError(t, err, "a hint does no harm when it is late")
}

// term is the term in which a server decides.
func term(t *testing.T, server *testbed.Server) election.Term {
	t.Helper()
	term, err := server.Metric(t.Context(), "globalreserve_term")
	require.NoError(t, err)
	return election.Term(term)
}

// written are objects of each kind that servers write, besides bindings.
const written = `
apiVersion: globalreserve.io/v1alpha1
kind: Reservation
metadata: {name: rsv, annotations: {globalreserve.io/term: "1"}} # of a copy
spec: {slots: [{name: s, nodeName: somewhere, requests: {cpu: 1}}]}
---
apiVersion: globalreserve.io/v1alpha1
kind: ExtendedResourceClaim
metadata: {name: claim}
spec: {resourceName: example.com/gpu, count: 1}
---
apiVersion: globalreserve.io/v1alpha1
kind: ExtendedResource
metadata: {name: device}
spec: {nodeName: somewhere, resourceName: example.com/gpu, deviceID: a}
---
apiVersion: v1
kind: Pod
metadata: {name: pending}
spec: {schedulerName: none, containers: [{name: c, image: i}]}
`

// writes are all that servers write besides bindings, each by a field manager.
func writes(t *testing.T, cp *controlplane.ControlPlane) map[string]func(manager string) error {
	t.Helper()
	require.NoError(t, cp.Apply(t.Context(), []byte(written), metav1.NamespaceDefault))
	objects, err := controlplane.Documents([]byte(written))
	require.NoError(t, err)
	resource := func(object *unstructured.Unstructured) dynamic.ResourceInterface {
		resource, err := cp.Resource(object, metav1.NamespaceDefault)
		require.NoError(t, err)
		return resource
	}
	patch := func(object *unstructured.Unstructured, change string, subresources ...string) func(string) error {
		return func(manager string) error {
			_, err := resource(object).Patch(t.Context(), object.GetName(), types.MergePatchType, []byte(change),
				metav1.PatchOptions{FieldManager: manager}, subresources...)
			return err
		}
	}
	const (
		annotate  = `{"metadata":{"annotations":{"k":"v"}}}`
		pending   = `{"status":{"phase":"Pending"}}`
		available = `{"status":{"phase":"Available"}}`
	)
	rsv, claim, device, pod := objects[0], objects[1], objects[2], objects[3]
	return map[string]func(string) error{
		"create a reservation": func(manager string) error {
			another := rsv.DeepCopy()
			another.SetName("")
			another.SetGenerateName("r-")
			_, err := resource(rsv).Create(t.Context(), another, metav1.CreateOptions{FieldManager: manager})
			return err
		},
		"patch a reservation": patch(rsv, annotate), "status of a reservation": patch(rsv, pending, "status"),
		"patch a claim": patch(claim, annotate), "status of a claim": patch(claim, pending, "status"),
		"status of a device": patch(device, available, "status"),
		"annotate a pod":     patch(pod, annotate),
	}
}

func bind(t *testing.T, cp *controlplane.ControlPlane, name string, annotations map[string]string) error {
	t.Helper()
	return cp.Client().CoreV1().Pods(metav1.NamespaceDefault).Bind(t.Context(),
		pendingAndBinding(t, cp, name, annotations), metav1.CreateOptions{})
}

// bindLegacy is bind by the resource that came before pods/binding, which the API server serves still.
func bindLegacy(t *testing.T, cp *controlplane.ControlPlane, name string, annotations map[string]string) error {
	t.Helper()
	binding := pendingAndBinding(t, cp, name, annotations)
	return cp.Client().CoreV1().RESTClient().Post().Namespace(metav1.NamespaceDefault).Resource("bindings").
		Body(binding).Do(t.Context()).Error()
}

// pendingAndBinding makes a pod that waits, and returns a Binding for it.
func pendingAndBinding(t *testing.T, cp *controlplane.ControlPlane, name string,
	annotations map[string]string,
) *corev1.Binding {
	t.Helper()
	_, err := cp.Client().CoreV1().Pods(metav1.NamespaceDefault).
		Create(t.Context(), testbed.NewPod(name, nobody, "1"), metav1.CreateOptions{})
	require.NoError(t, err)
	return &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "somewhere"},
	}
}
