package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// A client of kube-globalreserve knows two fields of the answer, and takes any
// status but 200 for a failure. The case of letters is its own.
func TestClientOfKubeGlobalReserve(t *testing.T) {
	type result struct {
		FailedPods []string
		Error      string
	}
	request := func(pod *v1.Pod) any {
		return map[string]any{"Pods": []*v1.Pod{pod}, "nodes": []string{"node-1"}, "schedulerName": "theirs"}
	}
	f := newFixture(t, Limits{})
	var granted, refused, back, again result
	f.post("/reserve", request(aPod("a", "3", "1Gi")), &granted)
	assert.Equal(t, result{FailedPods: []string{}}, granted)
	f.post("/reserve", request(aPod("b", "2", "1Gi")), &refused)
	assert.Equal(t, []string{"b"}, refused.FailedPods)
	assert.Contains(t, refused.Error, "too little cpu")
	f.post("/unreserve", request(aPod("a", "3", "1Gi")), &back)
	assert.Equal(t, result{FailedPods: []string{}}, back)
	f.post("/reserve", request(aPod("b", "2", "1Gi")), &again)
	assert.Empty(t, again.Error)
}

func TestReserveAnswer(t *testing.T) {
	f := newFixture(t, Limits{})
	f.bind(aPod("old", "3", "1Gi"), "node-1")
	before := f.ledger.Revision()
	refused := f.reserve(body{
		SchedulerName: testScheduler, Nodes: []string{"node-1", "node-2"},
		Pods: []*v1.Pod{aPod("a", "2", "1Gi"), aPod("b", "2", "1Gi")},
	})
	assert.Equal(t, []string{"a"}, refused.FailedPods)
	assert.Contains(t, refused.Error, "nothing was reserved, 1 of 2 pods were refused")
	assert.Equal(t, before, refused.Revision)
	assert.Zero(t, refused.ExpiresAt)
	require.Len(t, refused.Rejections, 1)
	r := refused.Rejections[0]
	assert.Contains(t, r.Message, `node "node-1" has too little cpu`)
	r.Message = ""
	assert.Equal(t, reserver.Rejection{
		Namespace: "team-a", Pod: "a", UID: "uid-a", Node: "node-1",
		Reason: "InsufficientResource", Resource: "cpu", Requested: 2000, Free: 1000,
		Holders: []reserver.Holder{{
			Namespace: "team-a", Pod: "old", UID: "uid-old", Scheduler: testScheduler, State: "Bound",
			Amount: 3000,
		}},
	}, r)

	begun := time.Now()
	granted := f.reserve(gangOf("node-1", aPod("a", "1", "1Gi")))
	assert.Empty(t, granted.Error)
	assert.Equal(t, before+1, granted.Revision)
	assertExpires(t, granted.ExpiresAt, begun)
	assert.Equal(t, 1, f.Counted(t, "decisions_total", "reserve", testScheduler, "granted"))
	assert.Equal(t, 1, f.Counted(t, "decisions_total", "reserve", testScheduler, "refused"))
	assert.Equal(t, 1, f.Counted(t, "conflicts_total", testScheduler, "cpu"))
	assert.Equal(t, 2, f.Counted(t, "requests_total", "reserve", "200"))
}

// Capacity is kept for pods with ResourceClaims, and no device: the answer says so.
func TestDRADevicesAreNotKept(t *testing.T) {
	f := newFixture(t, Limits{})
	pod := aPod("a", "1", "1Gi")
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu"}}
	ask := body{SchedulerName: testScheduler, Nodes: []string{"node-1"}, Pods: []*v1.Pod{pod}}
	var tried reserver.WhatIfAnswer
	f.post("/v1/whatif", ask, &tried)
	assert.Equal(t, []string{devicesNotKept}, tried.Warnings)
	assert.Equal(t, []string{devicesNotKept}, f.reserve(ask).Warnings)
	ask.Pods[0] = aPod("b", "1", "1Gi")
	assert.Empty(t, f.reserve(ask).Warnings)
}

