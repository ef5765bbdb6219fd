package decide

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/pkg/kube/apiwrite"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// API is what the arbiter needs of the API server.
type API interface {
	// Bind POSTs a Binding once. It must not repeat the request by itself: the
	// error it returns has to be the one of the only request sent.
	Bind(ctx context.Context, binding *v1.Binding) error
	// Get reads a pod live, not from a cache.
	Get(ctx context.Context, namespace, name string) (*v1.Pod, error)
	// IsOn reports whether any pod on a node matches a selector, in one namespace or, where that is "", in all. Pods that
	// have finished do not count. It reads live.
	IsOn(ctx context.Context, namespace, node string, selector labels.Selector) (bool, error)
	// Annotate sets one annotation of the pod with this UID and returns the pod
	// as it is then. It fails with a conflict where another pod has the name.
	Annotate(ctx context.Context, pod ledger.PodRef, annotation, value string) (*v1.Pod, error)
	// Self returns the name of the user that the server is to the API server.
	Self(ctx context.Context) (string, error)
}

// NewAPI returns the API of a real API server.
func NewAPI(client kubernetes.Interface, writes *election.Writes) API {
	return restClient{client.CoreV1().RESTClient(), client.AuthenticationV1(), writes}
}

// restClient does without the typed client because that repeats a request for which the answer asks to be tried later
// (Retry-After, which the API server sends with some 5xx too) and then returns the last error only.
type restClient struct {
	rest rest.Interface
	auth authenticationclient.AuthenticationV1Interface
	// writes sends what gives capacity away.
	writes *election.Writes
}

// Bind implements API.
func (c restClient) Bind(ctx context.Context, binding *v1.Binding) error {
	return c.writes.Do(ctx, func(ctx context.Context) error {
		return bounded(ctx, c.rest.Post()).Namespace(binding.Namespace).Resource("pods").Name(binding.Name).
			SubResource("binding").Body(binding).Do(ctx).Error()
	})
}

// Get implements API.
func (c restClient) Get(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	pod := &v1.Pod{}
	err := bounded(ctx, c.rest.Get()).Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(pod)
	return pod, err
}

// IsOn implements API.
func (c restClient) IsOn(ctx context.Context, namespace, node string, selector labels.Selector) (bool, error) {
	pods := &v1.PodList{}
	err := bounded(ctx, c.rest.Get()).Namespace(namespace).Resource("pods").VersionedParams(&metav1.ListOptions{
		LabelSelector: selector.String(), Limit: 1,
		FieldSelector: fields.AndSelectors(fields.OneTermEqualSelector("spec.nodeName", node),
			fields.OneTermNotEqualSelector("status.phase", string(v1.PodSucceeded)),
			fields.OneTermNotEqualSelector("status.phase", string(v1.PodFailed))).String(),
	}, scheme.ParameterCodec).Do(ctx).Into(pods)
	return len(pods.Items) > 0, err
}

// Annotate implements API.
func (c restClient) Annotate(ctx context.Context, pod ledger.PodRef, annotation, value string) (*v1.Pod, error) {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, pod.UID, annotation, value)
	changed := &v1.Pod{}
	err := bounded(ctx, c.rest.Patch(types.MergePatchType)).Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
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

// bounded makes a request be sent once, and passes on its deadline, at which the API server abandons it.
func bounded(ctx context.Context, r *rest.Request) *rest.Request {
	r = r.MaxRetries(0)
	if deadline, ok := ctx.Deadline(); ok {
		r = r.Timeout(max(time.Until(deadline), time.Millisecond))
	}
	return r
}

// newBinding returns the body of the POST. Its UID and version make the API server refuse the binding of another pod of
// the same name, and of one that has changed. The API server adds the annotations of a Binding to the pod's (kubernetes
// pkg/registry/core/pod/storage, setPodNodeAndMetadata).
func newBinding(pod ledger.PodRef, version, node string, annotations map[string]string) *v1.Binding {
	return &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: version, Annotations: annotations,
		},
		Target: v1.ObjectReference{Kind: "Node", Name: node},
	}
}

// classify sorts the replies to a POST of a Binding, which makes no object that could be there before.
func classify(err error) apiwrite.Fate {
	if fate := apiwrite.Of("pods", err); fate != apiwrite.Exists {
		return fate
	}
	return apiwrite.Conflict
}

// isNoPod reports whether an error is the API server itself saying that a pod does not exist.
func isNoPod(err error) bool { return classify(err) == apiwrite.Missing }
