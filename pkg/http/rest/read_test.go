package rest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

func TestNodes(t *testing.T) {
	f := newFixture(t, Limits{})
	f.bind(aPod("a", "5", "1Gi"), "node-2")
	f.reserve(gangOf("node-1", aPod("b", "500m", "2Gi")))
	all := get[reserver.NodesAnswer](f, "/v1/nodes")
	assert.Equal(t, f.ledger.Revision(), all.Revision)
	require.Len(t, all.Nodes, 3)
	assert.Equal(t, reserver.Node{
		Name: "node-1", UID: "uid-node-1", Exists: true,
		Resources: map[string]reserver.NodeAmount{
			"cpu":    {Allocatable: 4000, Reserved: 500, Free: 3500},
			"memory": {Allocatable: 8 * gib, Reserved: 2 * gib, Free: 6 * gib},
			"pods":   {Allocatable: 110, Reserved: 1, Free: 109},
		},
	}, all.Nodes[0])

	names := func(path string) (list []string) {
		answer := get[reserver.NodesAnswer](f, path)
		for _, n := range answer.Nodes {
			list = append(list, n.Name)
		}
		return append(list, answer.Continue)
	}
	assert.Equal(t, []string{"node-2", ""}, names("/v1/nodes?overcommitted=true"))
	assert.Equal(t, []string{"node-1", "node-3", ""}, names("/v1/nodes?overcommitted=false"))
	assert.Equal(t, []string{"node-1", "node-2", "node-2"}, names("/v1/nodes?limit=2"))
	assert.Equal(t, []string{"node-3", ""}, names("/v1/nodes?limit=2&continue=node-2"))
	assert.Equal(t, []string{"node-1", "node-2", "node-3", ""}, names("/v1/nodes?limit=3"))

	f.label("node-1", map[string]string{
		"cloud.google.com/gke-nodepool":    "general",
		"node.kubernetes.io/instance-type": "e2", "zone": "a",
	})
	f.label("node-2", map[string]string{"node.kubernetes.io/instance-type": "e2", "zone": "b"})
	assert.Equal(t, []string{"node-1", ""}, names("/v1/nodes?pool=general"))
	assert.Equal(t, []string{"node-2", ""}, names("/v1/nodes?pool=e2"), "the type of machine is the last resort")
	assert.Equal(t, []string{"node-1", "node-2", ""}, names("/v1/nodes?labelSelector=zone+in+(a,b)"))
	assert.Equal(t, []string{"node-2", "node-3", ""}, names("/v1/nodes?labelSelector=zone!%3Da"))
	assert.Equal(t, []string{"node-2", ""}, names("/v1/nodes?labelSelector=zone&pool=e2&overcommitted=true"))

	one := get[reserver.NodeAnswer](f, "/v1/nodes/node-2")
	assert.Equal(t, "b", one.Node.Labels["zone"])
	assert.Equal(t, "e2", one.Node.Pool)
	assert.True(t, one.Node.Overcommitted)
	assert.Equal(t, int64(-1000), one.Node.Resources["cpu"].Free)
	require.Len(t, one.Allocations, 1)
	assert.Equal(t, "a", one.Allocations[0].Pod)
}

// One answer is bounded, whatever it is asked for.
func TestNodesInPages(t *testing.T) {
	f := newFixture(t, Limits{})
	for i := range maxNodes {
		f.ledger.ObserveNode(ledger.NodeObservation{Name: fmt.Sprintf("more-%05d", i)})
	}
	page := get[reserver.NodesAnswer](f, fmt.Sprint("/v1/nodes?limit=", 2*maxNodes))
	assert.Len(t, page.Nodes, maxNodes)
	rest := get[reserver.NodesAnswer](f, "/v1/nodes?continue="+page.Continue)
	assert.Len(t, rest.Nodes, 3)
	assert.Empty(t, rest.Continue)
}

