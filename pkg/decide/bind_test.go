package decide

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/kube/apiwrite"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/bubble"
	"github.com/globalreserve/globalreserve/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var (
	errInvalid   = apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Binding").GroupKind(), "p", nil)
	errForbidden = apierrors.NewForbidden(bindings, "p", errors.New("not allowed"))
	errInternal  = apierrors.NewInternalError(errors.New("etcd"))
	errTooMany   = apierrors.NewTooManyRequests("slow down", 1)
	errStorage   = apierrors.NewConflict(bindings, "p", errors.New("context deadline exceeded"))
	errNoRoute   = apierrors.NewGenericServerResponse(404, "POST", podKind, "p", "page not found", 0, true)
)

// script plays replies in order, then honest ones.
func script(replies ...reply) func(int) reply {
	return func(n int) reply {
		if n < len(replies) {
			return replies[n]
		}
		return honest
	}
}

// fail makes the first n GETs fail.
func fail(n int, err error) func(int) error {
	return func(k int) error {
		if k < n {
			return err
		}
		return nil
	}
}

func always(err error) func(int) reply { return func(int) reply { return reply{err: err} } }

// many stands for a number of POSTs that depends on the length of random pauses.
const many = -1

// TestBind binds pod p, which the watch has brought, to node a.
func TestBind(t *testing.T) {
	now := metav1.Now()
	type testCase struct {
		setup   func(w *world, p *v1.Pod)
		bind    func(n int) reply
		get     func(n int) error
		outcome gates.Outcome
		posts   int
		gets    int
		within  time.Duration // 0: at once
	}
	bubble.Each(t, map[string]testCase{
		"success":            {outcome: gates.Bound, posts: 1},
		"the answer is lost": {bind: script(lost), outcome: gates.Bound, posts: 1, gets: 1},
		"a 409 for a storage timeout after the commit": {
			bind:    script(reply{commit: before, err: errStorage}),
			outcome: gates.Bound, posts: 1, gets: 1,
		},
		"the request is lost": {bind: script(unsent), outcome: gates.Bound, posts: 2, gets: 1, within: time.Second},
		"a 409 for a storage timeout without a commit": {
			bind:    script(reply{err: errStorage}),
			outcome: gates.Bound, posts: 2, gets: 1, within: time.Second,
		},
		"the answer is lost, and the first read fails": {
			bind: script(lost), get: fail(1, errReset),
			outcome: gates.Bound, posts: 2, gets: 2, within: time.Second,
		},
		"carried out late": {
			bind:    script(late(10*time.Millisecond), reply{err: apierrors.NewServerTimeout(podKind, "update", 2)}),
			outcome: gates.Bound, posts: 2, gets: 2, within: time.Second,
		},
		"an answer that hangs": {
			bind:    script(reply{commit: before, hang: true}),
			outcome: gates.Bound, posts: 1, gets: 1, within: 3 * time.Second,
		},
		"both hang once": {
			bind: script(reply{hang: true}), get: fail(1, context.DeadlineExceeded),
			outcome: gates.Bound, posts: 2, gets: 1, within: 6 * time.Second,
		},
		"403":            {bind: always(errForbidden), outcome: gates.Failed, posts: 1},
		"404":            {setup: func(w *world, p *v1.Pod) { w.api.remove(p) }, outcome: gates.PodGone, posts: 1},
		"404 of a proxy": {bind: always(errNoRoute), outcome: gates.Failed, posts: 1},
		"429 once": {
			bind: script(reply{err: errTooMany}), outcome: gates.Bound, posts: 2, within: 2 * time.Second,
		},
		"429 for ever": {bind: always(errTooMany), outcome: gates.Failed, posts: many, within: bindTimeout},
		"nobody listens, once": {
			bind: script(reply{err: errRefused}), outcome: gates.Bound, posts: 2, within: time.Second,
		},
		"nobody listens for ever": {bind: always(errRefused), outcome: gates.Failed, posts: many, within: bindTimeout},
		"409: bound elsewhere": {
			setup:   func(w *world, p *v1.Pod) { p.Spec.NodeName = "b" },
			outcome: gates.BoundElsewhere, posts: 1, gets: 1,
		},
		"409: bound to our node by somebody else": {
			setup:   func(w *world, p *v1.Pod) { p.Spec.NodeName = "a" },
			outcome: gates.Bound, posts: 1, gets: 1,
		},
		"409: being deleted": {
			setup:   func(w *world, p *v1.Pod) { p.DeletionTimestamp = &now },
			outcome: gates.PodGone, posts: 1, gets: 1,
		},
		"409: gated": {
			setup:   func(w *world, p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "g"}} },
			outcome: gates.Failed, posts: 1, gets: 1,
		},
		"409: another pod of that name": {
			setup:   func(w *world, p *v1.Pod) { p.UID = "new" },
			outcome: gates.UIDMismatch, posts: 1, gets: 1,
		},
		"lost, and gone since": {
			setup:   func(w *world, p *v1.Pod) { w.api.remove(p) },
			bind:    script(unsent),
			outcome: gates.PodGone, posts: 1, gets: 1,
		},
		"lost, and finished since": {
			setup:   func(w *world, p *v1.Pod) { p.Status.Phase = v1.PodFailed },
			bind:    script(unsent),
			outcome: gates.PodGone, posts: 1, gets: 1,
		},
	}, func(t *testing.T, tt testCase) {
		p := newPod("p")
		pod := p.DeepCopy()
		w := newWorld(t, p)
		if tt.setup != nil {
			tt.setup(w, p)
		}
		w.api.bind, w.api.get = tt.bind, tt.get
		start := time.Now()
		err := w.bindPod(pod, "a")
		assert.LessOrEqual(t, time.Since(start), tt.within)
		assertOutcome(t, tt.outcome, err)
		w.end()
		assert.Equal(t, settled(tt.outcome), w.on(ref(pod)))
		if tt.posts == many {
			assert.Greater(t, w.api.posts, 5, "POSTs")
		} else {
			assert.Equal(t, tt.posts, w.api.posts, "POSTs")
		}
		assert.Equal(t, tt.gets, w.api.gets, "GETs")
		assert.Equal(t, map[string]int{string(tt.outcome): 1}, w.outcomes())
	})
}

