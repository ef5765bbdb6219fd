package crd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// record is something that a server writes: a patch of an object, of its status where it says so.
type record struct{ kind, name, patch string }

func (r *record) subresources() []string {
	if strings.HasPrefix(r.patch, `{"status"`) {
		return []string{"status"}
	}
	return nil
}

// annotation is a patch of one.
func annotation(name, value string) string {
	return fmt.Sprintf(`{"metadata": {"annotations": {"globalreserve.io/%s": %s}}}`, name, value)
}

// records are all that only a server may write; own are what anybody who may write the objects may write.
var records = map[string]record{
	"status of a reservation":   {"Reservation", "r", `{"status": {"phase": "Available"}}`},
	"status of a claim":         {"ExtendedResourceClaim", "c", `{"status": {"phase": "Bound"}}`},
	"status of a device":        {"ExtendedResource", "d", `{"status": {"phase": "Bound"}}`},
	"label":                     {"Reservation", "r", `{"metadata": {"labels": {"globalreserve.io/made-by": "reserve"}}}`},
	"label taken off":           {"Reservation", "made", `{"metadata": {"labels": {"globalreserve.io/made-by": null}}}`},
	"caller":                    {"Reservation", "r", annotation("caller", `"me"`)},
	"caller in another's place": {"Reservation", "made", annotation("caller", `"me"`)},
	"answered":                  {"Reservation", "made", annotation("answered", `"x"`)},
	"request":                   {"Reservation", "r", annotation("request", `"x"`)},
	"deleted pod":               {"Reservation", "r", annotation("deleted-pod-uid", `"x"`)},
	"devices":                   {"Pod", "pending", annotation("extended-resources", `"gpu-0"`)},
	"devices of a bound pod":    {"Pod", "bound", annotation("extended-resources", `"gpu-1"`)},
	"caller of a bound pod":     {"Pod", "bound", annotation("caller", `"another"`)},
	"devices taken off":         {"Pod", "bound", annotation("extended-resources", `null`)},
	"claims of a bound pod":     {"Pod", "bound", annotation("extended-resource-claims", `"other"`)},
	"devices by the status": {
		"Pod", "bound",
		`{"status": {"message": "m"}, "metadata": {"annotations": {"globalreserve.io/extended-resources": "gpu-1"}}}`,
	},
	"slot":    {"Pod", "bound", annotation("matched-reservation", `"default/r/a"`)},
	"slot id": {"Pod", "bound", annotation("matched-reservation-uid", `"u"`)},
}

var own = map[string]record{
	"spec of a reservation": {"Reservation", "r", `{"spec": {"ttl": "2h"}, "metadata": {"labels": {"mine": "l"}}}`},
	"spec of one made":      {"Reservation", "made", `{"spec": {"ttl": "2h"}}`},
	"claims": {
		"Pod", "pending",
		`{"metadata": {"annotations": {"globalreserve.io/extended-resource-claims": "other", "mine": "a"}}}`,
	},
	"labels of a bound pod": {"Pod", "bound", `{"metadata": {"labels": {"mine": "l"}, "annotations": {"mine": "a"}}}`},
	"status of a bound pod": {"Pod", "bound", `{"status": {"message": "other"}}`},
}

