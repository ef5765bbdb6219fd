package election

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/election"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/test/background"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// elector starts to take part in the election. took receives each term it decides in.
func elector(t *testing.T, cp *controlplane.ControlPlane, name string) (e *election.Elector, took chan election.Term, stop func()) {
	t.Helper()
	config, err := cp.AdminRESTConfig()
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	config.ContentType = "application/json" // our kinds have no protobuf form
	objects, err := versioned.NewForConfig(config)
	require.NoError(t, err)
	log := logrus.New()
	log.SetOutput(t.Output())
	took = make(chan election.Term, 8)
	e, err = election.New(election.Options{
		Client: client, Terms: objects.GlobalreserveV1alpha1().LedgerTerms(),
		Namespace: metav1.NamespaceDefault, Identity: name,
		Times: election.DefaultTimes(), // nobody loses the Lease by a pause
		Bind:  time.Second, Object: 2 * time.Second, Log: log, Follow: func() {},
		Stale: func() string { return "" }, StandBy: func() bool { return false },
		Resume: func(context.Context) error { return nil },
		TakeOver: func(context.Context, time.Duration) error {
			took <- e.Term()
			return nil
		},
	})
	require.NoError(t, err)
	return e, took, background.Run(t, e.Run)
}

// The API server refuses what was decided in a term that is over, and nothing else.
func TestFence(t *testing.T) {
	cp := shared.StartT(t)
	first, took, stop := elector(t, cp, "first")
	old := <-took
	eventually(t, func(t *assert.CollectT) { assert.Empty(t, first.Leads()) })
	awaitFence(t, first)
	second, tookSecond, _ := elector(t, cp, "second")
	eventually(t, func(t *assert.CollectT) { assert.Equal(t, "server first decides, and not this one", second.Leads()) })

	stopped := time.Now()
	stop()
	require.NotEmpty(t, first.Leads())
	newer := <-tookSecond
	assert.Equal(t, old+1, newer)
	eventually(t, func(t *assert.CollectT) { assert.Empty(t, second.Leads()) })
	t.Logf("the next one decides %s after a stop", time.Since(stopped).Round(time.Millisecond))
	awaitFence(t, second)

	err := bind(t, cp, "late", old.Annotate(nil))
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	assert.ErrorContains(t, err, "which is over")
	require.NoError(t, bind(t, cp, "timely", newer.Annotate(nil)))
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

// awaitFence waits until an elector has found the fence up. An API server that answers too late has it look once more.
func awaitFence(t *testing.T, e *election.Elector) {
	t.Helper()
	eventually(t, func(t *assert.CollectT) {
		fence, _ := e.Fence()
		assert.True(t, fence.Up, fence.Why)
	})
}

// writes are all that servers write besides bindings, each by a field manager.
func writes(t *testing.T, cp *controlplane.ControlPlane) map[string]func(manager string) error {
	t.Helper()
	config, err := cp.AdminRESTConfig()
	require.NoError(t, err)
	config.ContentType = "application/json"
	objects, err := versioned.NewForConfig(config)
	require.NoError(t, err)
	api, pods := objects.GlobalreserveV1alpha1(), cp.Client().CoreV1().Pods(metav1.NamespaceDefault)
	create := func(manager string) error {
		_, err := api.Reservations(metav1.NamespaceDefault).Create(t.Context(), &v1alpha1.Reservation{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "r-", Annotations: election.Term(1).Annotate(nil)}, // of a copy
			Spec:       v1alpha1.ReservationSpec{Slots: []v1alpha1.Slot{{Name: "s", NodeName: "somewhere", Requests: testbed.Requests("1")}}},
		}, metav1.CreateOptions{FieldManager: manager})
		return err
	}
	require.NoError(t, create(""))
	list, err := api.Reservations(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	rsv := list.Items[0].Name
	_, err = api.ExtendedResourceClaims(metav1.NamespaceDefault).Create(t.Context(), testbed.NewDeviceClaim("claim", "k80", 1), metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, cp.Apply(t.Context(), []byte(`
apiVersion: globalreserve.io/v1alpha1
kind: ExtendedResource
metadata: {name: device}
spec: {nodeName: somewhere, resourceName: example.com/gpu, deviceID: a}
`), ""))
	_, err = pods.Create(t.Context(), podNamed("pending"), metav1.CreateOptions{})
	require.NoError(t, err)
	annotate := []byte(`{"metadata":{"annotations":{"k":"v"}}}`)
	phase := func(phase string) []byte { return []byte(`{"status":{"phase":"` + phase + `"}}`) }
	patch := func(do func(patch []byte, o metav1.PatchOptions, subresources ...string) error, body []byte, subresources ...string) func(string) error {
		return func(manager string) error {
			return do(body, metav1.PatchOptions{FieldManager: manager}, subresources...)
		}
	}
	ofReservation := func(body []byte, o metav1.PatchOptions, subresources ...string) error {
		_, err := api.Reservations(metav1.NamespaceDefault).Patch(t.Context(), rsv, types.MergePatchType, body, o, subresources...)
		return err
	}
	ofClaim := func(body []byte, o metav1.PatchOptions, subresources ...string) error {
		_, err := api.ExtendedResourceClaims(metav1.NamespaceDefault).Patch(t.Context(), "claim", types.MergePatchType, body, o, subresources...)
		return err
	}
	ofDevice := func(body []byte, o metav1.PatchOptions, subresources ...string) error {
		_, err := api.ExtendedResources().Patch(t.Context(), "device", types.MergePatchType, body, o, subresources...)
		return err
	}
	ofPod := func(body []byte, o metav1.PatchOptions, subresources ...string) error {
		_, err := pods.Patch(t.Context(), "pending", types.MergePatchType, body, o, subresources...)
		return err
	}
	return map[string]func(string) error{
		"create a reservation": create, "patch a reservation": patch(ofReservation, annotate),
		"status of a reservation": patch(ofReservation, phase("Pending"), "status"),
		"patch a claim":           patch(ofClaim, annotate), "status of a claim": patch(ofClaim, phase("Pending"), "status"),
		"status of a device": patch(ofDevice, phase("Available"), "status"),
		"annotate a pod":     patch(ofPod, annotate),
	}
}

// Without the fence who takes over waits until what was sent before is carried out, or never will be.
func TestWithoutAFence(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	require.NoError(t, crd.Prepare(t.Context(), cp))
	removeFence(t, cp)
	begun := time.Now()
	e, took, _ := elector(t, cp, "only")
	<-took
	assert.Greater(t, time.Since(begun), 2*time.Second)
	eventually(t, func(t *assert.CollectT) { assert.Empty(t, e.Leads()) })
	fence, _ := e.Fence()
	assert.False(t, fence.Up)
	assert.Contains(t, fence.Why, "manifests/base/fence.yaml")
}

// What carries no term is not refused, whether there is a term, a LedgerTerm, or a definition of it.
func TestFenceIsInNobodysWay(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	require.NoError(t, crd.Prepare(t.Context(), cp))
	require.NoError(t, bind(t, cp, "without-a-term", nil))
	_, took, stop := elector(t, cp, "only")
	<-took
	require.NoError(t, bind(t, cp, "with-a-term", nil))
	stop()
	config, err := cp.AdminRESTConfig()
	require.NoError(t, err)
	client, err := metadata.NewForConfig(config)
	require.NoError(t, err)
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	require.NoError(t, client.Resource(definitions).Delete(t.Context(), "ledgerterms.globalreserve.io", metav1.DeleteOptions{}))
	for i := range 30 { // the API server forgets little by little
		require.NoError(t, bind(t, cp, fmt.Sprint("without-a-definition-", i), nil))
		<-time.After(100 * time.Millisecond)
	}
}

func removeFence(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	bindings := cp.Client().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	require.NoError(t, bindings.Delete(t.Context(), election.FenceName, metav1.DeleteOptions{}))
}

func bind(t *testing.T, cp *controlplane.ControlPlane, name string, annotations map[string]string) error {
	t.Helper()
	client := cp.Client()
	pod := podNamed(name)
	_, err := client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	return client.CoreV1().Pods(pod.Namespace).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: name, Annotations: annotations},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "somewhere"},
	}, metav1.CreateOptions{})
}

func podNamed(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec:       corev1.PodSpec{SchedulerName: "none", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func eventually(t *testing.T, condition func(t *assert.CollectT)) {
	t.Helper()
	require.EventuallyWithT(t, condition, testbed.Soon, testbed.Poll)
}
