package rest

import (
	"errors"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

func TestPodsTheInformerKnows(t *testing.T) {
	now := metav1.NewTime(startTime)
	tests := map[string]struct {
		informer func(*v1.Pod)
		request  func(*v1.Pod)
		reason   string // empty: granted
		cpu      int64  // of the allocation
	}{
		"same":                              {cpu: 1000},
		"without UID, takes the informer's": {request: func(p *v1.Pod) { p.UID = "" }, cpu: 1000},
		"by name only":                      {request: func(p *v1.Pod) { p.UID, p.Spec = "", v1.PodSpec{} }, cpu: 1000},
		"cut-down copy counts in full": {
			request: func(p *v1.Pod) { p.Spec.Containers[0].Resources = v1.ResourceRequirements{} }, cpu: 1000,
		},
		"recreated: the request's UID wins": {
			request: func(p *v1.Pod) { *p = *aPod("a", "2", "1Gi"); p.UID = "new" }, cpu: 2000,
		},
		"finished":        {informer: func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }, reason: "PodGone"},
		"deleting":        {informer: func(p *v1.Pod) { p.DeletionTimestamp = &now }, reason: "PodGone"},
		"bound elsewhere": {informer: func(p *v1.Pod) { p.Spec.NodeName = "node-2" }, reason: "AllocatedElsewhere"},
		"bound there":     {informer: func(p *v1.Pod) { p.Spec.NodeName = "node-1" }, cpu: 1000},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, Limits{})
			known, asked := aPod("a", "1", "1Gi"), aPod("a", "1", "1Gi")
			if tc.informer != nil {
				tc.informer(known)
			}
			if tc.request != nil {
				tc.request(asked)
			}
			if known.Spec.NodeName != "" {
				f.bind(known, known.Spec.NodeName)
			}
			f.Bring(known)
			other := aPod("other", "1", "1Gi")
			answer := f.reserve(gangOf("node-3 node-1", other, asked))
			if tc.reason != "" {
				require.Len(t, answer.Rejections, 1)
				assert.Equal(t, tc.reason, answer.Rejections[0].Reason)
				assert.Equal(t, []string{"a"}, answer.FailedPods)
				assert.NotEmpty(t, answer.Error)
				assert.Equal(t, ledger.NoAllocation.String(), f.state(other), "all or nothing")
				return
			}
			assert.Empty(t, answer.Error)
			if asked.UID == "" {
				asked.UID = known.UID
			}
			assert.Equal(t, tc.cpu, f.countsFor(ledger.PodRef{Namespace: "team-a", Name: "a", UID: asked.UID}).
				Value(resources.CPU))
		})
	}
}

// What the API server does not have, or cannot be asked about, is named, and may be asked for again.
func TestPodsThatAreNotThere(t *testing.T) {
	x, negative := nameOnly(aPod("x", "1", "1Gi")), aPod("x", "-1", "1Gi") // whose request cannot be counted
	withUID := func(uid types.UID) *v1.Pod {
		pod := nameOnly(x)
		pod.UID = uid
		return pod
	}
	type testCase struct {
		prepare         func(d *fixture)
		pod             *v1.Pod
		reason, message string
	}
	each(t, map[string]testCase{
		"no such pod": {func(*fixture) {}, x, "PodUnknown", "create it first"},
		"no such UID": {func(d *fixture) { d.API.Put(aPod("x", "1", "1Gi")) }, withUID("other"), "PodGone", "another UID"},
		"not to be read": {
			func(d *fixture) { d.API.Answer(0, errors.New("no route")) }, x, "PodUnknown", "try again: no route",
		},
		"read too slowly": {func(d *fixture) { d.API.Answer(time.Minute, nil) }, x, "PodUnknown", "try again"},
		"not countable":   {func(d *fixture) { d.API.Put(negative) }, x, "PodInvalid", "spec.containers[0]"},
		"not countable, and brought by the watch": {
			func(d *fixture) { d.Bring(negative) }, withUID("uid-x"), "PodInvalid", "spec.containers[0]",
		},
	}, func(t *testing.T, d *fixture, tc testCase) {
		d.NoKind = true
		tc.prepare(d)
		request := gangOf("node-1 node-1", aPod("a", "1", "1Gi"), tc.pod)
		request.RequestID, request.Mode = "1", "Partial"
		answer := d.reserve(request)
		assert.Equal(t, []string{"x"}, answer.FailedPods)
		require.Len(t, answer.Rejections, 1)
		assert.Equal(t, tc.reason, answer.Rejections[0].Reason)
		assert.Contains(t, answer.Rejections[0].Message, tc.message)
		if tc.reason != "PodUnknown" {
			return
		}
		d.API.Answer(0, nil)
		d.API.Put(aPod("x", "1", "1Gi"))
		assert.Empty(t, d.reserve(request).FailedPods, "the refusal is not kept for repeats")
	})
}

// Who asks about pods that have to be read live waits for the API server, and nobody else does.
func TestWhatIfKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Limits{})
		f.API.Answer(time.Hour, nil)
		var asks sync.WaitGroup
		for range runtime.GOMAXPROCS(0) + 2 {
			asks.Go(func() { f.serve(http.MethodPost, "/v1/whatif", `{"Pods":[{"metadata":{"name":"made-up"}}]}`) })
		}
		synctest.Wait()
		began := time.Now()
		assert.Equal(t, http.StatusOK, f.serve(http.MethodGet, "/v1/nodes", "").Code)
		assert.Zero(t, time.Since(began))
		asks.Wait()
	})
}
