package admission_test

import (
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// withNode is a pod as it is created: without a UID, and with a node.
func withNode(name, cpu, node string) *v1.Pod {
	p := pod(name, cpu)
	p.UID, p.Namespace, p.Spec.NodeName = "", "", node
	return p
}

func TestGeneratedName(t *testing.T) {
	w := newWorld(t)
	for base, want := range map[string]string{
		"p-": `^p-[a-z0-9]{10}$`,
		"a-very-long-name-of-a-replica-set-that-somebody-has-thought-of-": `^a-very-long-name-of-a-replica-set-that-somebody-has-t[a-z0-9]{10}$`,
	} {
		p := withNode("", "1", "a")
		p.GenerateName = base
		response := w.ask(review(t, "", "pods", "", p))
		require.True(t, response.Allowed)
		apply(t, response, p)
		assert.Regexp(t, want, p.Name)
		assert.Equal(t, "Binding on a", w.stateOf(ledger.PodRef{Namespace: "ns", Name: p.Name}))
	}
}

func TestPodWithANodeIsRefused(t *testing.T) {
	cases := map[string]struct {
		before func(*world)
		change func(*v1.Pod)
		code   int32
		want   string
	}{
		"exists":  {before: func(w *world) { w.add(pod("p", "1")) }, code: http.StatusConflict, want: "pod ns/p already exists"},
		"no name": {change: func(p *v1.Pod) { p.Name = "" }, code: http.StatusUnprocessableEntity, want: "is not the name of a pod"},
		"mirror pod of somebody else": {
			change: func(p *v1.Pod) {
				p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"}
				p.Spec.NodeName = "no-such-node"
			},
			code: http.StatusConflict, want: "is not in the ledger",
		},
		"an earlier one is not gone": {
			before: func(w *world) {
				p := pod("p", "1")
				placement := w.Bring(p).Placement("a")
				w.Ledger.Reserve(ledger.NewPlan([]ledger.Placement{placement}, ledger.AllOrNothing, time.Time{}), time0)
			},
			code: http.StatusConflict, want: "has not been seen to be gone yet",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.before != nil {
				tc.before(w)
			}
			p := withNode("p", "1", "a")
			if tc.change != nil {
				tc.change(p)
			}
			response := w.ask(review(t, p.Name, "pods", "", p))
			require.False(t, response.Allowed)
			assert.Equal(t, tc.code, response.Result.Code)
			assert.Contains(t, response.Result.Message, tc.want)
		})
	}
}

// The API server fills in what a pod requests as a whole only after the webhook.
func TestPodWithANodeIsCountedAsStored(t *testing.T) {
	w := newWorld(t)
	limited := func(cpu string) *admissionv1.AdmissionResponse {
		p := withNode("p"+cpu, "0", "a")
		p.Spec.Containers[0].Resources.Requests = nil
		p.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}
		return w.ask(review(t, p.Name, "pods", "", p))
	}
	refused := limited("5")
	require.False(t, refused.Allowed)
	assert.Contains(t, refused.Result.Message, "requested 5 CPU, 4 free")
	require.True(t, limited("4").Allowed)
	allocation, ok := w.Ledger.Allocation(ledger.PodRef{Namespace: "ns", Name: "p4"})
	require.True(t, ok)
	assert.EqualValues(t, 4000, allocation.Request.Value(resources.CPU))
	assert.False(t, limited("1").Allowed)
}

