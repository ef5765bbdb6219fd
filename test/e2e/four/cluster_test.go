package four

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

func (c *cluster) bound() []corev1.Pod {
	list, err := c.Client().CoreV1().Pods(namespace).List(c.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName!="})
	require.NoError(c.t, err)
	return list.Items
}

// awaitNoClaims waits until the ledger holds nothing for anybody.
func (c *cluster) awaitNoClaims() {
	require.Eventually(c.t, func() bool {
		response, err := http.Get(c.url + "/v1/claims")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		var answer reserver.ClaimsAnswer
		return json.NewDecoder(response.Body).Decode(&answer) == nil && len(answer.Claims) == 0
	}, 30*time.Second, 50*time.Millisecond)
}
