package admission_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/arbiter"
)

func TestBindingIsAllowedUnderPreconditions(t *testing.T) {
	cases := map[string]struct {
		shown    bool // the informer has the pod
		given    metav1.ObjectMeta
		wantGets int
	}{
		"from the informer":             {shown: true},
		"read live":                     {wantGets: 1},
		"with preconditions of its own": {shown: true, given: metav1.ObjectMeta{UID: "uid-p", ResourceVersion: "101"}},
		"informer behind": {
			shown: true, given: metav1.ObjectMeta{UID: "uid-p", ResourceVersion: "102"}, wantGets: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put(pod("p", "3"))
			if tc.shown {
				w.show("p")
			}
			want := "101"
			if tc.given.ResourceVersion == "102" {
				w.change("p", func(*v1.Pod) {})
				want = "102"
			}
			b := binding("p", "a")
			b.UID, b.ResourceVersion = tc.given.UID, tc.given.ResourceVersion
			allowed, refusal := w.bind(b)
			require.Nil(t, refusal)
			assert.EqualValues(t, "uid-p", allowed.UID)
			assert.Equal(t, want, allowed.ResourceVersion)
			assert.Equal(t, map[string]string{v1alpha1.CallerAnnotation: "naive"}, allowed.Annotations)
			assert.Equal(t, tc.wantGets, w.gets)
			assert.Equal(t, "Binding on a", w.state("p"))
			assert.Equal(t, 1, w.count("granted"))
		})
	}
}

func TestBindingIsRefused(t *testing.T) {
	bind := func(name, node string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			t.Helper()
			_, refusal := w.bind(binding(name, node))
			require.Nil(t, refusal)
		}
	}
	cases := map[string]struct {
		before func(*testing.T, *world)
		change func(*v1.Pod)
		given  func(*v1.Binding)
		code   int32
		want   string
		claim  string // afterwards; "none" if empty
	}{
		"no capacity": {
			before: func(t *testing.T, w *world) { w.add(pod("q", "2")); bind("q", "a")(t, w) },
			code:   http.StatusConflict, want: `node "a" has too little cpu for pod ns/p: requested 3 CPU, 2 free; largest holder ns/q (2 CPU, Binding by naive)`,
		},
		"no such node": {given: func(b *v1.Binding) { b.Target.Name = "x" }, code: http.StatusConflict, want: `node "x" is not in the ledger`},
		"bound, and the watch is behind": {
			before: func(_ *testing.T, w *world) { w.change("p", func(p *v1.Pod) { p.Spec.NodeName = "b" }) },
			given:  func(b *v1.Binding) { b.ResourceVersion = "102" }, // the caller has seen it, so it is read live
			code:   http.StatusConflict, want: `is bound to node "b" already`, claim: "Bound on b",
		},
		"bound": {change: func(p *v1.Pod) { p.Spec.NodeName = "a" }, code: http.StatusConflict, want: `is bound to node "a" already`, claim: "Bound on a"},
		"being deleted": {
			change: func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, code: http.StatusConflict, want: "is being deleted or has finished",
		},
		"finished":       {change: func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, code: http.StatusConflict, want: "is being deleted or has finished"},
		"uncountable":    {change: func(p *v1.Pod) { negative(p) }, code: http.StatusUnprocessableEntity, want: "must not be negative"},
		"another UID":    {given: func(b *v1.Binding) { b.UID = "old" }, code: http.StatusConflict, want: "has another UID than old"},
		"changed":        {given: func(b *v1.Binding) { b.ResourceVersion = "7" }, code: http.StatusConflict, want: "has another resourceVersion by now"},
		"no such pod":    {given: func(b *v1.Binding) { b.Name = "x" }, code: http.StatusNotFound, want: "pod ns/x does not exist"},
		"not a node":     {given: func(b *v1.Binding) { b.Target.Kind = "Pod" }, code: http.StatusBadRequest, want: `target.kind is "Pod"`},
		"no target":      {given: func(b *v1.Binding) { b.Target.Name = "" }, code: http.StatusBadRequest, want: "target.name is missing"},
		"no name":        {given: func(b *v1.Binding) { b.Name = "" }, code: http.StatusBadRequest, want: "is not the name of a pod"},
		"name of a path": {given: func(b *v1.Binding) { b.Name = "../p" }, code: http.StatusBadRequest, want: "is not the name of a pod"},
		"bound by the server itself": {
			before: func(_ *testing.T, w *world) {
				info := w.info("p")
				placement := info.Placement("a")
				_, rejection := w.ledger.StartBind(&placement, time0)
				require.Nil(w.t, rejection)
			},
			code: http.StatusConflict, want: "is being bound to node \"a\" by somebody else", claim: "Binding on a",
		},
		"being bound elsewhere": {
			before: bind("p", "b"),
			code:   http.StatusConflict, want: `already has an allocation on node "b"`, claim: "Binding on b",
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			p := pod("p", "3")
			if tc.change != nil {
				tc.change(p)
			}
			w.put(p)
			if name != "uncountable" {
				w.show("p")
			}
			if tc.before != nil {
				tc.before(t, w)
			}
			b := binding("p", "a")
			if tc.given != nil {
				tc.given(b)
			}
			_, refusal := w.bind(b)
			require.NotNil(t, refusal)
			assert.Equal(t, tc.code, refusal.Code, refusal.Message)
			assert.Contains(t, refusal.Message, tc.want)
			assert.Equal(t, metav1.StatusFailure, refusal.Status)
			if tc.claim == "" {
				tc.claim = "none"
			}
			assert.Equal(t, tc.claim, w.state("p"))
		})
	}
}

