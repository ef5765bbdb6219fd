package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// ask makes a request that must be answered with 200 and JSON, and reads that into answer.
func (c *cluster) ask(method, path string, body, answer any) error {
	return c.server.Call(c.t.Context(), method, path, body, answer)
}

// call is ask for what cannot fail.
func (c *cluster) call(t require.TestingT, method, path string, body, answer any) {
	if helper, ok := t.(*testing.T); ok {
		helper.Helper()
	}
	require.NoError(t, c.ask(method, path, body, answer))
}

func (c *cluster) reserve(t require.TestingT, request *reserver.Request) reserver.Answer {
	var answer reserver.Answer
	c.call(t, http.MethodPost, testbed.ReservePath, request, &answer)
	return answer
}

func (c *cluster) unreserve(t require.TestingT, request *reserver.Request) reserver.Answer {
	var answer reserver.Answer
	c.call(t, http.MethodPost, testbed.UnreservePath, request, &answer)
	return answer
}

// bind asks for a bind and returns the protocol's Error, empty for success.
func (c *cluster) bind(t require.TestingT, pod *corev1.Pod, node string) string {
	var answer extenderv1.ExtenderBindingResult
	c.call(t, http.MethodPost, testbed.BindPath, bindingOf(pod, node), &answer)
	return answer.Error
}

func bindingOf(pod *corev1.Pod, node string) *extenderv1.ExtenderBindingArgs {
	return &extenderv1.ExtenderBindingArgs{PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID, Node: node}
}

func (c *cluster) filter(t require.TestingT, args *extenderv1.ExtenderArgs) extenderv1.ExtenderFilterResult {
	var answer extenderv1.ExtenderFilterResult
	c.call(t, http.MethodPost, testbed.FilterPath, args, &answer)
	return answer
}

func (c *cluster) claims(t require.TestingT) reserver.ClaimsAnswer {
	var answer reserver.ClaimsAnswer
	c.call(t, http.MethodGet, testbed.ClaimsPath, nil, &answer)
	return answer
}

func (c *cluster) nodes(t require.TestingT) reserver.NodesAnswer {
	var answer reserver.NodesAnswer
	c.call(t, http.MethodGet, testbed.NodesPath, nil, &answer)
	return answer
}

// claimOf returns the claim of a pod, or nil.
func (c *cluster) claimOf(t require.TestingT, pod *corev1.Pod) *reserver.Claim {
	claims := c.claims(t).Claims
	for i := range claims {
		if claims[i].UID == string(pod.UID) {
			return &claims[i]
		}
	}
	return nil
}
