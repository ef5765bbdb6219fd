package admission_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/policy"
)

// Only the webhook records in a Binding what a pod was given, whatever it came with.
func TestBindingIsAllowedUnderPreconditions(t *testing.T) {
	forged := map[string]string{v1alpha1.MatchedReservationAnnotation: "ns/forged/0", v1alpha1.CallerAnnotation: "another"}
	for name, given := range map[string]metav1.ObjectMeta{
		"it has none": {}, "with preconditions of its own": {UID: "uid-p", ResourceVersion: "101"},
		"with records": {Annotations: forged},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.serve(func(o *decide.Options) { o.Term = election.NewOwnTerm(7) })
			w.add(pod("p", "3"))
			b := binding("p", "a")
			b.UID, b.ResourceVersion, b.Annotations = given.UID, given.ResourceVersion, given.Annotations
			allowed, refusal := w.bind(b)
			require.Nil(t, refusal)
			assert.EqualValues(t, "uid-p", allowed.UID)
			assert.Equal(t, "101", allowed.ResourceVersion)
			assert.Empty(t, allowed.Annotations[v1alpha1.MatchedReservationAnnotation])
			delete(allowed.Annotations, v1alpha1.MatchedReservationAnnotation)
			assert.Equal(t, map[string]string{v1alpha1.CallerAnnotation: "naive", v1alpha1.TermAnnotation: "7"},
				allowed.Annotations)
			assert.Equal(t, "Binding on a", w.state("p"))
			assert.Equal(t, 1, w.count("granted"))
		})
	}
}

// A pod that is sent to a full node goes where capacity is kept for it alone, and the Binding says so. The API server
// and the ledger know it there.
func TestBindingIsRedirected(t *testing.T) {
	w := newWorld(t)
	w.add(pod("p", "3"))
	full := pod("full", "4")
	full.Spec.NodeName = "a"
	w.add(full)
	p := w.info("p")
	require.Empty(t, w.Ledger.Reserve(ledger.Plan{Slots: []ledger.Slot{{
		Ref: slot, Node: "b", Request: p.Request, Policy: ledger.Once, Pod: p.Ref,
	}}}, time0).Rejections)
	b := binding("p", "a")
	b.Annotations = map[string]string{v1alpha1.RedirectedFromAnnotation: "made up"}
	allowed, refusal := w.bind(b)
	require.Nil(t, refusal)
	assert.Equal(t, "b", allowed.Target.Name)
	assert.Equal(t, "a", allowed.Annotations[v1alpha1.RedirectedFromAnnotation])
	assert.Equal(t, slot.String(), allowed.Annotations[v1alpha1.MatchedReservationAnnotation])
	assert.Equal(t, "Binding on b", w.state("p"))
	assert.Equal(t, 1, w.Counted(t, "redirected_bindings_total", "naive"))
	// The same once more: from the API server, after another webhook has changed it, and from the scheduler.
	allowed.Annotations["other"] = "webhook"
	for _, b := range []*v1.Binding{allowed, binding("p", "a")} {
		again, refusal := w.bind(b)
		require.Nil(t, refusal)
		assert.Equal(t, "b", again.Target.Name)
		assert.Equal(t, "a", again.Annotations[v1alpha1.RedirectedFromAnnotation])
	}
	assert.Equal(t, 1, w.Counted(t, "redirected_bindings_total", "naive"))
	assert.Equal(t, "Binding on b", w.state("p"))
}

