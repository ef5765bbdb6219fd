package admission_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// foreignNotFound is a 404 of something that knows nothing of pods.
func foreignNotFound() error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", v1.Resource("pods"), "p", "no route", 0, true)
}

// withNode is a pod as it is created: without a UID, and with a node.
func withNode(name, cpu, node string) *v1.Pod {
	p := pod(name, cpu)
	p.UID, p.Namespace, p.Spec.NodeName = "", "", node
	return p
}

func (w *world) byName(name string) string {
	claim, ok := w.ledger.Claim(ledger.PodRef{Namespace: "ns", Name: name})
	if !ok {
		return "none"
	}
	return claim.State.String() + " on " + claim.Node
}

func TestPodWithANode(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		response := w.ask(review(t, "p", "pods", "", withNode("p", "3", "a")))
		require.True(t, response.Allowed)
		assert.Empty(t, response.Patch)
		assert.Equal(t, "Binding on a", w.byName("p"))
		response = w.ask(review(t, "q", "pods", "", withNode("q", "2", "a")))
		require.False(t, response.Allowed)
		assert.EqualValues(t, http.StatusConflict, response.Result.Code)
		assert.Contains(t, response.Result.Message, "largest holder ns/p")

		created := pod("p", "3")
		created.Spec.NodeName = "a"
		w.add(created)
		assert.Equal(t, "Bound on a", w.state("p"), "the claim has got its pod's UID")
		pass(time.Minute)
		gets, _ := w.sent()
		assert.Zero(t, gets)
		assert.Equal(t, "Bound on a", w.state("p"))
	})
}

// A pod that is never created keeps its room until the API server cannot create it any more.
func TestPodThatIsNeverCreated(t *testing.T) {
	cases := map[string]struct {
		meanwhile func(*world)
		want      string
	}{
		"no pod":       {want: "none"},
		"unseen":       {meanwhile: func(w *world) { p := pod("p", "3"); p.Spec.NodeName = "a"; w.put(p) }, want: "Bound on a"},
		"another pod":  {meanwhile: func(w *world) { w.put(pod("p", "3")) }, want: "none"},
		"another node": {meanwhile: func(w *world) { p := pod("p", "3"); p.Spec.NodeName = "b"; w.put(p) }, want: "none"},
		"unknown":      {meanwhile: func(w *world) { w.fail(errors.New("away")) }, want: "Binding on a"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				require.True(t, w.ask(review(t, "p", "pods", "", withNode("p", "3", "a"))).Allowed)
				if tc.meanwhile != nil {
					tc.meanwhile(w)
				}
				pass(40 * time.Second)
				assert.Equal(t, "Binding on a", w.byName("p"))
				pass(10 * time.Second)
				assert.Equal(t, tc.want, w.byName("p"))
				_, patches := w.sent()
				assert.Zero(t, patches)
			})
		})
	}
}

func TestGeneratedName(t *testing.T) {
	w := newWorld(t, nil)
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
		assert.Equal(t, "Binding on a", w.byName(p.Name))
	}
}

func TestPodWithANodeIsRefused(t *testing.T) {
	cases := map[string]struct {
		before func(*world)
		change func(*v1.Pod)
		code   int32
		want   string
	}{
		"exists":      {before: func(w *world) { w.add(pod("p", "1")) }, code: http.StatusConflict, want: "pod ns/p already exists"},
		"no name":     {change: func(p *v1.Pod) { p.Name = "" }, code: http.StatusUnprocessableEntity, want: "is not the name of a pod"},
		"uncountable": {change: negative, code: http.StatusUnprocessableEntity, want: "must not be negative"},
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
				w.add(p)
				info, _ := w.Pod("ns", "p")
				w.ledger.Reserve(ledger.Plan{Placements: []ledger.Placement{info.Placement("a")}}, time0)
				w.remove("p")
			},
			code: http.StatusConflict, want: "has not been seen to be gone yet",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
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

func TestMirrorPodIsLetThrough(t *testing.T) {
	w := newWorld(t, nil)
	p := withNode("p", "100", "a")
	p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"}
	response := w.ask(review(t, "p", "pods", "", p, func(r *admissionv1.AdmissionRequest) { r.UserInfo.Groups = []string{"system:nodes"} }))
	assert.True(t, response.Allowed)
	assert.Equal(t, "none", w.byName("p"))
}

// Another webhook adds a container, so the API server asks once more.
func TestPodIsReviewedAgain(t *testing.T) {
	w := newWorld(t, nil)
	require.True(t, w.ask(review(t, "p", "pods", "", withNode("p", "1", "a"))).Allowed)
	require.True(t, w.ask(review(t, "p", "pods", "", withNode("p", "3", "a"))).Allowed)
	require.False(t, w.ask(review(t, "q", "pods", "", withNode("q", "2", "a"))).Allowed, "it counts for 3 now")
	require.True(t, w.ask(review(t, "p", "pods", "", withNode("p", "2", "a"))).Allowed)
	require.False(t, w.ask(review(t, "q", "pods", "", withNode("q", "2", "a"))).Allowed, "and goes on doing so")
	require.False(t, w.ask(review(t, "p", "pods", "", withNode("p", "5", "a"))).Allowed)
}

// A pod of the same name is created at the same time, for more than there is. Its refusal must not
// give back the room of the first, which may still be created.
func TestRefusedNamesakeLeavesTheRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		require.True(t, w.ask(review(t, "p", "pods", "", withNode("p", "3", "a"))).Allowed)
		require.False(t, w.ask(review(t, "p", "pods", "", withNode("p", "5", "a"))).Allowed)
		require.Equal(t, "Binding on a", w.byName("p"))
		require.False(t, w.ask(review(t, "q", "pods", "", withNode("q", "2", "a"))).Allowed, "the first counts for 3 still")
		require.True(t, w.ask(review(t, "r", "pods", "", withNode("r", "1", "a"))).Allowed, "and for no more")

		created := pod("p", "3")
		created.Spec.NodeName = "a"
		w.add(created)
		assert.Equal(t, "Bound on a", w.state("p"))
	})
}

func TestPodWithANodeUsesAHold(t *testing.T) {
	w := newWorld(t, nil)
	w.add(pod("other", "3"))
	info, _ := w.Pod("ns", "other")
	ref := ledger.HoldRef{Namespace: "ns", Name: "rsv", Slot: "0"}
	w.ledger.PlaceHolds(ledger.HoldPlan{Holds: []ledger.Hold{{Ref: ref, Node: "a", Request: info.Request}}}, time0)
	p := withNode("p", "3", "a")
	require.False(t, w.ask(review(t, "p", "pods", "", p)).Allowed)
	w.holds = []ledger.HoldRef{ref}
	response := w.ask(review(t, "p", "pods", "", p))
	require.True(t, response.Allowed)
	apply(t, response, p)
	assert.Equal(t, "ns/rsv/0", p.Annotations[v1alpha1.MatchedReservationAnnotation])
}

func TestPodWithANodeDryRun(t *testing.T) {
	w := newWorld(t, nil)
	before := w.ledger.Snapshot()
	p := withNode("", "3", "a")
	p.GenerateName = "p-"
	require.True(t, w.ask(review(t, "", "pods", "", p, dryRun)).Allowed)
	require.False(t, w.ask(review(t, "q", "pods", "", withNode("q", "5", "a"), dryRun)).Allowed)
	assert.Equal(t, before, w.ledger.Snapshot())
}
