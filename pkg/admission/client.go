package admission

import (
	"context"
	"encoding/json"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// WithdrawnAnnotation is patched on a pod when a binding of it that was allowed
// is withdrawn. Its value, the time, is new each time, which changes the pod's
// resourceVersion; that is all it is for.
const WithdrawnAnnotation = "globalreserve.io/binding-withdrawn"

// Client is what the webhook needs of the API server.
type Client interface {
	// Get reads a pod live, not from a cache.
	Get(ctx context.Context, namespace, name string) (*v1.Pod, error)
	// Annotate sets one annotation of the pod with this UID and returns the pod
	// as it is then. It fails with a conflict where another pod has the name.
	Annotate(ctx context.Context, pod ledger.PodRef, annotation, value string) (*v1.Pod, error)
	// Self returns the name of the user that the server is to the API server.
	Self(ctx context.Context) (string, error)
}

// NewClient returns the Client of a real API server.
func NewClient(client kubernetes.Interface) Client { return apiClient{client} }

type apiClient struct{ kubernetes.Interface }

// Get implements Client.
func (c apiClient) Get(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	return c.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Annotate implements Client.
func (c apiClient) Annotate(ctx context.Context, pod ledger.PodRef, annotation, value string) (*v1.Pod, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]string{annotation: value},
	}})
	if err != nil {
		return nil, fmt.Errorf("encoding the patch of pod %s: %w", pod, err)
	}
	return c.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}

// Self implements Client.
func (c apiClient) Self(ctx context.Context) (string, error) {
	review, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}
