package four

import (
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

func (c *cluster) bound() []corev1.Pod {
	list, err := c.Client().CoreV1().Pods(namespace).List(c.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName!="})
	require.NoError(c.t, err)
	return list.Items
}

// awaitNoClaims waits until the ledger holds nothing for anybody.
func (c *cluster) awaitNoClaims() {
	require.Eventually(c.t, func() bool {
		answer, err := testbed.Caller{URL: c.url}.Claims(c.t.Context())
		return err == nil && len(answer.Claims) == 0
	}, 30*time.Second, 50*time.Millisecond)
}
