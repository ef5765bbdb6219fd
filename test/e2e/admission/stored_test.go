//go:build e2e

package admission

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// asAWhole has a pod be limited as a whole, and request nothing: the API server fills that in when all webhooks have
// seen it.
func asAWhole(cpu string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		pod.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}
	}
}

// declareResizes has a node say that its kubelet resizes pods that request something as a whole.
func (c *cluster) declareResizes(node string) {
	c.T.Helper()
	object, err := c.Client().CoreV1().Nodes().Get(c.T.Context(), node, metav1.GetOptions{})
	require.NoError(c.T, err)
	object.Status.DeclaredFeatures = []string{"InPlacePodLevelResourcesVerticalScaling"}
	_, err = c.Client().CoreV1().Nodes().UpdateStatus(c.T.Context(), object, metav1.UpdateOptions{})
	require.NoError(c.T, err)
}

// What the API server fills in after the webhook counts before it is stored, of pods that come with a node and of
// resizes.
func TestPodsLimitedAsAWhole(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.declareResizes("node-0")
	c.run(t, map[string]func(*testing.T, *cluster){
		"created": func(t *testing.T, c *cluster) {
			pods := c.Client().CoreV1().Pods(c.Namespace)
			_, err := pods.Create(t.Context(), testbed.NewPod("large", naive, "0", onNode0, asAWhole("5")),
				metav1.CreateOptions{})
			require.ErrorContains(t, err, "requested 5 CPU, 4 free")
			c.create("whole", "0", onNode0, asAWhole("4"))
			c.Eventually(func(t *assert.CollectT) { assert.EqualValues(t, 4000, c.bound()) })
			_, err = pods.Create(t.Context(), testbed.NewPod("more", naive, "1", onNode0), metav1.CreateOptions{})
			require.ErrorContains(t, err, "0 free")
		},
		"resized": func(t *testing.T, c *cluster) {
			c.create("other", "1", onNode0)
			pod := c.create("whole", "0", onNode0, asAWhole("1"))
			require.Equal(t, "1", pod.Spec.Resources.Requests.Cpu().String(), "the API server is one that fills it in")
			resize := func(cpu string, dryRun ...string) error {
				pod := c.Pod("whole")
				asAWhole(cpu)(pod)
				_, err := c.Client().CoreV1().Pods(c.Namespace).UpdateResize(t.Context(), "whole", pod,
					metav1.UpdateOptions{DryRun: dryRun})
				return err
			}
			c.Eventually(func(t *assert.CollectT) {
				assert.NoError(t, resize("2", metav1.DryRunAll), "the API server has seen what the node declares")
			})
			require.ErrorContains(t, resize("4"), "requested 3 CPU, 2 free")
			require.NoError(t, resize("3"))
			c.Eventually(func(t *assert.CollectT) { assert.EqualValues(t, 4000, c.bound()) })
		},
	})
}

// A pod that is created with a node has nothing in its annotations that tells of what it was not given.
func TestForgedRecords(t *testing.T) {
	c := newCluster(t, 1, nil)
	pod := c.create("p", "1", onNode0, testbed.Annotated(
		"other", "kept", v1alpha1.CallerAnnotation, "forged", v1alpha1.ExtendedResourcesAnnotation, "gpu-9",
		v1alpha1.MatchedReservationAnnotation, "default/forged/0", v1alpha1.MatchedReservationUIDAnnotation, "forged",
	))
	assert.Equal(t, "kept", pod.Annotations["other"])
	assert.NotEqual(t, "forged", pod.Annotations[v1alpha1.CallerAnnotation])
	for _, name := range []string{
		v1alpha1.ExtendedResourcesAnnotation, v1alpha1.MatchedReservationAnnotation, v1alpha1.MatchedReservationUIDAnnotation,
	} {
		assert.NotContains(t, pod.Annotations, name)
	}
}

