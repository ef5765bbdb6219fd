package extender

import (
	"encoding/json"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/decide/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// fillWorld has a node for every verdict.
func fillWorld(t *testing.T) *world {
	w := newWorld(t)
	w.node("empty", 4000, 4e9)
	w.node("other", 4000, 4e9)
	w.node("full", 4000, 4e9)
	w.run("1", "full", 3500, 1e9)
	w.node("port", 4000, 4e9)
	w.run("2", "port", 0, 0, resources.HostPort{PortKey: resources.PortKey{Protocol: "TCP", Port: 80}, IP: "0.0.0.0"})
	w.Ledger.ObserveNode(ledger.NodeObservation{Name: "cordoned", Unschedulable: true})
	return w
}

var allNodes = []string{"empty", "full", "port", "cordoned", "unknown", "other"}

func TestFilter(t *testing.T) {
	full, port := placement.Refusals[ledger.InsufficientResource].Text, placement.Refusals[ledger.HostPortConflict].Text
	unknown, cordoned := placement.Refusals[ledger.NodeUnknown].Text, placement.Refusals[ledger.NodeUnschedulable].Text
	gone := placement.Refusals[ledger.PodGone].Text
	withPort := func(_ *world, p *v1.Pod) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	}
	type testCase struct {
		setup        func(w *world, p *v1.Pod)
		nodes        []string
		kept         []string
		failed       extenderv1.FailedNodesMap
		unresolvable extenderv1.FailedNodesMap
		wakes        bool
		result       string
	}
	bubble.Each(t, map[string]testCase{
		"every verdict": {
			setup: withPort, nodes: allNodes, kept: []string{"empty", "other"},
			failed:       extenderv1.FailedNodesMap{"full": full, "port": port},
			unresolvable: extenderv1.FailedNodesMap{"cordoned": cordoned, "unknown": unknown},
			wakes:        true, result: "granted",
		},
		"everything fits": {nodes: []string{"empty", "other"}, kept: []string{"empty", "other"}, result: "granted"},
		"no nodes":        {nodes: []string{}, kept: []string{}, result: "refused"},
		"nothing fits": {
			nodes: []string{"full"}, kept: []string{}, failed: extenderv1.FailedNodesMap{"full": full},
			wakes: true, result: "refused",
		},
		"a pod that is gone": {
			setup: func(w *world, p *v1.Pod) { w.Ledger.RemovePod(ledger.PodRef{UID: p.UID}, 1) },
			nodes: []string{"empty"}, kept: []string{}, unresolvable: extenderv1.FailedNodesMap{"empty": gone},
			result: "refused",
		},
		"names that need escapes": {
			nodes: []string{`a"b`, `c\`, "\u2028<é>", "", `\"`, "empty"}, kept: []string{"empty"},
			unresolvable: extenderv1.FailedNodesMap{
				`a"b`: unknown, `c\`: unknown, "\u2028<é>": unknown, "": unknown,
				`\"`: unknown,
			},
			wakes: true, result: "granted",
		},
	}, func(t *testing.T, tt testCase) {
		w, p := fillWorld(t), newPod("p")
		if tt.setup != nil {
			tt.setup(w, p)
		}
		w.create(p)
		before := w.Ledger.Revision()

		got := ask[extenderv1.ExtenderFilterResult](w, "filter", extenderv1.ExtenderArgs{Pod: p, NodeNames: &tt.nodes})
		require.NotNil(t, got.NodeNames, "kube-scheduler takes no list for an answer without names")
		assert.Equal(t, tt.kept, *got.NodeNames)
		assert.Nil(t, got.Nodes)
		assertMap(t, tt.failed, got.FailedNodes)
		assertMap(t, tt.unresolvable, got.FailedAndUnresolvableNodes)
		assert.Empty(t, got.Error)
		refusals, _ := w.Waiting.RefusalsAfter(0)
		assert.Equal(t, len(tt.kept) == 0 && len(tt.nodes) > 0, len(refusals) == 1)

		assert.Equal(t, before, w.Ledger.Revision(), "filter only reads")
		assert.Equal(t, 1, w.Counted(t, "decisions_total", "filter", "scheduler", tt.result))
		assert.Equal(t, 1, w.Counted(t, "requests_total", "filter", "200"))
		w.askWithNodes(p, tt.nodes, tt.kept, tt.failed, tt.unresolvable)
		woken := w.wokenAfter(w.grow(tt.nodes...))
		assert.Equal(t, tt.wakes, len(woken) == 1, "%v", woken)
	})
}

// A pod that a gate refuses is refused everywhere, in a text that does not change. It is not woken for what becomes
// free, and is when the gate opens.
func TestFilterOfPodThatAGateRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := fillWorld(t), newPod("p")
		w.create(p)
		w.caller = "batch"
		w.Policy.Set(gatestest.Limited(p.Spec.SchedulerName))
		got := w.filtered(p, "empty", "full")
		assert.Empty(t, *got.NodeNames)
		assert.Empty(t, got.FailedNodes)
		assert.Equal(t, extenderv1.FailedNodesMap{"empty": gateRefusal, "full": gateRefusal}, got.FailedAndUnresolvableNodes)
		assert.Empty(t, got.Error)
		assert.Empty(t, w.wokenAfter(w.grow("empty", "full")))
		require.Len(t, w.Writes.Told(), 1)
		assert.Contains(t, w.Writes.Told()[0], `p Refused: caller "batch" may not act for scheduler "scheduler"`)
		w.filtered(newPod("unseen"), "empty")
		require.Len(t, w.Writes.Told(), 1, "callers may make it up")
		_, asks := w.Waiting.AskedBy(p.Spec.SchedulerName)
		assert.False(t, asks, "who is not listed says nothing of the scheduler")
		w.Policy.Set(gatestest.Limited(p.Spec.SchedulerName, "batch"))
		assert.Equal(t, []string{"p"}, w.wokenAfter(w.Waiting.LimitsChanged))
		refusals, _ := w.Waiting.RefusalsAfter(0)
		require.Len(t, refusals, 2)
		assert.Equal(t, gates.Reason, refusals[0].Reason)
		assert.Equal(t, 2, w.Counted(t, "decisions_total", "filter", "scheduler", "refused"))
	})
}

