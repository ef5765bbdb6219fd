//go:build e2e

package devices

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestRefusedClaimsFromTemplates has a quota refuse all claims of a namespace whose pods get them from a template. They
// are tried less and less often, and those of another namespace are made.
func TestRefusedClaimsFromTemplates(t *testing.T) {
	const waiting = 300
	c := newCluster(t, setup{nodes: 1})
	c.refuseClaims()
	before := c.refusedClaims()
	other := c.in(t)
	other.Namespace = "other"
	require.NoError(t, c.CreateNamespace(t.Context(), other.Namespace))
	for _, namespace := range []string{c.Namespace, other.Namespace} {
		_, err := c.Objects.GlobalreserveV1alpha1().ExtendedResourceClaimTemplates(namespace).Create(t.Context(),
			&v1alpha1.ExtendedResourceClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Name: "shape"}, Spec: testbed.NewDeviceClaim("", "", 1).Spec,
			}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	of := testbed.Annotated(v1alpha1.ExtendedResourceClaimsAnnotation, v1alpha1.ClaimTemplatePrefix+"shape")
	c.Create(testbed.NewPods(waiting, "waits", testbed.Nobody, "100m", of)...)
	c.Eventually(func(t *assert.CollectT) { assert.GreaterOrEqual(t, c.refusedClaims(), before+waiting) })
	_, err := c.Client().CoreV1().Pods(other.Namespace).Create(t.Context(), testbed.NewPod("p", testbed.Nobody, "100m", of,
		func(pod *corev1.Pod) { pod.Namespace = other.Namespace }), metav1.CreateOptions{})
	require.NoError(t, err)
	c.Eventually(func(t *assert.CollectT) {
		claims, err := other.DeviceClaims().List(c.T.Context(), metav1.ListOptions{})
		assert.NoError(t, err)
		assert.Len(t, claims.Items, 1)
	})
	// After half a minute it would be 8 times each with a pause of 10 seconds at most.
	controlplane.Never(t, func() bool { return c.refusedClaims() > before+6*waiting }, 30*time.Second, time.Second)
}

// refuseClaims has a ResourceQuota let a namespace have no claims. No controller fills in its status.
func (c *cluster) refuseClaims() {
	c.T.Helper()
	const name = "count/extendedresourceclaims.globalreserve.io"
	quotas := c.Client().CoreV1().ResourceQuotas(c.Namespace)
	none := corev1.ResourceList{name: resource.MustParse("0")}
	quota, err := quotas.Create(c.T.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "claims"}, Spec: corev1.ResourceQuotaSpec{Hard: none},
	}, metav1.CreateOptions{})
	require.NoError(c.T, err)
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
	_, err = quotas.UpdateStatus(c.T.Context(), quota, metav1.UpdateOptions{})
	require.NoError(c.T, err)
}

var refusedCreation = regexp.MustCompile(
	`apiserver_request_total\{code="403",.*resource="extendedresourceclaims",.*verb="POST".*\} (\d+)`)

// refusedClaims is how often the API server has refused to create a claim.
func (c *cluster) refusedClaims() int {
	c.T.Helper()
	metrics, err := c.Client().CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(c.T.Context())
	require.NoError(c.T, err)
	found := refusedCreation.FindSubmatch(metrics)
	if found == nil {
		return 0
	}
	count, err := strconv.Atoi(string(found[1]))
	require.NoError(c.T, err)
	return count
}
