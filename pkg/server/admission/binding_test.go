package admission_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/election"
	"github.com/globalreserve/globalreserve/pkg/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/policy"
)

func TestBindingIsAllowedUnderPreconditions(t *testing.T) {
	for name, given := range map[string]metav1.ObjectMeta{
		"it has none": {}, "with preconditions of its own": {UID: "uid-p", ResourceVersion: "101"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.serve(func(o *arbiter.Options) { o.Term = election.NewOwnTerm(7) })
			w.add(pod("p", "3"))
			b := binding("p", "a")
			b.UID, b.ResourceVersion = given.UID, given.ResourceVersion
			allowed, refusal := w.bind(b)
			require.Nil(t, refusal)
			assert.EqualValues(t, "uid-p", allowed.UID)
			assert.Equal(t, "101", allowed.ResourceVersion)
			assert.Equal(t, map[string]string{v1alpha1.CallerAnnotation: "naive", v1alpha1.TermAnnotation: "7"},
				allowed.Annotations)
			assert.Equal(t, "Binding on a", w.state("p"))
			assert.Equal(t, 1, w.count("granted"))
		})
	}
}

// A pod that is sent to a full node goes where capacity is kept for it alone, and is told so. The API server and the
// ledger know it there.
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
	cases := map[string]struct {
		change func(*v1.Pod)
		given  func(*v1.Binding)
		code   int32
		want   string
	}{
		"no capacity": {
			change: func(p *v1.Pod) { *p = *pod("p", "5") }, code: http.StatusConflict,
			want: `node "a" has too little cpu for pod ns/p: requested 5 CPU, 4 free`,
		},
		"bound": {
			change: func(p *v1.Pod) { p.Spec.NodeName = "b" }, code: http.StatusConflict,
			want: `is bound to node "b" already`,
		},
		"being deleted": {
			change: func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, code: http.StatusConflict,
			want: "is being deleted or has finished",
		},
		"finished": {
			change: func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, code: http.StatusConflict,
			want: "is being deleted or has finished",
		},
		"uncountable": {change: negative, code: http.StatusUnprocessableEntity, want: "must not be negative"},
		"another UID": {
			given: func(b *v1.Binding) { b.UID = "old" }, code: http.StatusConflict,
			want: "has another UID than old",
		},
		"changed": {
			given: func(b *v1.Binding) { b.ResourceVersion = "7" }, code: http.StatusConflict,
			want: "has another resourceVersion by now",
		},
		"no such pod": {
			given: func(b *v1.Binding) { b.Name = "x" }, code: http.StatusNotFound,
			want: "pod ns/x does not exist",
		},
		"not a node": {
			given: func(b *v1.Binding) { b.Target.Kind = "Pod" }, code: http.StatusBadRequest,
			want: `target.kind is "Pod"`,
		},
		"no target": {
			given: func(b *v1.Binding) { b.Target.Name = "" }, code: http.StatusBadRequest,
			want: "target.name is missing",
		},
		"name of a path": {
			given: func(b *v1.Binding) { b.Name = "../p" }, code: http.StatusBadRequest,
			want: "is not the name of a pod",
		},
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

// Nobody may say of a binding that it uses a slot but the ledger.
func TestForgedMatchIsTakenAway(t *testing.T) {
	w := newWorld(t)
	w.add(pod("p", "3"))
	b := binding("p", "a")
	b.Annotations = map[string]string{
		v1alpha1.MatchedReservationAnnotation: "ns/forged/0",
		v1alpha1.CallerAnnotation:             "another",
	}
	allowed, refusal := w.bind(b)
	require.Nil(t, refusal)
	assert.Empty(t, allowed.Annotations[v1alpha1.MatchedReservationAnnotation])
	assert.Equal(t, "naive", allowed.Annotations[v1alpha1.CallerAnnotation])
}

func TestTooManyPending(t *testing.T) {
	w := newWorld(t)
	w.serve(func(o *arbiter.Options) { o.MaxPending = 1 })
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

const gpu = "nvidia.com/gpu"

// newDeviceWorld has a P100 and two K80 on node a, in a cluster in which each claim asks for one GPU: one whose name
// begins with k80 for a K80.
func newDeviceWorld(t *testing.T) *world {
	w := newWorld(t)
	w.Question.Devices = func(pod *cluster.Pod) *ledger.DeviceRequest {
		if pod.Devices == nil {
			return nil
		}
		r := &ledger.DeviceRequest{}
		for _, name := range pod.Devices.Claims {
			spec := &v1alpha1.ExtendedResourceClaimSpec{ResourceName: gpu, Count: 1}
			if strings.HasPrefix(name, "k80") {
				spec.Selector = &v1alpha1.DeviceSelector{MatchProperties: map[string]string{"model": "K80"}}
			}
			compiled, err := devices.Compile(nil, spec)
			require.NoError(t, err)
			r.Claims = append(r.Claims, ledger.DeviceClaimRef{Namespace: "ns", Name: name, UID: "1"})
			r.Requests = append(r.Requests, compiled)
		}
		return r
	}
	var list []devices.Device
	for id, model := range map[string]string{"gpu-0": "P100", "gpu-1": "K80", "gpu-2": "K80"} {
		list = append(list, devices.Device{Name: id, Resource: gpu, ID: id, Properties: map[string]string{"model": model}})
	}
	w.Ledger.ObserveDevices("a", list)
	return w
}

func claiming(p *v1.Pod, claims string) *v1.Pod {
	p.Annotations = map[string]string{v1alpha1.ExtendedResourceClaimsAnnotation: claims}
	return p
}

// A pod that names other claims after its binding was allowed gets other devices with
// the next. The first binding cannot be carried out: the pod has changed.
func TestClaimsThatChangeBetweenBindings(t *testing.T) {
	cases := map[string]struct{ before, after, first, second string }{
		"another device":  {"k80-a", "any", "gpu-1", "gpu-0"},
		"more devices":    {"k80-a", "k80-a,any", "gpu-1", "gpu-1,gpu-0"},
		"fewer devices":   {"k80-a,any", "any", "gpu-1,gpu-0", "gpu-0"},
		"no claims":       {"k80-a", "", "gpu-1", ""},
		"claims at last":  {"", "k80-a", "", "gpu-1"},
		"another order":   {"k80-a,any", "any,k80-a", "gpu-1,gpu-0", "gpu-0,gpu-1"},
		"the same device": {"k80-a", "k80-b", "gpu-1", "gpu-1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newDeviceWorld(t)
			for _, step := range []struct{ claims, given string }{{tc.before, tc.first}, {tc.after, tc.second}} {
				w.add(claiming(pod("p", "1"), step.claims))
				allowed, refused := w.bind(binding("p", "a"))
				require.Nil(t, refused)
				assert.Equal(t, step.given, allowed.Annotations[v1alpha1.ExtendedResourcesAnnotation])
			}
			var owned []string
			node, _, _ := w.Ledger.Node("a")
			for _, device := range node.Devices {
				if !device.Free {
					owned = append(owned, device.ID)
				}
			}
			assert.ElementsMatch(t, strings.FieldsFunc(tc.second, func(r rune) bool { return r == ',' }), owned)
		})
	}
}
