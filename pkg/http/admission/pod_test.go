package admission_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/http/admission"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// withNode is a pod as it is created: without a UID, and with a node.
func withNode(name, cpu, node string) *v1.Pod {
	p := pod(name, cpu)
	p.UID, p.Namespace, p.Spec.NodeName = "", "", node
	return p
}

func TestPodWithANodeIsRefused(t *testing.T) {
	const conflict, invalid = http.StatusConflict, http.StatusUnprocessableEntity
	mirror := withNode("q", "1", "no-such-node")
	mirror.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"}
	cases := map[string]struct {
		p    *v1.Pod
		code int32
		want string
	}{
		"exists":                      {withNode("p", "1", "a"), conflict, "pod ns/p already exists"},
		"endless node":                {withNode("q", "1", strings.Repeat("x", 300)), invalid, "is not the name of a node"},
		"mirror pod of somebody else": {mirror, conflict, "is not in the ledger"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.add(pod("p", "1"))
			response := w.create(tc.p)
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
		return w.create(p)
	}
	refused := limited("5")
	require.False(t, refused.Allowed)
	assert.Contains(t, refused.Result.Message, "requested 5 CPU, 4 free")
	require.True(t, limited("4").Allowed)
	allocation, ok := w.Ledger.Allocation(ledger.PodRef{Namespace: "ns", Name: "p4", UID: "uid-p4"})
	require.True(t, ok)
	assert.EqualValues(t, 4000, allocation.Request.Value(resources.CPU))
	assert.False(t, limited("1").Allowed)
}

// The mutating webhook grants nothing: what comes of its pod nobody knows yet. The validating one grants nothing that
// the pod does not say, nor to a pod that nobody can know later.
func TestPodWithANodeIsGrantedWhenItIsWritten(t *testing.T) {
	w := newWorld(t)
	p := withNode("p", "3", "a")
	before := w.Ledger.Snapshot()
	planned := w.ask(review(t, "p", "pods", "", p))
	require.True(t, planned.Allowed)
	assert.Equal(t, before, w.Ledger.Snapshot())
	assert.Zero(t, w.count("granted"))

	unknown := w.askAt(admission.PodsPath, review(t, "p", "pods", "", p))
	assert.Contains(t, unknown.Result.Message, "has to be asked by a validating webhook")
	p.UID = "uid-p"
	untold := w.askAt(admission.PodsPath, review(t, "p", "pods", "", p))
	assert.EqualValues(t, http.StatusConflict, untold.Result.Code)
	assert.Contains(t, untold.Result.Message, "its annotations do not tell what it would be given there")
	assert.Equal(t, before.Allocations, w.Ledger.Snapshot().Allocations)

	apply(t, planned, p)
	tried := w.askAt(admission.PodsPath, review(t, "p", "pods", "", p, dryRun))
	assert.True(t, tried.Allowed)
	assert.Equal(t, "none", w.state("p"))
	assert.True(t, w.askAt(admission.PodsPath, review(t, "p", "pods", "", p)).Allowed)
	assert.Equal(t, "Binding on a", w.state("p"))
	assert.Equal(t, 1, w.count("granted"))
	skipped := w.askAt(admission.PodsPath, review(t, "p", "pods", "binding", p))
	require.Len(t, skipped.Warnings, 1)
	assert.Contains(t, skipped.Warnings[0], "correct the rules of its webhook configuration")
}

// Only the webhook records what a pod was given on one that is created with a node: where it writes nothing,
// as the pod was given nothing, or has only a warning, nothing is there. The kubelet's mirror pods are let through.
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
		"granted":        {cpu: "1", want: map[string]string{"other": "kept", v1alpha1.CallerAnnotation: "naive"}},
		"warned":         {cpu: "5", warns: true, want: plain},
		"of the kubelet": {cpu: "5", change: mirror, more: map[string]string{v1.MirrorPodAnnotationKey: "x"}, want: plain},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.serve(func(o *decide.Options) { o.AdmissionWarns = tc.warns })
			p := withNode("p", tc.cpu, "a")
			p.Annotations = maps.Clone(forged)
			maps.Copy(p.Annotations, tc.more)
			var changes []func(*admissionv1.AdmissionRequest)
			if tc.change != nil {
				changes = append(changes, tc.change)
			}
			require.True(t, w.create(p, changes...).Allowed)
			for key := range tc.more {
				assert.Contains(t, p.Annotations, key)
				delete(p.Annotations, key)
			}
			assert.Equal(t, tc.want, p.Annotations)
			assert.Equal(t, tc.cpu == "1", w.state("p") != "none", "what is let through has no allocation")
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
	refused := w.create(p)
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
	running.Spec.NodeName, running.Spec.Resources = "b",
		&v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}
	running = w.add(running)
	grown = withCPU(running, "5")
	grown.Spec.Resources = nil
	require.False(t, w.resize(running, grown).Allowed)
}

func TestPodWithANodeUsesASlot(t *testing.T) {
	w := newWorld(t)
	w.add(pod("other", "3"))
	w.keep(w.info("other"))
	require.False(t, w.create(withNode("p", "3", "a")).Allowed)
	p := indexed(withNode("p", "3", "a"))
	require.True(t, w.create(p).Allowed)
	assert.Equal(t, "Binding on a", w.state("p"))
	assert.Equal(t, "ns/rsv/0", p.Annotations[v1alpha1.MatchedReservationAnnotation])
}

// Who creates a pod on a node is its caller in the annotation, also where another one had reserved for it: the API
// server lets nobody name another.
func TestPodWithANodeNamesItsCreator(t *testing.T) {
	w := newWorld(t)
	deadline := time0.AddDate(100, 0, 0)
	placement := ledger.Placement{
		Pod: ledger.PodRef{Namespace: "ns", Name: "p"}, Node: "a", Caller: "another",
		Request: &resources.Request{Amounts: []resources.Amount{{Column: resources.CPU, Value: 1000}}},
	}
	require.Empty(t, w.Ledger.Reserve(ledger.NewPlan([]ledger.Placement{placement}, ledger.AllOrNothing, deadline), time0).
		Rejections)
	p := withNode("p", "1", "a")
	p.Annotations = map[string]string{v1alpha1.CallerAnnotation: "forged"}
	require.True(t, w.create(p).Allowed)
	assert.Equal(t, "naive", p.Annotations[v1alpha1.CallerAnnotation])
}