// What objects say that a server did is written by servers, whatever else somebody may write.
func (s *suite) testRecords(t *testing.T) {
	tenant, admin := s.RESTConfig("tenant"), s.AdminRESTConfig()
	kubeconfig, err := clusterload.ServerKubeconfig(t.Context(), s.ControlPlane)
	require.NoError(t, err)
	server, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	s.mayWriteAll(t, "tenant")
	c := testbed.Cluster{ControlPlane: s.ControlPlane, T: t, Namespace: "records", Objects: s.Objects}
	require.NoError(t, s.CreateNamespace(t.Context(), c.Namespace))
	require.NoError(t, s.ControlPlane.Apply(t.Context(), []byte(recorded), c.Namespace))
	require.NoError(t, s.Client().CoreV1().Pods(c.Namespace).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "bound",
			Annotations: map[string]string{v1alpha1.ExtendedResourcesAnnotation: "gpu-0"},
		},
		Target: corev1.ObjectReference{Kind: "Node", Name: "somewhere"},
	}, metav1.CreateOptions{}))
	write := func(config *rest.Config, r record, options metav1.PatchOptions) error {
		_, err := s.as(t, config, r.kind, c.Namespace).Patch(t.Context(), r.name, types.MergePatchType, []byte(r.patch),
			options, r.subresources()...)
		return err
	}

	c.Eventually(func(t *assert.CollectT) { // the API server has the policy a moment after it is made
		err := write(tenant, records["devices"], metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		assert.ErrorContains(t, err, "ValidatingAdmissionPolicy")
	})
	for name, r := range records {
		t.Run(name, func(t *testing.T) {
			err := write(tenant, r, metav1.PatchOptions{})
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			assert.ErrorContains(t, err, "ValidatingAdmissionPolicy 'globalreserve-records'")
			// What the roles of a server let it write passes the policy.
			if err := write(server, r, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}); apierrors.IsForbidden(err) {
				assert.NotContains(t, err.Error(), "ValidatingAdmissionPolicy 'globalreserve-records'")
			}
			require.NoError(t, write(admin, r, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}))
		})
	}
	for name, r := range own {
		t.Run("own "+name, func(t *testing.T) { require.NoError(t, write(tenant, r, metav1.PatchOptions{})) })
	}
	for name, object := range map[string]string{
		"label":                       fmt.Sprintf(newReservation, "labels: {globalreserve.io/made-by: reserve}"),
		"caller":                      fmt.Sprintf(newReservation, "annotations: {globalreserve.io/caller: me}"),
		"devices":                     fmt.Sprintf(newPod, "globalreserve.io/extended-resources: gpu-0"),
		"slot":                        fmt.Sprintf(newPod, "globalreserve.io/matched-reservation: records/r/a"),
		"caller of a pod with a node": fmt.Sprintf(placed, "another"),
	} {
		t.Run("create with "+name, func(t *testing.T) {
			object := parse(t, object)
			_, err := s.as(t, tenant, object.GetKind(), c.Namespace).Create(t.Context(), object, metav1.CreateOptions{})
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			assert.ErrorContains(t, err, "leave it out")
			if object.GetKind() == "Reservation" {
				_, err = s.as(t, server, object.GetKind(), c.Namespace).
					Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				require.NoError(t, err)
			}
		})
	}
	_, err = s.as(t, tenant, "Pod", c.Namespace).Create(t.Context(), parse(t, fmt.Sprintf(placed, "tenant")),
		metav1.CreateOptions{})
	require.NoError(t, err, "its creator's own name, as the admission webhook writes it")
}

// Objects with what only servers may write.
const (
	newReservation = "apiVersion: globalreserve.io/v1alpha1\nkind: Reservation\nmetadata: {name: new, %s}\n" +
		"spec: {slots: [{name: a, requests: {cpu: 1}}]}"
	newPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: new, annotations: {%s}}\n" +
		"spec: {containers: [{name: c, image: i}]}"
)

// placed is a pod that names who had it bound, and has a node from the beginning.
const placed = `
apiVersion: v1
kind: Pod
metadata: {name: placed, annotations: {globalreserve.io/caller: %s}}
spec: {nodeName: somewhere, containers: [{name: c, image: i}]}
`

const recorded = `
apiVersion: globalreserve.io/v1alpha1
kind: Reservation
metadata: {name: r}
spec: {slots: [{name: a, requests: {cpu: 1}}]}
---
apiVersion: globalreserve.io/v1alpha1
kind: Reservation
metadata: {name: made, labels: {globalreserve.io/made-by: reserve}, annotations: {globalreserve.io/caller: another}}
spec: {slots: [{name: a, requests: {cpu: 1}}]}
---
apiVersion: globalreserve.io/v1alpha1
kind: ExtendedResourceClaim
metadata: {name: c}
spec: {resourceName: example.com/gpu, count: 1}
---
apiVersion: globalreserve.io/v1alpha1
kind: ExtendedResource
metadata: {name: d}
spec: {nodeName: somewhere, resourceName: example.com/gpu, deviceID: a}
---
apiVersion: v1
kind: Pod
metadata: {name: pending}
spec: {schedulerName: none, containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: bound, annotations: {globalreserve.io/extended-resource-claims: c}}
spec: {schedulerName: none, containers: [{name: c, image: i}]}
`

