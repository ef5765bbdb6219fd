//go:build e2e

package deletedpods

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// provisioningDefinition has the fields of a ProvisioningRequest that the server writes and reads, and no others.
const provisioningDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: provisioningrequests.autoscaling.x-k8s.io
  annotations: {api-approved.kubernetes.io: "a fixture of tests"}
spec:
  group: autoscaling.x-k8s.io
  names:
    {kind: ProvisioningRequest, listKind: ProvisioningRequestList,
    plural: provisioningrequests, singular: provisioningrequest}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [provisioningClassName, podSets]
            properties:
              provisioningClassName: {type: string}
              parameters: {type: object, additionalProperties: {type: string, maxLength: 255}}
              podSets:
                type: array
                minItems: 1
                maxItems: 32
                items:
                  type: object
                  required: [count, podTemplateRef]
                  properties:
                    count: {type: integer, format: int32, minimum: 1}
                    podTemplateRef: {type: object, properties: {name: {type: string}}}
          status:
            type: object
            properties:
              conditions:
                type: array
                items:
                  type: object
                  required: [type, status, reason, message, lastTransitionTime]
                  properties:
                    {type: {type: string}, status: {type: string}, reason: {type: string}, message: {type: string},
                    lastTransitionTime: {type: string, format: date-time}}
`

const provisioningPolicy = `
autoscaling:
  provisioningRequests:
    className: best-effort-atomic-scale-up.autoscaling.x-k8s.io
    after: 1s
    parameters: {ValidUntilSeconds: "600"}