// What tells what a pod was given only the webhook writes on one that is created with a node: where it writes nothing,
// as the pod was given nothing, or has only a warning, nothing is there.
func TestPodWithANodeBringsNoRecords(t *testing.T) {
	forged := map[string]string{
		"other":                                  "kept",
		v1alpha1.CallerAnnotation:                "forged",
		v1alpha1.ExtendedResourcesAnnotation:     "gpu-9",
		v1alpha1.MatchedReservationAnnotation:    "ns/forged/0",
		v1alpha1.MatchedReservationUIDAnnotation: "forged",
	}
	mirror := func(r *admissionv1.AdmissionRequest) { r.UserInfo.Groups = []string{"system:nodes"} }
	plain := map[string]string{"other": "kept"}
	cases := map[string]struct {
		cpu    string
		warns  bool
		change func(*admissionv1.AdmissionRequest)
		more   map[string]string
		want   map[string]string
	}{
		"granted": {cpu: "1", want: map[string]string{"other": "kept", v1alpha1.CallerAnnotation: "naive"}},
		"warned":  {cpu: "5", warns: true, want: plain},
		"of the kubelet": {
			cpu: "5", change: mirror, more: map[string]string{v1.MirrorPodAnnotationKey: "x"}, want: plain,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.serve(func(o *arbiter.Options) { o.AdmissionWarns = tc.warns })
			p := withNode("p", tc.cpu, "a")
			p.Annotations = maps.Clone(forged)
			maps.Copy(p.Annotations, tc.more)
			var changes []func(*admissionv1.AdmissionRequest)
			if tc.change != nil {
				changes = append(changes, tc.change)
			}
			response := w.ask(review(t, "p", "pods", "", p, changes...))
			require.True(t, response.Allowed)
			apply(t, response, p)
			for key := range tc.more {
				assert.Contains(t, p.Annotations, key)
				delete(p.Annotations, key)
			}
			assert.Equal(t, tc.want, p.Annotations)
		})
	}
}

// An API server that does not know what a pod requests as a whole, or not in resizes, shows it to webhooks and drops it
// before it stores the pod. One that knows it refuses less than what the containers request.
func TestRequestsThatAreDroppedDoNotHideThoseOfContainers(t *testing.T) {
	w := newWorld(t)
	whole := &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1m")}}
	p := withNode("p", "5", "a")
	p.Spec.Resources = whole
	refused := w.ask(review(t, p.Name, "pods", "", p))
	require.False(t, refused.Allowed)
	assert.Contains(t, refused.Result.Message, "requested 5 CPU, 4 free")

	running := w.running("q", "1", "a")
	grown := withCPU(running, "5")
	grown.Spec.Resources = whole
	refused = w.resize(running, grown)
	require.False(t, refused.Allowed)
	assert.Contains(t, refused.Result.Message, "requested 4 CPU, 3 free")

	// Without the gate PodLevelResourcesFixDefaulting what a resize leaves out is dropped, too.
	running = pod("r", "1")
	running.Spec.NodeName, running.Spec.Resources = "b", &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}
	running = w.add(running)
	grown = withCPU(running, "5")
	grown.Spec.Resources = nil
	require.False(t, w.resize(running, grown).Allowed)
}

func TestMirrorPodIsLetThrough(t *testing.T) {
	w := newWorld(t)
	p := withNode("p", "100", "a")
	p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"}
	response := w.ask(review(t, "p", "pods", "", p, func(r *admissionv1.AdmissionRequest) { r.UserInfo.Groups = []string{"system:nodes"} }))
	assert.True(t, response.Allowed)
	assert.Equal(t, "none", w.stateOf(ledger.PodRef{Namespace: "ns", Name: "p"}))
}

func TestPodWithANodeUsesASlot(t *testing.T) {
	w := newWorld(t)
	w.add(pod("other", "3"))
	w.keep(w.info("other"))
	require.False(t, w.ask(review(t, "p", "pods", "", withNode("p", "3", "a"))).Allowed)
	p := indexed(withNode("p", "3", "a"))
	response := w.ask(review(t, "p", "pods", "", p))
	require.True(t, response.Allowed)
	apply(t, response, p)
	assert.Equal(t, "ns/rsv/0", p.Annotations[v1alpha1.MatchedReservationAnnotation])
}

// Who creates a pod on a node is its caller in the annotation, also where another one had reserved for it: the API server
// lets nobody name another.
func TestPodWithANodeNamesItsCreator(t *testing.T) {
	w := newWorld(t)
	deadline := time0.AddDate(100, 0, 0)
	placement := ledger.Placement{
		Pod: ledger.PodRef{Namespace: "ns", Name: "p"}, Node: "a", Caller: "another", Request: &resources.Request{Amounts: []resources.Amount{{Column: resources.CPU, Value: 1000}}},
	}
	require.Empty(t, w.Ledger.Reserve(ledger.NewPlan([]ledger.Placement{placement}, ledger.AllOrNothing, deadline), time0).Rejections)
	p := withNode("p", "1", "a")
	p.Annotations = map[string]string{v1alpha1.CallerAnnotation: "forged"}
	response := w.ask(review(t, "p", "pods", "", p))
	require.True(t, response.Allowed)
	apply(t, response, p)
	assert.Equal(t, "naive", p.Annotations[v1alpha1.CallerAnnotation])
}
