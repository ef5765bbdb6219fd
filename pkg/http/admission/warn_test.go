package admission_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/requeue"
)

// Who only warns allows what it would refuse, says why, and gives it no allocation; all else is decided as ever.
func TestWarn(t *testing.T) {
	w := warning(t)
	w.add(pod("fits", "2"))
	w.add(pod("large", "3"))

	granted := w.ask(review(t, "fits", "pods", "binding", binding("fits", "a")))
	assert.True(t, granted.Allowed)
	assert.Empty(t, granted.Warnings)
	assert.Equal(t, "Binding on a", w.state("fits"))

	warned := w.ask(review(t, "large", "pods", "binding", binding("large", "a")))
	assert.True(t, warned.Allowed)
	assert.Nil(t, warned.Result)
	assert.Empty(t, warned.Patch)
	require.Len(t, warned.Warnings, 1)
	assert.Contains(t, warned.Warnings[0],
		`GlobalReserve would refuse this: node "a" has too little cpu for pod ns/large: requested 3 CPU, 2 free`)
	assert.Equal(t, "none", w.state("large"))
	assert.Equal(t, 1, w.count("granted"))
	assert.Equal(t, 1, w.count("warned"))

	w.Undecided = func() string { return "another server decides" }
	status, _ := w.post(encode(t, review(t, "large", "pods", "binding", binding("large", "a"))))
	assert.Equal(t, http.StatusServiceUnavailable, status, "the failurePolicy decides")
}

// What was only warned of is distinguished from what was refused.
func TestWarnedIsNotRefused(t *testing.T) {
	w := warning(t)
	w.add(pod("large", "5"))
	w.start()
	runs := w.running("runs", "1", "b")
	for _, asked := range []*admissionv1.AdmissionReview{
		review(t, "large", "pods", "binding", binding("large", "a")), resizeReview(t, runs, withCPU(runs, "5")),
	} {
		require.True(t, w.ask(asked).Allowed)
	}
	list, _ := w.Waiting.RefusalsAfter(0)
	require.Len(t, list, 2)
	for i, path := range []string{requeue.Admission, requeue.Resize} {
		assert.Equal(t, path, list[i].Path)
		assert.True(t, list[i].Warned, path)
	}
	assert.Empty(t, w.arbiter.CountWaiters(), "it goes ahead")
	families, err := w.Metrics.Gatherer().Gather()
	require.NoError(t, err)
	for _, f := range families {
		assert.NotEqual(t, "globalreserve_conflicts_total", f.GetName(), "these are refused")
	}
}

// What is let pass with a warning uses no slot that it was not given, whatever it or its pod says. What cannot be read,
// or names nothing that there is, says nothing that is not so either.
func TestWarnedUsesNoSlot(t *testing.T) {
	forged := map[string]string{"other": "kept", v1alpha1.MatchedReservationAnnotation: slot.String()}
	marked, named, elsewhere := pod("marked", "3"), binding("plain", "a"), binding("p", "a")
	marked.Annotations, named.Annotations, elsewhere.Annotations = forged, forged, forged
	elsewhere.Target.Kind = "Rack"
	unreadable := map[string]any{
		"metadata": map[string]any{"name": "p", "annotations": forged},
		"spec": map[string]any{"nodeName": "a", "containers": []any{map[string]any{"name": "c", "resources": map[string]any{
			"requests": map[string]any{"cpu": "1" + strings.Repeat("0", 100)},
		}}}},
	}
	for name, tc := range map[string]struct {
		of   *admissionv1.AdmissionReview
		said bool // a Binding takes nothing out of its pod's annotations: it leaves one empty
	}{
		"binding":                    {review(t, "plain", "pods", "binding", named), false},
		"pod with a mark":            {review(t, "marked", "pods", "binding", binding("marked", "a")), true},
		"pod that cannot be read":    {review(t, "p", "pods", "", unreadable), false},
		"binding to what is no node": {review(t, "p", "pods", "binding", elsewhere), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := warning(t)
			w.add(indexed(pod("p", "3")))
			w.keep(w.info("p"))
			w.add(pod("plain", "3"))
			w.add(marked)
			w.start()
			warned := w.ask(tc.of)
			require.True(t, warned.Allowed)
			require.Len(t, warned.Warnings, 1)
			var after metav1.PartialObjectMetadata
			require.NoError(t, json.Unmarshal(tc.of.Request.Object.Raw, &after))
			apply(t, warned, &after)
			value, said := after.Annotations[v1alpha1.MatchedReservationAnnotation]
			assert.Equal(t, tc.said, said)
			assert.Empty(t, value)
			assert.Equal(t, !tc.said, after.Annotations["other"] == "kept")
		})
	}
}

// A pod with a node that would be refused is created with a warning, one only, and records nothing that it was given.
func TestWarnedPodWithANode(t *testing.T) {
	w := warning(t)
	p := withNode("p", "5", "a")
	p.Annotations = map[string]string{"other": "kept", v1alpha1.MatchedReservationAnnotation: slot.String()}
	planned := w.ask(review(t, "p", "pods", "", p.DeepCopy()))
	require.True(t, planned.Allowed)
	assert.Empty(t, planned.Warnings)
	warned := w.create(p)
	require.True(t, warned.Allowed)
	require.Len(t, warned.Warnings, 1)
	assert.Contains(t, warned.Warnings[0],
		"GlobalReserve would refuse this: node \"a\" has too little cpu for pod ns/p: requested 5 CPU, 4 free")
	assert.Equal(t, map[string]string{"other": "kept"}, p.Annotations)
	assert.Equal(t, "none", w.state("p"))
	list, _ := w.Waiting.RefusalsAfter(0)
	require.Len(t, list, 1)
	assert.True(t, list[0].Warned)

	fits := indexed(withNode("fits", "1", "a"))
	w.keep(w.Bring(fits))
	require.Empty(t, w.create(fits).Warnings)
	assert.Equal(t, "Binding on a", w.state("fits"))
	assert.NotContains(t, fits.Annotations, v1alpha1.MatchedReservationAnnotation,
		"who reads it cannot know that it was granted")
}

// warning is a world whose webhooks only warn.
func warning(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.serve(func(o *decide.Options) { o.AdmissionWarns = true })
	return w
}
