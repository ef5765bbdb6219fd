package arbiter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// API is what the arbiter needs of the API server.
type API interface {
	// Bind POSTs a Binding once. It must not repeat the request by itself: the
	// error it returns has to be the one of the only request sent.
	Bind(ctx context.Context, binding *v1.Binding) error
	// Get reads a pod live, not from a cache.
	Get(ctx context.Context, namespace, name string) (*v1.Pod, error)
	// Annotate sets one annotation of the pod with this UID and returns the pod
	// as it is then. It fails with a conflict where another pod has the name.
	Annotate(ctx context.Context, pod ledger.PodRef, annotation, value string) (*v1.Pod, error)
	// Self returns the name of the user that the server is to the API server.
	Self(ctx context.Context) (string, error)
}

// NewAPI returns the API of a real API server.
func NewAPI(client kubernetes.Interface) API {
	return restClient{client.CoreV1().RESTClient(), client.AuthenticationV1()}
}

// restClient does without the typed client because that repeats a request for
// which the answer asks to be tried later (Retry-After, which the API server
// sends with some 5xx too) and then returns the last error only.
type restClient struct {
	rest rest.Interface
	auth authenticationclient.AuthenticationV1Interface
}

// Bind implements API.
func (c restClient) Bind(ctx context.Context, binding *v1.Binding) error {
	return bounded(ctx, c.rest.Post()).Namespace(binding.Namespace).Resource("pods").Name(binding.Name).
		SubResource("binding").Body(binding).Do(ctx).Error()
}

// Get implements API.
func (c restClient) Get(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	pod := &v1.Pod{}
	err := bounded(ctx, c.rest.Get()).Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(pod)
	return pod, err
}

// Annotate implements API.
func (c restClient) Annotate(ctx context.Context, pod ledger.PodRef, annotation, value string) (*v1.Pod, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]string{annotation: value},
	}})
	if err != nil {
		return nil, fmt.Errorf("encoding the patch of pod %s: %w", pod, err)
	}
	changed := &v1.Pod{}
	err = bounded(ctx, c.rest.Patch(types.MergePatchType)).Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
		Body(patch).Do(ctx).Into(changed)
	return changed, err
}

// Self implements API.
func (c restClient) Self(ctx context.Context) (string, error) {
	review, err := c.auth.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}

// bounded sends a request once and tells the API server when to abandon it.
func bounded(ctx context.Context, r *rest.Request) *rest.Request {
	r = r.MaxRetries(0)
	if deadline, ok := ctx.Deadline(); ok {
		r = r.Timeout(max(time.Until(deadline), time.Millisecond))
	}
	return r
}

// newBinding is the body of the POST; its UID makes the API server refuse the
// binding of another pod of the same name. It adds the annotations of a Binding
// to the pod's (kubernetes pkg/registry/core/pod/storage, setPodNodeAndMetadata).
func newBinding(pod ledger.PodRef, node string, annotations map[string]string) *v1.Binding {
	return &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Annotations: annotations},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	}
}

// answer is what the reply to a POST says of its fate.
type answer uint8

const (
	answerBound    answer = iota // carried out
	answerNoPod                  // there is no such pod, so it never will be
	answerRefused                // not carried out, and the next try would not be either
	answerNotSent                // not carried out, but the next try may be
	answerConflict               // not carried out if a live read shows why; else unknown
	answerUnknown                // carried out, or not, or not yet
)

// classify sorts the replies to a POST of a Binding.
func classify(err error) answer {
	var status apierrors.APIStatus
	var op *net.OpError
	switch {
	case err == nil:
		return answerBound
	case IsNoPod(err):
		return answerNoPod
	case errors.As(err, &status):
		return classifyCode(int(status.Status().Code))
	case errors.As(err, &op) && op.Op == "dial":
		return answerNotSent
	default:
		return answerUnknown
	}
}

// classifyCode relies on the order in which the API server works: what it
// answers with a 4xx, other than 409, it found out before it wrote anything.
func classifyCode(code int) answer {
	switch {
	case code == http.StatusTooManyRequests:
		return answerNotSent
	case code == http.StatusConflict:
		return answerConflict
	case code == http.StatusRequestTimeout:
		return answerUnknown
	case code >= 400 && code < 500:
		return answerRefused
	default:
		return answerUnknown
	}
}

// IsNoPod reports whether an error is the API server itself saying that a pod does
// not exist. A 404 may also be about the namespace, be an admission webhook's, or
// come from something on the way to the API server, which then knows nothing of
// an earlier request.
func IsNoPod(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "pods" && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