// A pod that a limit keeps from all nodes is answered by an error, so that it is not Unschedulable to its scheduler,
// which autoscalers make nodes for. It is a refusal all the same, and the pod is woken when the limit lets it in.
func TestFilterOfPodOverALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := fillWorld(t), newPod("p")
		w.create(p)
		w.caller = "batch"
		w.quota(0)
		w.Policy.Set(gatestest.Limited("another")) // callers count
		type filtered struct {
			extenderv1.ExtenderFilterResult
			Outcome string
		}
		got := ask[filtered](w, "filter", extenderv1.ExtenderArgs{Pod: p, NodeNames: &allNodes})
		assert.Equal(t, placement.Refusals[ledger.QuotaExceeded].Text, got.Error)
		assert.Equal(t, string(gates.Refused), got.Outcome)
		assert.Empty(t, got.FailedNodes)
		assert.Equal(t, 1, w.Counted(t, "decisions_total", "filter", "scheduler", "refused"))
		caller, asks := w.Waiting.AskedBy(p.Spec.SchedulerName)
		assert.True(t, asks)
		assert.Equal(t, "batch", caller)
		assert.Equal(t, []string{"p"}, w.wokenAfter(func() {
			w.quota(100_000)
			w.Waiting.LimitsChanged()
		}))
		plain := w.filtered(p, "empty")
		assert.Empty(t, plain.Error)
		assert.Equal(t, []string{"empty"}, *plain.NodeNames)

		w.quota(0)
		member := newPod("member")
		member.Annotations = map[string]string{v1alpha1.GangAnnotation: "gang", v1alpha1.GangMinAnnotation: "1"}
		w.create(member)
		byNode := func(p *v1.Pod, why string) {
			got := w.filtered(p, "empty")
			assert.Empty(t, got.Error, why)
			assert.Equal(t, extenderv1.FailedNodesMap{"empty": placement.Refusals[ledger.QuotaExceeded].Text},
				got.FailedAndUnresolvableNodes)
		}
		byNode(member, "kube-scheduler gives a pod group up at an error")
		rules := policy.Default()
		rules.Autoscaling.HoldBackPods = false
		w.Policy.Set(rules)
		byNode(p, "autoscalers are not to be told")
	})
}