`

var provisioningKind = schema.GroupVersionKind{
	Group: "autoscaling.x-k8s.io", Version: "v1",
	Kind: "ProvisioningRequest",
}

// Nodes are requested once for a reservation that fits none, however often the server is killed and whether or not the
// definition is there. What comes of it is told, and the request goes when nobody waits for it.
func TestNodesAreRequestedOnce(t *testing.T) {
	c := newCluster(t, "--policy-file="+testbed.Policy(t, provisioningPolicy))
	c.nodes(1)
	c.CreateReservation("large", `{ttl: 10m, slots: [
		{name: a, requests: {cpu: 6}}, {name: b, requests: {cpu: 6}, nodeSelector: {disk: ssd}}, {name: c, requests: {cpu: 6}}]}`)
	c.CreateReservation("other", `{ttl: 10m, slots: [{name: a, requests: {cpu: 5}}]}`)
	c.CreateReservation("named", `{ttl: 10m, slots: [{name: a, nodeName: nowhere, requests: {cpu: 5}}]}`)
	c.AwaitReservation("large", v1alpha1.ReservationPending)

	undefine := c.defineProvisioning()
	large := c.awaitRequest("large", "Requested")
	assert.Equal(t, map[string]any{
		"provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
		"parameters":            map[string]any{"ValidUntilSeconds": "600"},
		"podSets": []any{
			map[string]any{"count": int64(2), "podTemplateRef": map[string]any{"name": large.GetName() + "-0"}},
			map[string]any{"count": int64(1), "podTemplateRef": map[string]any{"name": large.GetName() + "-1"}},
		},
	}, large.Object["spec"])
	template, err := c.Client().CoreV1().PodTemplates(c.Namespace).
		Get(t.Context(), large.GetName()+"-1", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "6", template.Template.Spec.Containers[0].Resources.Requests.Cpu().String())
	assert.Equal(t, testbed.Pairs("disk", "ssd"), template.Template.Spec.NodeSelector)
	other := c.awaitRequest("other", "Requested")

	c.Server.Crash(t)
	c.answerRequest(large, "Provisioned", "CapacityIsFound", "two nodes were made")
	assert.Equal(t, large.GetUID(), c.awaitRequest("large", "Provisioned").GetUID())
	rsv, err := c.Reservations().Get(t.Context(), "large", metav1.GetOptions{})
	require.NoError(t, err)
	message := apimeta.FindStatusCondition(rsv.Status.Conditions, v1alpha1.ConditionProvisioning).Message
	assert.Contains(t, message, "CapacityIsFound: two nodes were made")
	assert.Len(t, c.requests(), 2, "and none for a slot that names its node")

	undefine() // and all requests with it
	undefine = c.defineProvisioning()
	defer undefine()
	c.Server.Crash(t)
	c.CreateReservation("late", `{ttl: 10m, slots: [{name: a, requests: {cpu: 7}}]}`)
	late := c.awaitRequest("late", "Requested") // so the server has looked
	assert.Equal(t, []string{late.GetName()}, c.requests(), "%s and %s are not made again", large.GetName(),
		other.GetName())

	c.CreateReservation("gone", `{ttl: 10m, slots: [{name: a, requests: {cpu: 7}}]}`)
	gone := c.awaitRequest("gone", "Requested")
	require.NoError(t, c.Reservations().Delete(t.Context(), "gone", metav1.DeleteOptions{}))
	c.Eventually(func(t *assert.CollectT) { assert.NotContains(t, c.requests(), gone.GetName()) },
		"its reservation is gone")
	c.AddNodes(1, controlplane.NodeTemplate{Prefix: "new-", Allocatable: corev1.ResourceList{
		"cpu": resource.MustParse("64"), "memory": resource.MustParse("64Gi"), "pods": resource.MustParse("100"),
	}})
	c.AwaitReservation("late", v1alpha1.ReservationAvailable)
	c.Eventually(func(t *assert.CollectT) { assert.Empty(t, c.requests()) }, "nobody waits any more")
	assert.Zero(t, c.Metric("globalreserve_autoscaling_writes_total", "result", "failed"))
}

// defineProvisioning installs the definition, which is deleted by what it returns.
func (c *cluster) defineProvisioning() (undefine func()) {
	c.T.Helper()
	require.NoError(c.T, c.ControlPlane.Apply(c.T.Context(), []byte(provisioningDefinition), ""))
	require.NoError(c.T, c.AwaitServed(c.T.Context(), provisioningKind))
	return func() {
		documents, err := controlplane.Documents([]byte(provisioningDefinition))
		require.NoError(c.T, err)
		definitions, err := c.Resource(documents[0], "")
		require.NoError(c.T, err)
		require.NoError(c.T, definitions.Delete(c.T.Context(), documents[0].GetName(), metav1.DeleteOptions{}))
		c.Eventually(func(t *assert.CollectT) {
			_, err := definitions.Get(c.T.Context(), documents[0].GetName(), metav1.GetOptions{})
			assert.Error(t, err)
		})
	}
}

func (c *cluster) listRequests() []unstructured.Unstructured {
	c.T.Helper()
	example := &unstructured.Unstructured{}
	example.SetGroupVersionKind(provisioningKind)
	resource, err := c.Resource(example, c.Namespace)
	require.NoError(c.T, err)
	list, err := resource.List(c.T.Context(), metav1.ListOptions{})
	require.NoError(c.T, err)
	return list.Items
}

// requests are the names of all requests.
func (c *cluster) requests() (names []string) {
	c.T.Helper()
	for _, request := range c.listRequests() {
		names = append(names, request.GetName())
	}
	return names
}

// awaitRequest waits until there is a request that belongs to a reservation, and that says how far it is.
func (c *cluster) awaitRequest(reservation, reason string) (found *unstructured.Unstructured) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		rsv, err := c.Reservations().Get(c.T.Context(), reservation, metav1.GetOptions{})
		require.NoError(t, err)
		condition := apimeta.FindStatusCondition(rsv.Status.Conditions, v1alpha1.ConditionProvisioning)
		require.NotNil(t, condition, "%+v", rsv.Status)
		assert.Equal(t, []string{"True", reason}, []string{string(condition.Status), condition.Reason}, condition.Message)
		found = nil
		list := c.listRequests()
		for i := range list {
			if owners := list[i].GetOwnerReferences(); len(owners) == 1 && owners[0].UID == rsv.UID {
				found = &list[i]
			}
		}
		require.NotNil(t, found)
	})
	return found
}

// answerRequest does what an autoscaler does.
func (c *cluster) answerRequest(request *unstructured.Unstructured, kind, reason, message string) {
	c.T.Helper()
	request = request.DeepCopy()
	require.NoError(c.T, unstructured.SetNestedSlice(request.Object, []any{map[string]any{
		"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z",
	}}, "status", "conditions"))
	resource, err := c.Resource(request, c.Namespace)
	require.NoError(c.T, err)
	_, err = resource.UpdateStatus(c.T.Context(), request, metav1.UpdateOptions{})
	require.NoError(c.T, err)
}