func TestBindingIsRefused(t *testing.T) {
	const conflict, bad, gone = http.StatusConflict, http.StatusBadRequest, "is being deleted or has finished"
	cases := map[string]struct {
		change func(*v1.Pod)
		given  func(*v1.Binding)
		code   int32
		want   string
	}{
		"no capacity": {
			func(p *v1.Pod) { *p = *pod("p", "5") }, nil, conflict,
			`node "a" has too little cpu for pod ns/p: requested 5 CPU, 4 free`,
		},
		"bound":          {func(p *v1.Pod) { p.Spec.NodeName = "b" }, nil, conflict, `is bound to node "b" already`},
		"being deleted":  {func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, nil, conflict, gone},
		"finished":       {func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, nil, conflict, gone},
		"uncountable":    {negative, nil, http.StatusUnprocessableEntity, "must not be negative"},
		"another UID":    {nil, func(b *v1.Binding) { b.UID = "old" }, conflict, "has another UID than old"},
		"changed":        {nil, func(b *v1.Binding) { b.ResourceVersion = "7" }, conflict, "another resourceVersion by now"},
		"no such pod":    {nil, func(b *v1.Binding) { b.Name = "x" }, http.StatusNotFound, "pod ns/x does not exist"},
		"not a node":     {nil, func(b *v1.Binding) { b.Target.Kind = "Pod" }, bad, `target.kind is "Pod"`},
		"no target":      {nil, func(b *v1.Binding) { b.Target.Name = "" }, bad, "target.name is missing"},
		"name of a path": {nil, func(b *v1.Binding) { b.Name = "../p" }, bad, "is not the name of a pod"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := pod("p", "3")
			if tc.change != nil {
				tc.change(p)
			}
			w.add(p)
			b := binding("p", "a")
			if tc.given != nil {
				tc.given(b)
			}
			before := w.Ledger.Revision()
			_, refusal := w.bind(b)
			require.NotNil(t, refusal)
			assert.Equal(t, tc.code, refusal.Code, refusal.Message)
			assert.Contains(t, refusal.Message, tc.want)
			assert.Equal(t, metav1.StatusFailure, refusal.Status)
			assert.Equal(t, before, w.Ledger.Revision())
			assert.Equal(t, 1, w.count("refused"))
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
	}, time.Minute, 10*time.Millisecond)
	info := w.info("p")
	placement := info.Placement("a")
	_, rejection := w.Ledger.StartBind(&placement, time0)
	require.Nil(t, rejection)
	_, refused := w.bind(binding("p", "a"))
	require.NotNil(t, refused, "somebody else sends it")
	assert.Contains(t, refused.Message, `is being bound to node "a" by somebody else`)
	require.Eventually(t, func() bool {
		allowed, refusal := w.bind(binding("p", "a"), byUs)
		return refusal == nil && assert.Equal(t, binding("p", "a"), allowed, "the binder looks after it itself")
	}, time.Minute, 10*time.Millisecond)
	_, refusal := w.bind(binding("p", "b"), byUs)
	require.NotNil(t, refusal, "on another node")
	w.Policy.Set(gatestest.Limited(p.Spec.SchedulerName))
	_, refusal = w.bind(binding("p", "a"), byUs)
	require.Nil(t, refusal, "the gates were asked before")
	_, refusal = w.bind(binding("p", "a"))
	require.NotNil(t, refusal)
	assert.EqualValues(t, 403, refusal.Code, refusal.Message)
	w.Policy.Set(policy.Default())

	// Sent by a server that has been restarted since, which knows nothing of it.
	w.Ledger.BindFailed(info.Ref, "a")
	allowed, refusal := w.bind(binding("p", "a"), byUs)
	require.Nil(t, refusal)
	assert.Equal(t, p.ResourceVersion, allowed.ResourceVersion)

	// What it sends goes nowhere else than it says.
	w.add(pod("q", "3"))
	require.Empty(t, w.Ledger.Reserve(ledger.Plan{Slots: []ledger.Slot{{
		Ref: slot, Node: "b", Request: w.info("q").Request, Policy: ledger.Once, Pod: w.info("q").Ref,
	}}}, time0).Rejections)
	_, refusal = w.bind(binding("q", "a"), byUs)
	require.NotNil(t, refusal)
	assert.Contains(t, refusal.Message, "too little cpu")
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
	assert.Equal(t, "none", w.state("p"))
	allowed, refusal := w.bind(binding("p", "a"))
	require.Nil(t, refusal)
	assert.Equal(t, tried.Annotations, allowed.Annotations, "a dry run tells what would be granted")
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

func TestTooManyPending(t *testing.T) {
	w := newWorld(t)
	w.serve(func(o *decide.Options) { o.MaxAllowances = 1 })
	w.add(pod("p", "1"))
	w.add(pod("q", "1"))
	_, refusal := w.bind(binding("p", "a"))
	require.Nil(t, refusal)
	_, refusal = w.bind(binding("q", "a"))
	require.NotNil(t, refusal)
	assert.EqualValues(t, http.StatusTooManyRequests, refusal.Code)
	assert.EqualValues(t, 1, refusal.Details.RetryAfterSeconds)
	_, refusal = w.bind(binding("p", "a"))
	require.Nil(t, refusal, "one that is known")
}

// What keeps the server from deciding is an error, so that the webhook's failurePolicy counts.
func TestAPIServerAway(t *testing.T) {
	w := newWorld(t)
	w.API.Answer(0, errors.New("connection refused"))
	body := encode(t, review(t, "p", "pods", "binding", binding("p", "a")))
	code, answer := w.post(body)
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, answer, "connection refused")

	w.API.Answer(0, nil)
	w.add(pod("p", "1"))
	w.Undecided = func() string { return "another server decides" }
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
		"update": review(t, "p", "pods", "", pod("p", "1"),
			func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Update }),
	} {
		response := w.ask(r)
		assert.True(t, response.Allowed, name)
		assert.NotEmpty(t, response.Warnings, name)
	}
	response := w.ask(review(t, "p", "pods", "", pod("p", "100")))
	assert.True(t, response.Allowed, "a pod without a node")
	assert.Empty(t, response.Warnings)
}