// A pod has its slot or its allocation on a node, whenever one looks.
func TestNodeAtOneRevision(t *testing.T) {
	f := newFixture(t, Limits{})
	q := &query{reader: f.api.readerOf(t.Context()), path: httprouter.Params{{Key: "name", Value: "node-1"}}}
	var going sync.WaitGroup
	going.Go(func() {
		for i := range 2000 {
			p := f.Bring(aPod(fmt.Sprint("p", i), "1", "1Gi")).Placement("node-1")
			f.ledger.Reserve(ledger.NewPlan([]ledger.Placement{p}, ledger.AllOrNothing, time.Now().Add(time.Hour)), time.Now())
			_, rejection := f.ledger.StartBind(&p, time.Now())
			assert.Nil(t, rejection)
			f.ledger.BindFailed(p.Pod, "node-1")
		}
	})
	ended := make(chan struct{})
	go func() { going.Wait(); close(ended) }()
	for over := false; !over; {
		answer, err := f.api.node(q)
		require.NoError(t, err)
		got := answer.(*reserver.NodeAnswer)
		require.LessOrEqual(t, len(got.Slots)+len(got.Allocations), 1)
		require.Len(t, got.Allocations, got.Node.AllocationCount)
		select {
		case <-ended:
			over = true
		default:
		}
	}
}

func TestAllocations(t *testing.T) {
	f := newFixture(t, Limits{})
	pod := withPort(aPod("a", "500m", "1Gi"))
	pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{ // which is no port
		RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{}, TopologyKey: v1.LabelHostname,
		}},
	}}
	f.bind(pod, "node-1")
	binding := f.Bring(aPod("a-b", "1", "1Gi")).Placement("node-1")
	binding.Scheduler = "theirs"
	_, rejection := f.ledger.StartBind(&binding, time.Now())
	require.Nil(t, rejection)
	f.reserve(gangOf("node-1", aPod("kept", "500m", "1Gi"))) // a reservation is no allocation
	bound := aPod("a.c", "1", "1Gi")
	bound.Namespace = "team-b"
	f.bind(bound, "node-2")
	all := get[reserver.AllocationsAnswer](f, "/v1/allocations")
	require.Len(t, all.Allocations, 3)
	assert.Equal(t, reserver.Allocation{
		Namespace: "team-a", Pod: "a", UID: "uid-a", Node: "node-1", State: "Bound", Scheduler: testScheduler,
		Requests:  reserver.Amounts{"cpu": 500, "memory": gib, "pods": 1},
		HostPorts: []string{"TCP/0.0.0.0:80"},
	}, all.Allocations[0])

	tests := map[string][]string{
		"namespace=team-a":             {"a", "a-b"},
		"pod=a.c":                      {"a.c"},
		"node=node-1":                  {"a", "a-b"},
		"node=node-9":                  nil,
		"scheduler=theirs":             {"a-b"},
		"state=Bound":                  {"a", "a.c"},
		"state=Binding&node=node-1":    {"a-b"},
		"state=Binding&node=node-2":    nil,
		"namespace=team-b&node=node-1": nil,
	}
	for filter, want := range tests {
		answer := get[reserver.AllocationsAnswer](f, "/v1/allocations?"+filter)
		var got []string
		for _, c := range answer.Allocations {
			got = append(got, c.Pod)
		}
		assert.Equal(t, want, got, filter)
	}
}

// Pages hold every allocation once, whatever bytes the names have.
func TestPagesOfAllocations(t *testing.T) {
	f := newFixture(t, Limits{})
	var want []string
	for _, namespace := range []string{"a", "a-b", "b"} {
		for _, name := range []string{"x", "x-y", "x.y", "xy"} {
			ref := ledger.PodRef{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)}
			f.ledger.ObservePod(ledger.PodObservation{Pod: ref, Node: "node-1", Request: f.Bring(aPod("p", "1m", "1")).Request})
			want = append(want, ref.String())
		}
	}
	for limit := 1; limit <= 13; limit++ {
		assert.Equal(t, want, allPages(t, func(next string) (some []string, more string) {
			answer := get[reserver.AllocationsAnswer](f, fmt.Sprint("/v1/allocations?limit=", limit, "&continue=", next))
			require.LessOrEqual(t, len(answer.Allocations), limit)
			for _, c := range answer.Allocations {
				some = append(some, c.Namespace+"/"+c.Pod)
			}
			return some, answer.Continue
		}), limit)
	}
}

