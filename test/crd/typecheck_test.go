//go:build e2e

package crd

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// mistyped is a policy that kube-controller-manager has to warn of.
const mistyped = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: mistyped}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [globalreserve.io], apiVersions: [v1alpha1], operations: [CREATE], resources: [reservations]}
  validations:
  - expression: object.spec.nodeName == ''
`

// kube-controller-manager checks the types of each policy for every kind that it is about, and writes into its status
// what is wrong. There is nothing in ours.
func TestPolicyTypes(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{Workloads: true})
	require.NoError(t, Prepare(t.Context(), cp))
	require.NoError(t, clusterload.DefinePodGroups(t.Context(), cp))
	require.NoError(t, cp.Apply(t.Context(), []byte(mistyped), ""))
	c := testbed.NewCluster(t, cp)
	c.Eventually(func(t *assert.CollectT) {
		policies, err := c.Client().AdmissionregistrationV1().ValidatingAdmissionPolicies().
			List(c.T.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, policies.Items, 5)
		for i := range policies.Items {
			policy := &policies.Items[i]
			require.Equal(t, policy.Generation, policy.Status.ObservedGeneration, "%s is not checked yet", policy.Name)
			warned := policy.Status.TypeChecking != nil && len(policy.Status.TypeChecking.ExpressionWarnings) > 0
			assert.Equal(t, policy.Name == "mistyped", warned, "%s: %v", policy.Name, policy.Status.TypeChecking)
		}
	})
}
