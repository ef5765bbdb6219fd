package testbed

import (
	"strconv"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
)

const (
	// Nobody is the schedulerName of pods that no running scheduler takes.
	Nobody = "nobody"
	// Writers is how many requests a test sends side by side.
	Writers = 16
)

// Requests are so much CPU and a little memory.
func Requests(cpu string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse("64Mi"),
	}
}

// NewPod is a pod that goes at once when it is deleted: there is no kubelet to wait for.
func NewPod(name, scheduler, cpu string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name},
		Spec: corev1.PodSpec{
			SchedulerName: scheduler, TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{
				Name: "main", Image: "example.invalid/not-pulled",
				Resources: corev1.ResourceRequirements{Requests: Requests(cpu)},
			}},
		},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// NewPods are pods named prefix-0, prefix-1 ...
func NewPods(n int, prefix, scheduler, cpu string, changes ...func(*corev1.Pod)) []*corev1.Pod {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = NewPod(prefix+"-"+strconv.Itoa(i), scheduler, cpu, changes...)
	}
	return pods
}

// Annotated gives a pod annotations, as pairs.
func Annotated(pairs ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations = Pairs(pairs...) }
}

// Pairs is a map of keys and values in turn.
func Pairs(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// Token makes a ServiceAccount in the test's namespace, and returns a token of it.
func (c *Cluster) Token(account string) string {
	c.T.Helper()
	accounts := c.Client().CoreV1().ServiceAccounts(c.Namespace)
	_, err := accounts.Create(c.T.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}},
		metav1.CreateOptions{})
	require.NoError(c.T, err)
	token, err := accounts.CreateToken(c.T.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(c.T, err)
	return token.Status.Token
}

// Create creates pods in the test's namespace and returns them as the API server has them, in the same order.
func (c *Cluster) Create(pods ...*corev1.Pod) []*corev1.Pod {
	c.T.Helper()
	created := make([]*corev1.Pod, len(pods))
	group, ctx := errgroup.WithContext(c.T.Context())
	group.SetLimit(Writers)
	for i, pod := range pods {
		pod.Namespace = c.Namespace
		group.Go(func() (err error) {
			created[i], err = c.Client().CoreV1().Pods(c.Namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
	}
	require.NoError(c.T, group.Wait())
	return created
}

// CreatePod creates one.
func (c *Cluster) CreatePod(name, scheduler, cpu string, changes ...func(*corev1.Pod)) *corev1.Pod {
	c.T.Helper()
	return c.Create(NewPod(name, scheduler, cpu, changes...))[0]
}

// FindPod returns a pod as it is now, nil if there is none of that name.
func (c *Cluster) FindPod(name string) *corev1.Pod {
	c.T.Helper()
	pod, err := c.Client().CoreV1().Pods(c.Namespace).Get(c.T.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(c.T, err)
	return pod
}

// Pod returns a pod that must be there.
func (c *Cluster) Pod(name string) *corev1.Pod {
	c.T.Helper()
	pod := c.FindPod(name)
	require.NotNil(c.T, pod, name)
	return pod
}

// Pods lists the pods of the namespace.
func (c *Cluster) Pods() []corev1.Pod {
	c.T.Helper()
	list, err := c.Client().CoreV1().Pods(c.Namespace).List(c.T.Context(), metav1.ListOptions{})
	require.NoError(c.T, err)
	return list.Items
}

// Bound are those among pods that have a node.
func Bound(pods []corev1.Pod) (bound []corev1.Pod) {
	for i := range pods {
		if pods[i].Spec.NodeName != "" {
			bound = append(bound, pods[i])
		}
	}
	return bound
}

// Delete deletes pods, as they say they want to end, and waits until they are gone.
func (c *Cluster) Delete(names ...string) {
	c.T.Helper()
	for _, name := range names {
		require.NoError(c.T, c.Client().CoreV1().Pods(c.Namespace).Delete(c.T.Context(), name, metav1.DeleteOptions{}))
		c.Eventually(func(t *assert.CollectT) { assert.Nil(t, c.FindPod(name)) })
	}
}

// Clear deletes all pods of the test's namespace, and waits until the server has noticed.
func (c *Cluster) Clear() {
	c.T.Helper()
	require.NoError(c.T, clusterload.DeletePods(c.T.Context(), c.Client(), c.Namespace))
	c.Eventually(func(t *assert.CollectT) { assert.Empty(t, c.Allocations().Allocations) })
}

// BindDirectly binds a pod as a scheduler does that has never heard of GlobalReserve.
func (c *Cluster) BindDirectly(name, node string, dryRun ...string) error {
	return c.Client().CoreV1().Pods(c.Namespace).Bind(c.T.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{DryRun: dryRun})
}

// AwaitBound waits until a pod is bound and returns it and when that was seen.
func (c *Cluster) AwaitBound(name string) (pod *corev1.Pod, at time.Time) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		if pod = c.FindPod(name); assert.NotNil(t, pod, name) {
			assert.NotEmpty(t, pod.Spec.NodeName, "%s: %+v", name, pod.Status.Conditions)
		}
	})
	return pod, time.Now()
}

// AwaitRefused waits until the scheduler has refused a pod, and returns what it says.
func (c *Cluster) AwaitRefused(name string) (message string) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		pod := c.Pod(name)
		require.Empty(c.T, pod.Spec.NodeName, "%s was bound", name)
		message = Refusal(pod)
		assert.NotEmpty(t, message, "no scheduler has refused %s yet", name)
	})
	return message
}

// Refusal is what a scheduler has said of a pod that it could not place; it is empty where none has.
func Refusal(pod *corev1.Pod) (message string) {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			message = condition.Message
		}
	}
	return message
}

// backOff is how long kube-scheduler leaves a pod alone after it was refused once, and a second more for the
// coarse time stamps it is measured by here.
const backOff = 2 * time.Second

// AwaitBackOffOver waits until no pod is left alone by its scheduler any more, as none is that has waited for a while.
func (c *Cluster) AwaitBackOffOver() {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		for _, pod := range c.Pods() {
			for _, condition := range pod.Status.Conditions {
				assert.Greater(t, time.Since(condition.LastTransitionTime.Time), backOff, "%s backs off", pod.Name)
			}
		}
	})
}

// AllocationOf returns the allocation of a pod, or nil.
func (c *Cluster) AllocationOf(pod *corev1.Pod) *reserver.Allocation {
	c.T.Helper()
	allocations := c.Allocations().Allocations
	for i := range allocations {
		if allocations[i].UID == string(pod.UID) {
			return &allocations[i]
		}
	}
	return nil
}

// Matched are the pods among those given that were bound with reserved capacity: what they were bound with,
// by the pod's name.
func Matched(pods []corev1.Pod) map[string]string {
	with := map[string]string{}
	for i := range pods {
		if value := pods[i].Annotations[v1alpha1.MatchedReservationAnnotation]; value != "" {
			with[pods[i].Name] = value
		}
	}
	return with
}
