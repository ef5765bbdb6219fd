package testbed

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	typed "github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/typed/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

// gpu is what the devices of the tests are.
const gpu = "nvidia.com/gpu"

// Apply creates the objects of a manifest. The function it returns deletes them.
func (c *Cluster) Apply(content string) (remove func()) {
	c.T.Helper()
	require.NoError(c.T, c.ControlPlane.Apply(c.T.Context(), []byte(content), c.Namespace))
	return func() {
		objects, err := controlplane.Documents([]byte(content))
		require.NoError(c.T, err)
		background := metav1.DeletePropagationBackground
		for _, object := range objects {
			resource, err := c.Resource(object, c.Namespace)
			require.NoError(c.T, err)
			require.NoError(c.T, resource.Delete(c.T.Context(), object.GetName(),
				metav1.DeleteOptions{PropagationPolicy: &background}))
		}
	}
}

// ApplyFile creates the objects of a file of the repository. The function it returns deletes them.
func (c *Cluster) ApplyFile(path ...string) (remove func()) {
	c.T.Helper()
	content, err := controlplane.ReadFile(path...)
	require.NoError(c.T, err)
	return c.Apply(string(content))
}

// AsServer reaches objects as a server does, with the rights that manifests/base/rbac.yaml has.
func (c *Cluster) AsServer() dynamic.Interface {
	c.T.Helper()
	kubeconfig, err := clusterload.ServerKubeconfig(c.T.Context(), c.ControlPlane)
	require.NoError(c.T, err)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(c.T, err)
	server, err := dynamic.NewForConfig(config)
	require.NoError(c.T, err)
	return server
}

// LetServerDelete gives the server's account a right that its role has not. The function it returns takes it back.
func (c *Cluster) LetServerDelete(group, resource string) (remove func()) {
	c.T.Helper()
	return c.Apply(fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: may-delete}
rules:
- {apiGroups: [%q], resources: [%s], verbs: [delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: may-delete}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: may-delete}
subjects: [{kind: ServiceAccount, name: globalreserve, namespace: globalreserve-system}]
`, group, resource))
}

// Reservations reaches the Reservations of the namespace.
func (c *Cluster) Reservations() typed.ReservationInterface {
	return c.Objects.GlobalreserveV1alpha1().Reservations(c.Namespace)
}

// ListReservations lists them.
func (c *Cluster) ListReservations() []v1alpha1.Reservation {
	c.T.Helper()
	list, err := c.Reservations().List(c.T.Context(), metav1.ListOptions{})
	require.NoError(c.T, err)
	return list.Items
}

// TryReservation creates a Reservation of a spec in YAML, as kubectl does, and returns what the API server says.
func (c *Cluster) TryReservation(name, spec string) error {
	content := fmt.Sprintf("apiVersion: globalreserve.io/v1alpha1\nkind: Reservation\nmetadata: {name: %s}\nspec: %s\n",
		name, spec)
	return c.ControlPlane.Apply(c.T.Context(), []byte(content), c.Namespace)
}

// CreateReservation creates one that must be taken.
func (c *Cluster) CreateReservation(name, spec string) {
	c.T.Helper()
	var err error
	c.Eventually(func(t *assert.CollectT) {
		err = c.TryReservation(name, spec)
		// policies of an API server that has just begun know no types
		assert.False(t, apierrors.IsServiceUnavailable(err), "%v", err)
	})
	require.NoError(c.T, err)
}

// AwaitReservation waits until a Reservation is in a phase, and returns it.
func (c *Cluster) AwaitReservation(name string, phase v1alpha1.ReservationPhase) (rsv *v1alpha1.Reservation) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		var err error
		rsv, err = c.Reservations().Get(c.T.Context(), name, metav1.GetOptions{})
		if assert.NoError(t, err) {
			assert.Equal(t, phase, rsv.Status.Phase, "%+v", rsv.Status)
		}
	})
	return rsv
}

// Columns are what `kubectl get rsv NAME` prints, by their headings.
func (c *Cluster) Columns(name string) map[string]string {
	c.T.Helper()
	table := Table(c.T, c.Objects.GlobalreserveV1alpha1().RESTClient().Get().Namespace(c.Namespace).
		Resource("reservations").Name(name))
	columns := map[string]string{}
	for i, definition := range table.ColumnDefinitions {
		columns[definition.Name] = fmt.Sprint(table.Rows[0].Cells[i])
	}
	return columns
}

// Table asks for an object as kubectl prints it.
func Table(t testing.TB, request *rest.Request) (table metav1.Table) {
	t.Helper()
	content, err := request.SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &table))
	require.Len(t, table.Rows, 1)
	return table
}

// Notes are what the Events on an object say, those for a reason.
func (c *Cluster) Notes(kind, name, reason string) (notes []string) {
	c.T.Helper()
	list, err := c.Client().CoreV1().Events(metav1.NamespaceAll).List(c.T.Context(), metav1.ListOptions{
		FieldSelector: fmt.Sprintf("involvedObject.kind=%s,involvedObject.name=%s,reason=%s", kind, name, reason),
	})
	require.NoError(c.T, err)
	for i := range list.Items {
		notes = append(notes, list.Items[i].Message)
	}
	return notes
}

// AwaitEvent waits for an Event on an object that says something.
func (c *Cluster) AwaitEvent(kind, name, reason, text string) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		assert.Contains(t, strings.Join(c.Notes(kind, name, reason), "\n"), text, "Events %s of %s %s", reason, kind, name)
	})
}

// Devices reaches the devices of the cluster.
func (c *Cluster) Devices() typed.ExtendedResourceInterface {
	return c.Objects.GlobalreserveV1alpha1().ExtendedResources()
}

// DeviceClaims reaches the device claims of the namespace.
func (c *Cluster) DeviceClaims() typed.ExtendedResourceClaimInterface {
	return c.Objects.GlobalreserveV1alpha1().ExtendedResourceClaims(c.Namespace)
}

// CreateDevice creates a GPU whose ID is GPU- and its name.
func (c *Cluster) CreateDevice(name, node, model string) {
	c.T.Helper()
	_, err := c.Devices().Create(c.T.Context(), &v1alpha1.ExtendedResource{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ExtendedResourceSpec{
			NodeName: node, ResourceName: gpu, DeviceID: "GPU-" + name, Properties: Pairs("model", model, "memory", "12Gi"),
		},
	}, metav1.CreateOptions{})
	require.NoError(c.T, err)
}

// CreateDeviceClaim creates a claim of count GPUs of a model, or of those that are named.
func (c *Cluster) CreateDeviceClaim(name, model string, count int32, devices ...string) {
	c.T.Helper()
	_, err := c.DeviceClaims().Create(c.T.Context(), &v1alpha1.ExtendedResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ExtendedResourceClaimSpec{
			ResourceName: gpu, Count: count, ExtendedResourceNames: devices,
			Selector: &v1alpha1.DeviceSelector{MatchProperties: Pairs("model", model)},
		},
	}, metav1.CreateOptions{})
	require.NoError(c.T, err)
}