// settled is what a pod has on node a after a bind whose outcome is known.
func settled(outcome gates.Outcome) string {
	if outcome == gates.Bound {
		return "Bound on a"
	}
	return "none"
}

func assertOutcome(t *testing.T, want gates.Outcome, err error) {
	t.Helper()
	if want == gates.Bound {
		require.NoError(t, err)
		return
	}
	var e *gates.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, want, e.Outcome, "%v", err)
	assert.ErrorIs(t, err, &gates.Error{Outcome: want})
	assert.NotErrorIs(t, err, &gates.Error{Outcome: "another"})
	assert.NotEmpty(t, err.Error())
}

// TestBeforeSending covers what is decided without a POST, and where the pod comes from.
func TestBeforeSending(t *testing.T) {
	brought := func(change func(*v1.Pod)) func(*world, *v1.Pod) {
		return func(w *world, p *v1.Pod) {
			change(p)
			w.bring(p)
		}
	}
	type testCase struct {
		setup   func(w *world, p *v1.Pod)
		outcome gates.Outcome
		posts   int
		gets    int
		reason  ledger.Reason
		waited  time.Duration
	}
	bubble.Each(t, map[string]testCase{
		"the watch is behind": {setup: func(w *world, p *v1.Pod) { w.forget() }, outcome: gates.Bound, posts: 1, gets: 1},
		"a pod of that UID was read under another name": {setup: func(w *world, p *v1.Pod) {
			other := p.DeepCopy()
			other.Name, other.ResourceVersion = "q", "1"
			w.api.put(other)
			w.forget()
			_, err := w.pods.find(w.t.Context(), ref(other), 1)
			require.NoError(w.t, err)
			w.api.gets = 0
		}, outcome: gates.Bound, posts: 1, gets: 1},
		"resized since the watch brought it, and larger than the node": {setup: func(w *world, p *v1.Pod) {
			p.ResourceVersion, p.Spec.Containers[0].Resources.Requests["cpu"] = "2000", resource.MustParse("5")
			w.pods.named(p.UID, 2000)
		}, outcome: gates.Refused, reason: ledger.InsufficientResource, gets: 1, waited: maxLag},
		"a pod that cannot be counted": {setup: func(w *world, p *v1.Pod) {
			w.forget()
			p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("-1")
		}, outcome: gates.Failed, gets: 1},
		"bound to the node already": {setup: brought(func(p *v1.Pod) { p.Spec.NodeName = "a" }), outcome: gates.Bound},
		"bound to another node already": {
			setup: brought(func(p *v1.Pod) { p.Spec.NodeName = "b" }), outcome: gates.BoundElsewhere,
		},
		"being deleted": {setup: brought(func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), outcome: gates.PodGone},
		"finished on that node": {
			setup:   brought(func(p *v1.Pod) { p.Spec.NodeName, p.Status.Phase = "a", v1.PodSucceeded }),
			outcome: gates.PodGone,
		},
		"the ledger knows it is bound there": {
			setup: func(w *world, p *v1.Pod) { w.observeOn(p, "a") }, outcome: gates.Bound,
		},
		"somebody else is binding it": {setup: func(w *world, p *v1.Pod) {
			placement := w.info(p).Placement("a")
			_, rejection := w.ledger.StartBind(&placement, time.Now())
			require.Nil(w.t, rejection)
		}, outcome: gates.InFlight},
		"a reservation on another node": {setup: func(w *world, p *v1.Pod) {
			plan := ledger.NewPlan([]ledger.Placement{w.info(p).Placement("b")}, ledger.AllOrNothing,
				time.Now().Add(time.Minute))
			require.Equal(w.t, 1, w.ledger.Reserve(plan, time.Now()).Granted)
		}, outcome: gates.Refused, reason: ledger.AllocatedElsewhere},
	}, func(t *testing.T, tt testCase) {
		p := newPod("p")
		pod := p.DeepCopy()
		w := newWorld(t, p)
		tt.setup(w, p)
		start := time.Now()
		err := w.bindPod(pod, "a")
		assert.Equal(t, tt.waited, time.Since(start))
		assertOutcome(t, tt.outcome, err)
		assert.Equal(t, tt.posts, w.api.posts, "POSTs")
		assert.Equal(t, tt.gets, w.api.gets, "GETs")
		if tt.posts == 0 {
			assert.Empty(t, w.outcomes(), "nothing was sent")
		}
		if tt.outcome == gates.Refused {
			var e *gates.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, tt.reason, e.Rejection.Reason)
		}
	})
}

func TestBindingSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod("p")
		w := newWorld(t, p)
		var got *v1.Binding
		version := p.ResourceVersion
		w.o.Term = election.NewOwnTerm(7)
		w.api.onBind = func(b *v1.Binding) { got = b }
		info, err := w.Bind(auth.Inside(t.Context()), ref(p), "a")
		require.NoError(t, err)
		assert.Equal(t, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "p", UID: "uid-p", ResourceVersion: version,
				Annotations: map[string]string{v1alpha1.CallerAnnotation: ledger.Trusted, v1alpha1.TermAnnotation: "7"},
			},
			Target: v1.ObjectReference{Kind: "Node", Name: "a"},
		}, got)
		assert.Equal(t, "scheduler", info.Scheduler)
	})
}

func TestClassify(t *testing.T) {
	tests := map[string]struct {
		err  error
		want apiwrite.Fate
	}{
		"success":             {nil, apiwrite.Done},
		"no pod":              {apierrors.NewNotFound(podKind, "p"), apiwrite.Missing},
		"no namespace":        {apierrors.NewNotFound(v1.Resource("namespaces"), "ns"), apiwrite.Refused},
		"404 of a proxy":      {errNoRoute, apiwrite.Refused},
		"403":                 {errForbidden, apiwrite.Refused},
		"422":                 {errInvalid, apiwrite.Refused},
		"400":                 {apierrors.NewBadRequest("no"), apiwrite.Refused},
		"401":                 {apierrors.NewUnauthorized("who"), apiwrite.Refused},
		"409":                 {errStorage, apiwrite.Conflict},
		"429":                 {errTooMany, apiwrite.NotSent},
		"408":                 {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 408}}, apiwrite.Unknown},
		"500":                 {errInternal, apiwrite.Unknown},
		"503":                 {apierrors.NewServiceUnavailable("x"), apiwrite.Unknown},
		"504":                 {apierrors.NewTimeoutError("x", 1), apiwrite.Unknown},
		"status without code": {&apierrors.StatusError{}, apiwrite.Unknown},
		"wrapped":             {fmt.Errorf("x: %w", errForbidden), apiwrite.Refused},
		"dial":                {fmt.Errorf("x: %w", errRefused), apiwrite.NotSent},
		"reset":               {errReset, apiwrite.Unknown},
		"EOF":                 {io.ErrUnexpectedEOF, apiwrite.Unknown},
		"deadline":            {context.DeadlineExceeded, apiwrite.Unknown},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, classify(tt.err)) })
	}
}

// Nothing is said while nothing can be decided, not even of a pod that is bound.
func TestBindWhileUndecided(t *testing.T) {
	bound := newPod("bound")
	bound.Spec.NodeName = "a"
	w := newWorld(t, bound)
	w.undecided.Store(new("the account is incomplete"))
	assertOutcome(t, gates.NotReady, w.bindPod(bound, "a"))
}