// sight is what a mutating webhook sees of what the API server is about to store.
type sight struct {
	*otherHook
	mu          sync.Mutex
	object, old *corev1.Pod // of the last request
}

func (c *cluster) startSight() *sight {
	c.T.Helper()
	s := &sight{otherHook: c.serveOtherHook()}
	s.set(func(request *admissionv1.AdmissionRequest) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.object, s.old = new(corev1.Pod), new(corev1.Pod)
		if json.Unmarshal(request.Object.Raw, s.object) != nil {
			return false
		}
		return request.OldObject.Raw == nil || json.Unmarshal(request.OldObject.Raw, s.old) == nil
	})
	c.Apply(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: sight}
webhooks:
- name: pods.sight.example.com
  clientConfig: %s
  rules:
  - {operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}
  - {operations: [UPDATE], apiGroups: [""], apiVersions: [v1], resources: [pods/resize]}
  failurePolicy: Fail
  timeoutSeconds: 30
  sideEffects: None
  admissionReviewVersions: [v1]
`, s.client))
	c.Eventually(func(t *assert.CollectT) {
		_, err := c.Client().CoreV1().Pods(c.Namespace).Create(c.T.Context(), testbed.NewPod("probe", naive, "1"), dry)
		assert.NoError(t, err)
		object, _ := s.seen()
		assert.NotNil(t, object)
	})
	return s
}

// seen is the object of the last request, and what it was before.
func (s *sight) seen() (object, old *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.object, s.old
}

var dry = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// TestCountedIsStored has the API server fill in random pods, by dry run. What counts of what a webhook sees of them is
// what the pods come to that would be stored, by the code that kube-scheduler counts with.
func TestCountedIsStored(t *testing.T) {
	c := &cluster{Cluster: testbed.NewCluster(t, shared.StartT(t))}
	c.AddNodes(1, controlplane.NodeTemplate{Allocatable: corev1.ResourceList{
		"cpu":    resource.MustParse("100"),
		"memory": resource.MustParse("1Ti"),
	}})
	c.declareResizes("node-0")
	_, err := c.Client().NodeV1().RuntimeClasses().Create(t.Context(), &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "heavy"}, Handler: "heavy",
		Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{
			"cpu":    resource.MustParse("250m"),
			"memory": resource.MustParse("1Mi"),
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	limited := c.In(t, "limited")
	limited.Apply(`