// A pod that names other claims after its binding was allowed gets other devices with
// the next. The first binding cannot be carried out: the pod has changed.
func TestClaimsThatChangeBetweenBindings(t *testing.T) {
	for name, given := range map[string][2]string{ // which claims it names, and is given devices for
		"more": {"c", "c,d"}, "fewer": {"c,d", "d"}, "none": {"c", ""}, "some at last": {"", "c"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Question.Devices = placementtest.Claims
			placementtest.GPUs(w.Ledger, "a", "gpu-0", "gpu-1")
			for _, claims := range given {
				p := pod("p", "1")
				p.Annotations = map[string]string{v1alpha1.ExtendedResourceClaimsAnnotation: claims}
				w.add(p)
				allowed, refused := w.bind(binding("p", "a"))
				require.Nil(t, refused)
				devices := map[string]string{"": "", "c": "gpu-0", "d": "gpu-0", "c,d": "gpu-0,gpu-1"}[claims]
				assert.Equal(t, devices, allowed.Annotations[v1alpha1.ExtendedResourcesAnnotation])
			}
		})
	}
}

// A Binding that is refused again and again is in the log the first time, and the tenth; the answer says each time why.
func TestRepeatsInTheLog(t *testing.T) {
	w := newWorld(t)
	w.add(pod("p", "5"))
	for range 12 {
		_, refusal := w.bind(binding("p", "a"))
		require.NotNil(t, refusal)
		assert.Contains(t, refusal.Message, `node "a" has too little cpu for pod ns/p: requested 5 CPU, 4 free`)
	}
	var times []any
	for _, entry := range w.Logs.AllEntries() {
		if entry.Level == logrus.InfoLevel && entry.Message == "admission" {
			times = append(times, entry.Data["times"])
		}
	}
	assert.Equal(t, []any{nil, 10}, times)
	assert.Equal(t, 12, w.count("refused"), "each is a decision")
	assert.Equal(t, 11, w.Counted(t, "repeated_bindings_total", "InsufficientResource", "naive"))
}