// quota lets the pods of the namespace ns have so much CPU.
func (w *world) quota(milliCPU int64) {
	w.Ledger.Observer().SetLimits(ledger.OfNamespace, map[string]*ledger.Limits{
		"ns": {Use: []resources.Amount{{Column: resources.CPU, Value: milliCPU}}},
	})
}

// askWithNodes asks filter with whole nodes what was asked with names.
func (w *world) askWithNodes(p *v1.Pod, nodes, kept []string, failed, unresolvable extenderv1.FailedNodesMap) {
	whole := &v1.NodeList{Items: []v1.Node{}}
	for _, n := range nodes {
		if n == "" {
			return
		}
		whole.Items = append(whole.Items, v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n, Labels: map[string]string{"of": n}}})
	}
	got := ask[extenderv1.ExtenderFilterResult](w, "filter", extenderv1.ExtenderArgs{Pod: p, Nodes: whole})
	assert.Nil(w.t, got.NodeNames)
	require.NotNil(w.t, got.Nodes)
	require.Len(w.t, got.Nodes.Items, len(kept))
	for i, n := range got.Nodes.Items {
		assert.Equal(w.t, kept[i], n.Name)
		assert.Equal(w.t, map[string]string{"of": n.Name}, n.Labels, "a node is passed on whole")
	}
	assertMap(w.t, failed, got.FailedNodes)
	assertMap(w.t, unresolvable, got.FailedAndUnresolvableNodes)
}

// A server may stop while it looks at a request. kube-scheduler shows why only where the status is 200.
func TestStoppedWhileAsked(t *testing.T) {
	w, p := fillWorld(t), newPod("p")
	w.create(p)
	w.undecided = "this server stops; ask again"
	got := ask[struct{ Error, Outcome string }](w, "filter", extenderv1.ExtenderArgs{Pod: p, NodeNames: &allNodes})
	assert.Equal(t, w.undecided, got.Error)
	assert.Equal(t, string(gates.NotReady), got.Outcome)

	answer := w.post("preempt", extenderv1.ExtenderPreemptionArgs{
		Pod: p, NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{"full": {Pods: []*extenderv1.MetaPod{{UID: "1"}}}},
	})
	assert.Equal(t, http.StatusServiceUnavailable, answer.Code)
	assert.Contains(t, answer.Body.String(), w.undecided)
	assert.Equal(t, 1, w.Counted(t, "decisions_total"))
	assert.Equal(t, 1, w.Counted(t, "decisions_total", "filter", "other", "failed"), "its answer has the status 200")
}

func assertMap(t testing.TB, want, got extenderv1.FailedNodesMap) {
	t.Helper()
	if len(want) == 0 {
		assert.Empty(t, got)
		return
	}
	assert.Equal(t, want, got)
}

// TestReasonsAreComplete: every verdict filter can meet has a text of its own.
func TestReasonsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for reason := ledger.NodeUnknown; reason < ledger.NumReasons; reason++ {
		if reason > ledger.PodGone && reason < ledger.InsufficientDevices {
			continue // of other integration paths
		}
		text := placement.Refusals[reason].Text
		assert.NotEmpty(t, text, reason)
		assert.False(t, seen[text], "%s has the text of another", reason)
		seen[text] = true
	}
	assert.Len(t, placement.Refusals, int(ledger.NumReasons))
}

// TestCopyOfAPod: where the API server has the pod, the copy in a request says no more than a version, of which the
// watch may have an older state.
func TestCopyOfAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node("small", 500, 1e10)
		older, p := newPod("p"), newPod("p")
		older.ResourceVersion = "6"
		for _, small := range []*v1.Pod{older, p} {
			small.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("100m")
		}
		w.bring(older)
		w.API.Put(newPod("p"))
		assert.False(t, w.fits(p, "small"))
		victims := map[string]*extenderv1.MetaVictims{"small": {Pods: []*extenderv1.MetaPod{{UID: "v"}}}}
		assert.Empty(t, w.preempted(p, victims))
		<-time.After(time.Minute) // the next attempt to schedule it
		assert.False(t, w.fits(p, "small"))
		assert.Equal(t, []string{"p"}, w.wokenAfter(w.grow("small")))
	})
}