// The API server writes who made a reservation; some of what it may ask for needs a permission of its own.
func (s *suite) testCreators(t *testing.T) {
	s.mayWriteAll(t, "creator")
	c := testbed.Cluster{ControlPlane: s.ControlPlane, T: t, Namespace: "creators", Objects: s.Objects}
	require.NoError(t, s.CreateNamespace(t.Context(), c.Namespace))
	api := s.as(t, s.RESTConfig("creator"), "Reservation", c.Namespace)
	create := func(name, metadata, spec string) (*unstructured.Unstructured, error) {
		return api.Create(t.Context(), parse(t, "apiVersion: globalreserve.io/v1alpha1\nkind: Reservation\nmetadata: {name: "+
			name+metadata+"}\n"+
			"spec: {"+spec+"slots: [{name: a, requests: {cpu: 1}}]}"), metav1.CreateOptions{})
	}
	c.Eventually(func(t *assert.CollectT) { // the API server has the policies a moment after they are made
		_, err := create("endless", "", "ttl: 0s, ")
		assert.ErrorContains(t, err, "no-expiry")
		made, err := create(fmt.Sprintf("named-%d", time.Now().UnixNano()), "", "")
		if assert.NoError(t, err) {
			assert.Equal(t, "creator", made.GetAnnotations()[v1alpha1.CallerAnnotation])
		}
	})
	made, err := create("annotated", ", annotations: {mine: a}", "priority: 0, ttl: 10m, ")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"mine": "a", v1alpha1.CallerAnnotation: "creator"}, made.GetAnnotations())
	_, err = create("forged", `, annotations: {globalreserve.io/caller: ""}`, "")
	require.ErrorContains(t, err, "leave it out", "nobody's")
	_, err = create("urgent", "", "priority: 1, ")
	require.ErrorContains(t, err, "privileges.globalreserve.io priority")
	extend := func() error {
		_, err := api.Patch(t.Context(), "annotated", types.MergePatchType, []byte(`{"spec": {"ttl": "0s"}}`),
			metav1.PatchOptions{})
		return err
	}
	require.ErrorContains(t, extend(), "no-expiry")

	require.NoError(t, s.ControlPlane.Apply(t.Context(), []byte(privileges), c.Namespace))
	c.Eventually(func(t *assert.CollectT) { assert.NoError(t, extend()) })
	_, err = create("urgent", "", "priority: 1, ttl: 0s, ")
	require.NoError(t, err)
}

const privileges = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: privileges}
rules: [{apiGroups: [globalreserve.io], resources: [privileges], resourceNames: [priority, no-expiry], verbs: [use]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: privileges}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: privileges}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: creator}]
`

// mayWriteAll gives a user all rights to the objects of tenants, and to the devices, which are in no namespace.
func (s *suite) mayWriteAll(t *testing.T, user string) {
	t.Helper()
	require.NoError(t, s.ControlPlane.Apply(t.Context(), fmt.Appendf(nil, allRights, user), ""))
}

const allRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s}
rules:
- {apiGroups: [""], resources: [pods, pods/status, pods/ephemeralcontainers, pods/resize], verbs: ["*"]}
- apiGroups: [globalreserve.io]
  resources: [reservations, reservations/status, extendedresources, extendedresources/status, extendedresourceclaims,
    extendedresourceclaims/status]
  verbs: ["*"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]s}]
`

// as reaches the objects of a kind as somebody.
func (s *suite) as(t *testing.T, config *rest.Config, kind, namespace string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	resource := v1alpha1.SchemeGroupVersion.WithResource(plural(kind))
	if kind == "Pod" {
		resource = corev1.SchemeGroupVersion.WithResource("pods")
	}
	if kind == "ExtendedResource" {
		return client.Resource(resource)
	}
	return client.Resource(resource).Namespace(namespace)
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	objects, err := controlplane.Documents([]byte(text))
	require.NoError(t, err)
	require.Len(t, objects, 1)
	return objects[0]
}