apiVersion: v1
kind: LimitRange
metadata: {name: defaults}
spec: {limits: [{type: Container, default: {cpu: 4, memory: 4Gi}, defaultRequest: {cpu: 300m}}]}
`)
	table := resources.NewTable()
	for _, name := range []corev1.ResourceName{gpu, hugePages} {
		table.Intern(name)
	}
	s := c.startSight()
	c.Eventually(func(t *assert.CollectT) {
		pod := testbed.NewPod("probe", naive, "1", func(pod *corev1.Pod) { pod.Namespace = limited.Namespace })
		pod, err := c.Client().CoreV1().Pods(limited.Namespace).Create(c.T.Context(), pod, dry)
		require.NoError(t, err)
		assert.NotEmpty(t, pod.Spec.Containers[0].Resources.Limits, "the API server has seen the LimitRange")
	})
	t.Run("created", func(t *testing.T) { creationsCount(t, c, s, table, limited.Namespace) })
	t.Run("resized", func(t *testing.T) { resizesCount(t, c, s, table) })
}

// creationsCount creates pods, with a node and without.
func creationsCount(t *testing.T, c *cluster, s *sight, table *resources.Table, limited string) {
	d := dice{rand.New(rand.NewPCG(1, 0))}
	stored, filledIn := 0, 0
	for range 600 {
		written := d.pod()
		if d.one(4) {
			written.Namespace = limited
		}
		answer, err := c.Client().CoreV1().Pods(written.Namespace).Create(t.Context(), written, dry)
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			continue // it would not be stored
		}
		require.NoError(t, err)
		stored++
		object, _ := s.seen()
		counted, err := resources.ForIncomingPod(table, object)
		require.NoError(t, err)
		requireCounts(t, table, answer, &counted)
		if answer.Spec.Resources != nil && len(answer.Spec.Resources.Requests) > len(object.Spec.Resources.Requests) {
			filledIn++
		}
		if written.Namespace == limited || written.Spec.RuntimeClassName != nil {
			continue
		}
		counted, err = resources.ForIncomingPod(table, written)
		require.NoError(t, err)
		requireCounts(t, table, answer, &counted)
	}
	t.Logf("%d pods would be stored, %d of them with pod-level requests filled in", stored, filledIn)
	assert.Greater(t, stored, 300)
	assert.Greater(t, filledIn, 50)
}

// resizesCount resizes a pod that runs.
func resizesCount(t *testing.T, c *cluster, s *sight, table *resources.Table) {
	d := dice{rand.New(rand.NewPCG(2, 0))}
	c.create("runs", "100m", onNode0, func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{{
			Name: "side", Image: "none",
			RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		}}
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("500m")}}
	})
	stored, filledIn := 0, 0
	resize := func() error {
		written := c.Pod("runs")
		written.Spec.Containers[0].Resources = d.resources("cpu", "memory")
		written.Spec.InitContainers[0].Resources = d.resources("cpu", "memory")
		written.Spec.Resources = d.asAWhole("cpu", "memory")
		answer, err := c.Client().CoreV1().Pods(c.Namespace).UpdateResize(t.Context(), "runs", written,
			metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		stored++
		object, old := s.seen()
		if object.Spec.Resources == nil {
			object.Spec.Resources = old.Spec.Resources // as the webhook has it
		}
		counted, _, err := resources.ForResizedPod(table, old, object)
		require.NoError(t, err)
		requireCounts(t, table, answer, &counted)
		if written.Spec.Resources != nil && len(answer.Spec.Resources.Requests) > len(written.Spec.Resources.Requests) {
			filledIn++
		}
		return nil
	}
	c.Eventually(func(t *assert.CollectT) { assert.NoError(t, resize()) })
	for range 300 {
		if err := resize(); err != nil && !apierrors.IsInvalid(err) {
			require.NoError(t, err)
		}
	}
	t.Logf("%d resizes would be stored, %d of them with pod-level requests filled in", stored, filledIn)
	assert.Greater(t, stored, 50)
	assert.Greater(t, filledIn, 10)
}

// requireCounts fails where a pod that is stored counts for something else than what was counted before.
func requireCounts(t *testing.T, table *resources.Table, stored *corev1.Pod, counted *resources.Request) {
	t.Helper()
	want, got := map[corev1.ResourceName]int64{"pods": 1}, map[corev1.ResourceName]int64{}
	for name, q := range resourcehelper.PodRequests(stored, resourcehelper.PodResourcesOptions{}) {
		if want[name] = q.Value(); name == corev1.ResourceCPU {
			want[name] = q.MilliValue()
		}
	}
	maps.DeleteFunc(want, func(_ corev1.ResourceName, amount int64) bool { return amount == 0 })
	for _, amount := range counted.Amounts {
		got[table.Name(amount.Column)] = amount.Value
	}
	require.Equal(t, want, got, "%+v", stored.Spec)
	require.Empty(t, counted.Unlisted)
	var ports []int32
	for _, list := range [...][]corev1.Container{stored.Spec.Containers, stored.Spec.InitContainers} {
		for i := range list {
			for _, port := range list[i].Ports {
				if port.HostPort > 0 {
					ports = append(ports, port.HostPort)
				}
			}
		}
	}
	require.Len(t, counted.Ports, len(ports), "%+v", stored.Spec)
	for i, port := range counted.Ports {
		require.Equal(t, ports[i], port.Port)
	}
}

const (
	gpu       corev1.ResourceName = "example.com/gpu"
	hugePages corev1.ResourceName = "hugepages-2Mi"
)

// dice draw pods, most of which the API server stores.
type dice struct{ *rand.Rand }

// one is true once in n times.
func (d dice) one(n int) bool { return d.IntN(n) == 0 }

func (d dice) pod() *corev1.Pod {
	pod := testbed.NewPod("p", naive, "0")
	spec := &pod.Spec
	spec.HostNetwork = d.one(4)
	spec.Containers = d.containers("c", 1+d.IntN(3))
	spec.InitContainers = d.containers("i", d.IntN(3))
	port := int32(8000)
	for i := range spec.InitContainers {
		if d.one(2) {
			spec.InitContainers[i].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			port = d.ports(&spec.InitContainers[i], port)
		}
	}
	for i := range spec.Containers {
		port = d.ports(&spec.Containers[i], port)
	}
	if d.one(4) {
		spec.RuntimeClassName = ptr.To("heavy")
	}
	if d.one(2) {
		spec.NodeName = "node-0"
	}
	if !d.one(3) {
		spec.Resources = d.asAWhole("cpu", "memory", hugePages)
	}
	return pod
}

func (d dice) containers(prefix string, n int) []corev1.Container {
	list := make([]corev1.Container, n)
	for i := range list {
		list[i] = corev1.Container{
			Name: fmt.Sprint(prefix, i), Image: "none",
			Resources: d.resources("cpu", "memory", "ephemeral-storage"),
		}
		if d.one(6) {
			list[i].Resources.Limits[hugePages] = resource.MustParse("2Mi")
			list[i].Resources.Limits["memory"] = resource.MustParse("3Gi")
		}
		if d.one(6) {
			list[i].Resources.Limits[gpu] = resource.MustParse("1")
		}
	}
	return list
}

// ports gives a container ports of its own, from the one named on.
func (d dice) ports(c *corev1.Container, port int32) (next int32) {
	for range d.IntN(3) {
		c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: port})
		if d.one(2) {
			c.Ports[len(c.Ports)-1].HostPort = port
		}
		port++
	}
	return port
}

// small, and large that are no less.
var (
	small = map[corev1.ResourceName][]string{
		"cpu": {"0", "1m", "1500u", "100n", "0.25", "500m"}, "memory": {"0", "1", "1500m", "1M", "64Mi"},
		"ephemeral-storage": {"1Gi", "3"},
	}
	large = map[corev1.ResourceName][]string{
		"cpu": {"1", "1500001u", "2"}, "memory": {"1Gi", "2G"}, "ephemeral-storage": {"1Gi", "2Gi"},
	}
	whole = map[corev1.ResourceName][]string{"cpu": {"6", "7000001u"}, "memory": {"9Gi", "10G"}, hugePages: {"16Mi"}}
)

func (d dice) of(amounts map[corev1.ResourceName][]string, name corev1.ResourceName) resource.Quantity {
	return resource.MustParse(amounts[name][d.IntN(len(amounts[name]))])
}

// resources are requests, limits, both or none of the resources named.
func (d dice) resources(names ...corev1.ResourceName) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, name := range names {
		if d.one(2) {
			r.Requests[name] = d.of(small, name)
		}
		if d.one(2) {
			r.Limits[name] = d.of(large, name)
		}
	}
	return r
}

// asAWhole are those of a pod as a whole, which are no less than its containers'; nil now and then.
func (d dice) asAWhole(names ...corev1.ResourceName) *corev1.ResourceRequirements {
	if d.one(6) {
		return nil
	}
	r := &corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, name := range names {
		if d.one(3) && name != hugePages {
			r.Requests[name] = resource.MustParse(whole[name][0])
		}
		if d.one(2) {
			r.Limits[name] = resource.MustParse(whole[name][d.IntN(len(whole[name]))])
		}
	}
	return r
}