// A refused pod keeps its place among those the ledger refuses.
func TestRefusalsComeInOrder(t *testing.T) {
	f := newFixture(t, Limits{})
	gone := aPod("b", "1", "1Gi")
	gone.Status.Phase = v1.PodFailed
	f.Bring(gone)
	answer := f.reserve(body{
		SchedulerName: testScheduler, Mode: "Partial",
		Pods:  []*v1.Pod{aPod("a", "9", "1Gi"), aPod("b", "1", "1Gi"), aPod("c", "1", "1Gi"), aPod("d", "1", "9Gi")},
		Nodes: []string{"node-1", "node-1", "node-1", "node-1"},
	})
	assert.Equal(t, []string{"a", "b", "d"}, answer.FailedPods)
	assert.Empty(t, answer.Error)
	reasons := make([]string, len(answer.Rejections))
	for i, r := range answer.Rejections {
		reasons[i] = r.Pod + " " + r.Reason + " " + r.Resource
	}
	assert.Equal(t, []string{"a InsufficientResource cpu", "b PodGone ", "d InsufficientResource memory"}, reasons)
}

func TestMinRevision(t *testing.T) {
	inMemory(t, func(t *testing.T, d *fixture) {
		request := gangOf("node-9", aPod("a", "1", "1Gi"))
		request.MinRevision = d.ledger.Revision() + 1
		answers := make(chan reserver.Answer)
		go func() { answers <- d.reserve(request) }()
		synctest.Wait()
		d.AddNode("node-9", "4", "8Gi") // what the request waits for
		assert.Empty(t, (<-answers).Error)

		request.MinRevision = d.ledger.Revision() + 1
		for _, path := range []string{"/reserve", "/v1/whatif"} {
			start := time.Now()
			code, late := d.ask(path, request)
			assert.Equal(t, http.StatusOK, code)
			assert.Contains(t, late.Error, "MinRevision is")
			assert.Empty(t, late.Rejections)
			assert.Equal(t, []string{"a"}, late.FailedPods)
			assert.Equal(t, 5*time.Second, time.Since(start))
		}
	})
}

func TestLogLine(t *testing.T) {
	f := newFixture(t, Limits{})
	f.Logs.Reset()
	request := body{SchedulerName: testScheduler, RequestID: "job-1"}
	for i := range 5 {
		request.Pods = append(request.Pods, aPod(fmt.Sprint("p", i), "500m", "1Gi"))
		request.Nodes = append(request.Nodes, "node-1")
	}
	f.reserve(request)
	entries := f.Logs.AllEntries()
	require.Len(t, entries, 1)
	e := entries[0]
	assert.Equal(t, logrus.InfoLevel, e.Level)
	assert.Equal(t, "reserve granted", e.Message)
	revision := e.Data["revision"]
	delete(e.Data, "revision")
	assert.NotZero(t, revision)
	assert.Equal(t, logrus.Fields{
		"verb": "reserve", "scheduler": testScheduler, "requestID": "job-1", "result": "granted", "pods": 5, "refused": 0,
		"placements": "team-a/p0->node-1, team-a/p1->node-1, team-a/p2->node-1 and 2 more",
		"ttl":        "1m0s",
	}, e.Data)
}

// Nobody who looks at FailedPods alone takes a server that decides nothing for one that has granted everything.
func TestNotReady(t *testing.T) {
	for _, path := range []string{"/reserve", "/unreserve"} {
		for _, noKind := range []bool{false, true} {
			durable(t, func(t *testing.T, d *fixture) {
				d.NoKind, d.notReady = noKind, "the server has not read all nodes yet"
				request := gangOf("node-1 node-1", aPod("a", "1", "1Gi"), aPod("b", "1", "1Gi"))
				request.RequestID = "1"
				w := d.serve(http.MethodPost, path, request)
				assert.Equal(t, http.StatusServiceUnavailable, w.Code)
				assert.Equal(t, "1", w.Header().Get("Retry-After"))
				var answer reserver.Answer
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
				assert.Equal(t, []string{"a", "b"}, answer.FailedPods)
				assert.Equal(t, d.notReady, answer.Error)
				assert.Equal(t, path == "/reserve" && !noKind, answer.Durable)
				assert.Empty(t, d.slots())
				assert.Empty(t, d.Store.All())

				d.notReady = ""
				code, answer := d.ask(path, request)
				assert.Equal(t, http.StatusOK, code, "it is not kept")
				assert.Empty(t, answer.Error)
			})
		}
	}
}
