package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

var httpClient = &http.Client{
	Timeout:   40 * time.Second,
	Transport: &http.Transport{MaxIdleConnsPerHost: 128},
}

// reply is an answer of the server.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// send makes one request. body is sent as it is when it is bytes, else as JSON; nil is no body.
func (c *cluster) send(ctx context.Context, method, path string, body any) (reply, error) {
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		reader = bytes.NewReader(b)
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			return reply{}, err
		}
		reader = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.server.URL+path, reader)
	if err != nil {
		return reply{}, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	return do(request)
}

func do(request *http.Request) (reply, error) {
	response, err := httpClient.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return reply{status: response.StatusCode, header: response.Header, body: content}, err
}

// ask makes a request that must be answered with 200 and JSON, and reads that into answer.
func (c *cluster) ask(method, path string, body, answer any) error {
	r, err := c.send(c.t.Context(), method, path, body)
	if err == nil && r.status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", r.status, r.body)
	}
	if err == nil {
		err = json.Unmarshal(r.body, answer)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
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
	c.call(t, http.MethodPost, "/reserve", request, &answer)
	return answer
}

func (c *cluster) unreserve(t require.TestingT, request *reserver.Request) reserver.Answer {
	var answer reserver.Answer
	c.call(t, http.MethodPost, "/unreserve", request, &answer)
	return answer
}

// bind asks for a bind and returns the protocol's Error, empty for success.
func (c *cluster) bind(t require.TestingT, pod *corev1.Pod, node string) string {
	var answer extenderv1.ExtenderBindingResult
	c.call(t, http.MethodPost, "/bind", bindingOf(pod, node), &answer)
	return answer.Error
}

func bindingOf(pod *corev1.Pod, node string) *extenderv1.ExtenderBindingArgs {
	return &extenderv1.ExtenderBindingArgs{PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID, Node: node}
}

func (c *cluster) filter(t require.TestingT, args *extenderv1.ExtenderArgs) extenderv1.ExtenderFilterResult {
	var answer extenderv1.ExtenderFilterResult
	c.call(t, http.MethodPost, "/filter", args, &answer)
	return answer
}

func (c *cluster) claims(t require.TestingT) reserver.ClaimsAnswer {
	var answer reserver.ClaimsAnswer
	c.call(t, http.MethodGet, "/v1/claims", nil, &answer)
	return answer
}

func (c *cluster) nodes(t require.TestingT) reserver.NodesAnswer {
	var answer reserver.NodesAnswer
	c.call(t, http.MethodGet, "/v1/nodes", nil, &answer)
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