// A copy that cannot be read is the caller's mistake, but nobody looks at it where the API server has the pod.
func TestMalformedCopy(t *testing.T) {
	const text = `{"Pod":{"metadata":{"namespace":"ns","name":"p","uid":"uid-p"},"spec":{"containers":5}},"NodeNames":["n"],` +
		`"NodeNameToMetaVictims":{}}`
	for _, verb := range []string{"filter", "prioritize", "preempt"} {
		w := newWorld(t)
		w.node("n", 4000, 4e9)
		assert.Equal(t, http.StatusBadRequest, w.post(verb, text).Code)
		w.create(newPod("p"))
		assert.Equal(t, http.StatusOK, w.post(verb, text).Code)
	}
}

func TestFilterUncountablePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := fillWorld(t), newPod("p")
		p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("-1")
		for range 2 {
			// An error would have kube-scheduler try again and again; this waits for a change of the cluster.
			got := w.filtered(p, allNodes...)
			assert.Empty(t, got.Error)
			assert.Empty(t, *got.NodeNames)
			assert.Empty(t, got.FailedNodes)
			assert.Len(t, got.FailedAndUnresolvableNodes, len(allNodes))
			for _, text := range got.FailedAndUnresolvableNodes {
				assert.Equal(t, placement.Uncountable, text, "kube-scheduler takes another text for news")
			}
		}
		require.Len(t, w.Logs.AllEntries(), 1, "one line for a pod, however often it is asked about")
		assert.ErrorContains(t, w.Logs.LastEntry().Data[logrus.ErrorKey].(error),
			"spec.containers[0].resources.requests[cpu] is -1")

		for _, verb := range []string{"prioritize", "preempt"} {
			answer := w.post(verb, extenderv1.ExtenderArgs{Pod: p, NodeNames: &allNodes})
			assert.Equal(t, http.StatusBadRequest, answer.Code)
			assert.Contains(t, answer.Body.String(), "must not be negative")
		}
		assert.Empty(t, w.wokenAfter(w.grow(allNodes...)))
	})
}

func TestFilterLogs(t *testing.T) {
	w := fillWorld(t)
	w.create(newPod("p"))
	w.filtered(newPod("p"), allNodes...)
	require.Len(t, w.Logs.AllEntries(), 1)
	line := w.Logs.LastEntry()
	assert.Equal(t, logrus.DebugLevel, line.Level)
	assert.Equal(t, "ns/p", line.Data["pod"])
	assert.Equal(t, 3, line.Data["fit"])
	assert.Equal(t, map[string]int{"InsufficientResource": 1, "NodeUnknown": 1, "NodeUnschedulable": 1},
		line.Data["refused"])

	w.Log.SetLevel(logrus.InfoLevel)
	w.filtered(newPod("p"), allNodes...)
	assert.Len(t, w.Logs.AllEntries(), 1)
}

func TestSplitNames(t *testing.T) {
	for _, text := range []string{
		`[]`, ` [ ] `, `["a"]`, `[ "a" , "b\u0041\"\\" ,"\\\\","é",""]`, `["\"","\\\"","\n"]`, "[\n\t\"a\",\r\n\"b\"\n]",
	} {
		var want []string
		require.NoError(t, json.Unmarshal([]byte(text), &want))
		var got nodeNames
		require.NoError(t, unmarshal(text, &got), text)
		assert.Equal(t, want, got.names, text)
	}
	for _, text := range []string{`[1]`, `[["a"]]`, `{}`, `"a"`, `true`, `["a"`} {
		assert.Error(t, unmarshal(text, new(nodeNames)), text)
	}
	var got args
	require.NoError(t, unmarshal(`{"NodeNames":["a"],"nodenames":null}`, &got))
	assert.Zero(t, got.NodeNames, "the last of two wins")
}