func TestExplainPending(t *testing.T) {
	f := newFixture(t, Limits{})
	f.bind(aPod("big", "3", "1Gi"), "node-1")
	f.bind(aPod("bigger", "3500m", "1Gi"), "node-2")
	f.AddNode("node-4", "8", "1Gi")
	f.ledger.ObserveNode(ledger.NodeObservation{Name: "node-3", UID: "uid-node-3", Unschedulable: true})
	f.Bring(aPod("a", "2", "4Gi"))
	before := f.ledger.Revision()
	answer := get[reserver.ExplainAnswer](f, "/v1/explain?namespace=team-a&pod=a")
	assert.Equal(t, before, f.ledger.Revision())
	assert.Equal(t, "Pending", answer.State)
	assert.Equal(t, reserver.Amounts{"cpu": 2000, "memory": 4 * gib, "pods": 1}, answer.Requests)
	assert.Equal(t, 4, answer.NodeCount)
	assert.Zero(t, answer.FitCount)
	assert.Equal(t, []reserver.RefusalGroup{
		{Reason: "InsufficientResource", Resource: "cpu", Nodes: 2, Examples: []string{"node-1", "node-2"}},
		{Reason: "InsufficientResource", Resource: "memory", Nodes: 1, Examples: []string{"node-4"}},
		{Reason: "NodeUnschedulable", Nodes: 1, Examples: []string{"node-3"}},
	}, answer.Refusals)
	require.NotNil(t, answer.Closest)
	assert.Equal(t, "node-1", answer.Closest.Node)
	assert.Equal(t, []reserver.MissingAmount{{Resource: "cpu", Requested: 2000, Free: 1000, Missing: 1000}},
		answer.Closest.Missing)
	require.Len(t, answer.Closest.Holders, 1)
	assert.Equal(t, "big", answer.Closest.Holders[0].Pod)
	assert.Contains(t, answer.Message, "no capacity for the pod on any of 4 nodes")
}

func TestExplainStates(t *testing.T) {
	f := newFixture(t, Limits{})
	bound, reserved, pending, finished := aPod("bound", "1", "1Gi"), aPod("reserved", "1", "1Gi"),
		aPod("pending", "1", "1Gi"), aPod("finished", "1", "1Gi")
	f.bind(bound, "node-1")
	f.Bring(reserved)
	f.reserve(gangOf("node-2", reserved))
	f.Bring(pending)
	finished.Status.Phase = v1.PodSucceeded
	f.Bring(finished)
	podToCome := nameOnly(aPod("pod-to-come", "1", "1Gi"))
	podToCome.Spec = pending.Spec
	f.reserve(gangOf("node-3", podToCome))
	gpu := aPod("gpu", "1", "1Gi")
	gpu.Spec.Containers[0].Resources.Requests["example.com/gpu"] = *gpu.Spec.Containers[0].Resources.Requests.Cpu()
	f.Bring(gpu)
	binding := aPod("binding", "1", "1Gi")
	placement := f.Bring(binding).Placement("node-3")
	_, rejection := f.ledger.StartBind(&placement, time.Now())
	require.Nil(t, rejection)
	now := metav1.NewTime(startTime)
	dying, leaving := aPod("dying", "1", "1Gi"), aPod("leaving", "1", "1Gi")
	dying.DeletionTimestamp, leaving.DeletionTimestamp = &now, &now
	f.Bring(dying)
	f.bind(leaving, "node-1")
	tests := map[string]struct{ state, node, message string }{
		"binding":     {"Binding", "node-3", "is being bound"},
		"dying":       {"Deleting", "", "must not be scheduled"},
		"leaving":     {"Deleting", "node-1", "uses its capacity until it is gone"},
		"bound":       {"Bound", "node-1", `bound to node "node-1"`},
		"reserved":    {"Reserved", "node-2", `reserved on node "node-2" by scheduler "batch-scheduler"`},
		"pending":     {"Pending", "", "capacity for the pod on 3 of 3 nodes"},
		"finished":    {"Finished", "", "has finished"},
		"pod-to-come": {"Reserved", "node-3", "reserved on node"},
		"gpu":         {"Pending", "", "example.com/gpu"},
	}
	for pod, tc := range tests {
		answer := get[reserver.ExplainAnswer](f, "/v1/explain?namespace=team-a&pod="+pod)
		assert.Equal(t, tc.state, answer.State, pod)
		assert.Equal(t, tc.node, answer.Node, pod)
		assert.Contains(t, answer.Message, tc.message)
	}
}