func TestOwnBinding(t *testing.T) {
	w := newWorld(t)
	w.start()
	p := w.add(pod("p", "3"))
	require.Eventually(t, func() bool { // until the server knows who it is
		_, refusal := w.bind(binding("nobody", "a"), byUs)
		return refusal != nil
	}, waitFor, poll)
	info := w.info("p")
	placement := info.Placement("a")
	_, rejection := w.ledger.StartBind(&placement, time0)
	require.Nil(t, rejection)
	require.Eventually(t, func() bool {
		allowed, refusal := w.bind(binding("p", "a"), byUs)
		return refusal == nil && assert.Equal(t, binding("p", "a"), allowed, "the binder looks after it itself")
	}, waitFor, poll)
	_, refusal := w.bind(binding("p", "b"), byUs)
	require.NotNil(t, refusal, "on another node")

	// Sent by a server that has been restarted since, which knows nothing of it.
	w.ledger.BindFailed(info.Ref, "a")
	allowed, refusal := w.bind(binding("p", "a"), byUs)
	require.Nil(t, refusal)
	assert.Equal(t, p.ResourceVersion, allowed.ResourceVersion)
}

func TestBindingUsesASlot(t *testing.T) {
	w := newWorld(t)
	w.add(indexed(pod("p", "3")))
	w.keep(w.info("p"))
	w.add(pod("q", "3"))
	_, refusal := w.bind(binding("q", "a"))
	require.NotNil(t, refusal, "the capacity is kept")
	assert.Contains(t, refusal.Message, "reservation ns/rsv/0")

	tried, refusal := w.bind(binding("p", "a"), dryRun)
	require.Nil(t, refusal)
	assert.Equal(t, map[string]string{v1alpha1.CallerAnnotation: "naive"}, tried.Annotations, "a dry run has no slot")
	allowed, refusal := w.bind(binding("p", "a"))
	require.Nil(t, refusal)
	assert.Equal(t, map[string]string{
		v1alpha1.CallerAnnotation:                  "naive",
		v1alpha1.MatchedReservationAnnotation:      "ns/rsv/0",
		v1alpha1.GodelMatchedReservationAnnotation: "ns/rsv-placeholder",
	}, allowed.Annotations)

	b := binding("p", "a")
	b.Annotations = map[string]string{"other": "kept", v1alpha1.MatchedReservationAnnotation: "ns/forged/0"}
	allowed, refusal = w.bind(b)
	require.Nil(t, refusal, "once more")
	assert.Equal(t, "ns/rsv/0", allowed.Annotations[v1alpha1.MatchedReservationAnnotation])
	assert.Equal(t, "kept", allowed.Annotations["other"])
}

// Nobody may say of a binding that it uses a slot but the ledger.
func TestForgedMatchIsTakenAway(t *testing.T) {
	w := newWorld(t)
	w.add(pod("p", "3"))
	b := binding("p", "a")
	b.Annotations = map[string]string{v1alpha1.MatchedReservationAnnotation: "ns/forged/0", v1alpha1.CallerAnnotation: "another"}
	allowed, refusal := w.bind(b)
	require.Nil(t, refusal)
	assert.Empty(t, allowed.Annotations[v1alpha1.MatchedReservationAnnotation])
	assert.Equal(t, "naive", allowed.Annotations[v1alpha1.CallerAnnotation])
}

func TestTooManyPending(t *testing.T) {
	w := newWorldWith(t, arbiter.Options{MaxPending: 1})
	w.add(pod("p", "1"))
	w.add(pod("q", "1"))
	_, refusal := w.bind(binding("p", "a"))
	require.Nil(t, refusal)
	_, refusal = w.bind(binding("q", "a"))
	require.NotNil(t, refusal)
	assert.EqualValues(t, http.StatusTooManyRequests, refusal.Code)
	_, refusal = w.bind(binding("p", "a"))
	require.Nil(t, refusal, "one that is known")
}

// What keeps the server from deciding is an error, so that the webhook's failurePolicy counts.
func TestAPIServerAway(t *testing.T) {
	w := newWorld(t)
	w.fail(errors.New("connection refused"))
	body := encode(t, review(t, "p", "pods", "binding", binding("p", "a")))
	code, answer := w.post(body)
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, answer, "connection refused")

	w.fail(nil)
	w.put(pod("p", "1"))
	w.undecided = "another server decides"
	code, answer = w.post(body)
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, answer, "another server decides")
	assert.Equal(t, "none", w.state("p"))
}

func TestOtherRequestsAreSkipped(t *testing.T) {
	w := newWorld(t)
	for name, r := range map[string]*admissionv1.AdmissionReview{
		"eviction": review(t, "p", "pods", "eviction", binding("p", "a")),
		"node":     review(t, "p", "nodes", "", binding("p", "a")),
		"update":   review(t, "p", "pods", "", pod("p", "1"), func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Update }),
	} {
		response := w.ask(r)
		assert.True(t, response.Allowed, name)
		assert.NotEmpty(t, response.Warnings, name)
	}
	response := w.ask(review(t, "p", "pods", "", pod("p", "100")))
	assert.True(t, response.Allowed, "a pod without a node")
	assert.Empty(t, response.Warnings)
}
