package admission_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// running adds a pod that runs on a node.
func (w *world) running(name, cpu, node string) *v1.Pod {
	p := pod(name, cpu)
	p.Spec.NodeName = node
	return w.add(p)
}

func withCPU(p *v1.Pod, cpu string) *v1.Pod {
	p = p.DeepCopy()
	p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(cpu)
	return p
}

// resize asks about a resize of a pod to what another one says.
func (w *world) resize(before, after *v1.Pod,
	changes ...func(*admissionv1.AdmissionRequest),
) *admissionv1.AdmissionResponse {
	w.t.Helper()
	response := w.ask(resizeReview(w.t, before, after, changes...))
	assert.Empty(w.t, response.Patch)
	assert.Empty(w.t, response.Warnings)
	return response
}

func resizeReview(t testing.TB, before, after *v1.Pod,
	changes ...func(*admissionv1.AdmissionRequest),
) *admissionv1.AdmissionReview {
	t.Helper()
	old, err := json.Marshal(before)
	require.NoError(t, err)
	update := func(r *admissionv1.AdmissionRequest) { r.Operation, r.OldObject.Raw = admissionv1.Update, old }
	changes = append(changes, update)
	return review(t, before.Name, "pods", "resize", after, changes...)
}

// counted is what the allocation of a pod counts for.
func (w *world) counted(p *v1.Pod) int64 {
	allocation, ok := w.Ledger.Allocation(ledger.PodRef{Namespace: "ns", Name: p.Name, UID: p.UID})
	require.True(w.t, ok)
	return allocation.Request.Value(resources.CPU)
}

func TestResize(t *testing.T) {
	w := newWorld(t)
	p, _ := w.running("p", "1", "a"), w.running("other", "2", "a")
	refused := w.resize(p, withCPU(p, "2500m"))
	require.False(t, refused.Allowed)
	assert.EqualValues(t, http.StatusConflict, refused.Result.Code)
	assert.Contains(t, refused.Result.Message, `requested 1.5 CPU, 1 free; largest holder ns/other`)
	assert.Contains(t, refused.Result.Message, "ask for less, or replace the pod")

	require.True(t, w.resize(p, withCPU(p, "2"), dryRun).Allowed)
	assert.EqualValues(t, 1000, w.counted(p))
	for range 2 {
		require.True(t, w.resize(p, withCPU(p, "2")).Allowed)
		assert.EqualValues(t, 2000, w.counted(p))
	}
	require.True(t, w.resize(p, withCPU(p, "500m")).Allowed)
	assert.Equal(t, 2, w.count("granted"))
	assert.Equal(t, 1, w.count("refused"))
	assert.Equal(t, 1, w.count("skipped"))

	w.Ledger.SetLimits(ledger.OfNamespace,
		map[string]*ledger.Limits{"ns": {Use: []resources.Amount{{Column: resources.CPU, Value: 4000}}}})
	refused = w.resize(p, withCPU(p, "2001m"))
	require.False(t, refused.Allowed)
	assert.EqualValues(t, http.StatusForbidden, refused.Result.Code, "as ResourceQuota refuses")
	assert.Contains(t, refused.Result.Message, "ResourceQuota")
}

// The API server fills in what a pod requests as a whole only after the webhook.
func TestResizeIsCountedAsStored(t *testing.T) {
	w := newWorld(t)
	p := pod("p", "1")
	one := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	p.Spec.NodeName, p.Spec.Containers[0].Resources = "a", v1.ResourceRequirements{}
	p.Spec.Resources = &v1.ResourceRequirements{Requests: one, Limits: one}
	p = w.add(p)
	limited := func(cpu string) *v1.Pod {
		grown := p.DeepCopy()
		grown.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}
		return grown
	}
	refused := w.resize(p, limited("5"))
	require.False(t, refused.Allowed)
	assert.Contains(t, refused.Result.Message, "requested 4 CPU, 3 free")
	require.True(t, w.resize(p, limited("4")).Allowed)
	assert.EqualValues(t, 4000, w.counted(p))
}

// Only the resources of what is sent count: the API server drops the rest of it.
func TestForgedResize(t *testing.T) {
	forged := func(p *v1.Pod, cpu string) *v1.Pod {
		p = withCPU(p, cpu)
		p.Spec.NodeName, p.UID, p.Name, p.Namespace, p.ResourceVersion = "b", "other", "other", "other", "1"
		p.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("-3")}
		p.DeletionTimestamp, p.Annotations = &metav1.Time{}, map[string]string{v1.MirrorPodAnnotationKey: "x"}
		inForce := v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}
		p.Status = v1.PodStatus{
			Phase:      v1.PodSucceeded,
			Conditions: []v1.PodCondition{{Type: v1.PodResizePending, Reason: v1.PodReasonInfeasible}},
			ContainerStatuses: []v1.ContainerStatus{{
				Name: "c", AllocatedResources: inForce,
				Resources: &v1.ResourceRequirements{Requests: inForce},
			}},
		}
		return p
	}
	w := newWorld(t)
	p, _ := w.running("p", "1", "a"), w.running("other", "2", "a")
	assert.False(t, w.resize(p, forged(p, "3")).Allowed)
	assert.True(t, w.resize(p, forged(p, "2")).Allowed)
	assert.EqualValues(t, 2000, w.counted(p))
	assert.Equal(t, "Bound on a", w.state("p"))
}

// What the API server would not write is refused, and nothing is taken for it.
func TestBadResize(t *testing.T) {
	const invalid, sameContainers = http.StatusUnprocessableEntity, "must not add, remove"
	more := v1.Container{Name: "more"}
	cases := map[string]struct {
		change func(before, after *v1.Pod)
		code   int32
		want   string
	}{
		"negative":          {func(_, after *v1.Pod) { negative(after) }, invalid, "must not be negative"},
		"another container": {func(_, after *v1.Pod) { after.Spec.Containers[0].Name = "x" }, invalid, sameContainers},
		"one container more": {
			func(_, after *v1.Pod) { after.Spec.Containers = append(after.Spec.Containers, more) }, invalid, sameContainers,
		},
		"no pod":                {func(before, _ *v1.Pod) { before.UID = "" }, invalid, "no metadata.name or metadata.uid"},
		"a pod of former times": {func(before, _ *v1.Pod) { before.UID = "former" }, http.StatusConflict, "another UID"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.running("p", "1", "a")
			before, after := p.DeepCopy(), withCPU(p, "2")
			tc.change(before, after)
			response := w.resize(before, after)
			require.False(t, response.Allowed)
			assert.Equal(t, tc.code, response.Result.Code)
			assert.Contains(t, response.Result.Message, tc.want)
			assert.EqualValues(t, 1000, w.counted(p))
		})
	}
}