func TestWhatIf(t *testing.T) {
	f := newFixture(t, Limits{})
	old, small := aPod("old", "3", "1Gi"), aPod("small", "1", "1Gi")
	f.bind(old, "node-1")
	f.reserve(gangOf("node-2", small))
	a := func(cpu string) *v1.Pod { return aPod("a", cpu, "1Gi") }
	b := func(cpu string) *v1.Pod { return aPod("b", cpu, "1Gi") }
	without := func(request body, gone reserver.GonePod) body {
		request.Without = []reserver.GonePod{gone}
		return request
	}
	tests := map[string]struct {
		request body
		nodes   string // of the placements
		failed  string
	}{
		"nodes given": {gangOf("node-3", a("2")), "node-3", ""},
		"no capacity": {gangOf("node-1", a("2")), "node-1", "a"},
		"a pod gone":  {without(gangOf("node-1", a("2")), reserver.GonePod{UID: "uid-old"}), "node-1", ""},
		"gone, by name": {
			without(gangOf("node-2", a("4")), reserver.GonePod{Namespace: "team-a", Name: "small"}), "node-2", "",
		},
		"best fit":        {gangOf("", a("1"), b("3")), "node-1 node-2", ""},
		"one after other": {gangOf("", a("3"), b("3")), "node-2 node-3", ""},
		"one too many": {
			body{Mode: "Partial", Pods: []*v1.Pod{a("3"), b("3"), aPod("c", "3", "1Gi")}}, "node-2 node-3 node-1", "c",
		},
		"capacity of a pod that goes": {
			without(gangOf("", a("4"), b("4")), reserver.GonePod{UID: "uid-old"}), "node-1 node-3", "",
		},
		"stays where it is":                         {gangOf("", small), "node-2", ""},
		"host port taken by another of the request": {gangOf("", withPort(a("1")), withPort(b("1"))), "node-1 node-2", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			before := f.ledger.Snapshot()
			var answer reserver.WhatIfAnswer
			f.post("/v1/whatif", tc.request, &answer)
			assert.Equal(t, before, f.ledger.Snapshot(), "nothing has changed")
			var nodes []string
			for i, p := range answer.Placements {
				nodes = append(nodes, p.Node)
				assert.Equal(t, tc.request.Pods[i].Name, p.Pod)
				assert.Equal(t, p.Fits, p.Pod != tc.failed)
			}
			assert.Equal(t, tc.nodes, strings.Join(nodes, " "))
			assert.NotNil(t, answer.FailedPods)
			assert.Equal(t, tc.failed, strings.Join(answer.FailedPods, " "))
			assert.Equal(t, tc.failed != "" && tc.request.Mode == "", answer.Error != "", answer.Error)
		})
	}
}

// Explain says of a pod that fits nowhere what it lacks where it lacks least, also of what no node offers.
func TestExplainLacks(t *testing.T) {
	f := newFixture(t, Limits{})
	gpu := aPod("gpu", "5", "1Gi")
	gpu.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("2")
	f.Bring(gpu)
	answer := get[reserver.ExplainAnswer](f, "/v1/explain?namespace=team-a&pod=gpu")
	require.NotNil(t, answer.Closest)
	assert.Equal(t, []reserver.MissingAmount{
		{Resource: "cpu", Requested: 5000, Free: 4000, Missing: 1000},
		{Resource: "example.com/gpu", Requested: 2, Missing: 2},
	}, answer.Closest.Missing)
	for i := 1; i <= 3; i++ {
		f.ledger.RemoveNode(fmt.Sprint("node-", i))
	}
	empty := get[reserver.ExplainAnswer](f, "/v1/explain?namespace=team-a&pod=gpu")
	assert.Contains(t, empty.Message, "no nodes")
	var tried reserver.WhatIfAnswer
	f.post("/v1/whatif", body{Pods: []*v1.Pod{aPod("a", "1", "1Gi")}}, &tried)
	assert.Equal(t, []string{"a"}, tried.FailedPods)
	require.Len(t, tried.Rejections, 1)
	assert.Equal(t, "NodeUnknown", tried.Rejections[0].Reason)
}

func withPort(pod *v1.Pod) *v1.Pod {
	pod.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80, ContainerPort: 80}}
	return pod
}
