package extender

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
	"github.com/globalreserve/globalreserve/pkg/resources"
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
	w.ledger.ObserveNode(ledger.NodeObservation{Name: "cordoned", Unschedulable: true})
	return w
}

var allNodes = []string{"empty", "full", "port", "cordoned", "unknown", "other"}

func TestFilter(t *testing.T) {
	full, port := refusals[ledger.InsufficientResource].text, refusals[ledger.HostPortConflict].text
	unknown, cordoned := refusals[ledger.NodeUnknown].text, refusals[ledger.NodeUnschedulable].text
	elsewhere, gone := refusals[ledger.ClaimedElsewhere].text, refusals[ledger.PodGone].text
	withPort := func(_ *world, p *v1.Pod) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	}
	tests := map[string]struct {
		setup        func(w *world, p *v1.Pod)
		nodes        []string
		kept         []string
		failed       extenderv1.FailedNodesMap
		unresolvable extenderv1.FailedNodesMap
		wakes        bool
		result       string
	}{
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
		"a reservation elsewhere": {
			setup: func(w *world, p *v1.Pod) { w.reserve(p, "other") },
			nodes: []string{"empty", "other", "full"}, kept: []string{"other"},
			unresolvable: extenderv1.FailedNodesMap{"empty": elsewhere, "full": elsewhere},
			wakes:        true, result: "granted",
		},
		"a pod that is gone": {
			setup: func(w *world, p *v1.Pod) { w.ledger.RemovePod(ledger.PodRef{UID: p.UID}, 1) },
			nodes: []string{"empty"}, kept: []string{}, unresolvable: extenderv1.FailedNodesMap{"empty": gone},
			result: "refused",
		},
		"names that need escapes": {
			nodes: []string{`a"b`, `c\`, "\u2028<é>", "", `\"`, "empty"}, kept: []string{"empty"},
			unresolvable: extenderv1.FailedNodesMap{`a"b`: unknown, `c\`: unknown, "\u2028<é>": unknown, "": unknown, `\"`: unknown},
			wakes:        true, result: "granted",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w, p := fillWorld(t), newPod("p")
			if tt.setup != nil {
				tt.setup(w, p)
			}
			before := w.ledger.Revision()
			var everywhere [][]string
			w.o.OnRefused = func(pod *podinfo.Info, offered []string) {
				assert.Equal(t, p.UID, pod.Ref.UID)
				everywhere = append(everywhere, offered)
			}

			var got extenderv1.ExtenderFilterResult
			w.ask("filter", extenderv1.ExtenderArgs{Pod: p, NodeNames: &tt.nodes}, &got)
			if len(*got.NodeNames) > 0 {
				assert.Empty(t, everywhere)
			} else {
				assert.Equal(t, [][]string{tt.nodes}, everywhere)
			}
			require.NotNil(t, got.NodeNames, "kube-scheduler takes no list for an answer without names")
			assert.Equal(t, tt.kept, *got.NodeNames)
			assert.Nil(t, got.Nodes)
			assertMap(t, tt.failed, got.FailedNodes)
			assertMap(t, tt.unresolvable, got.FailedAndUnresolvableNodes)
			assert.Empty(t, got.Error)

			assert.Equal(t, before, w.ledger.Revision(), "filter only reads")
			assert.Equal(t, tt.wakes, len(w.refused) == 1)
			if tt.wakes {
				assert.Equal(t, p.UID, w.refused[0].Ref.UID)
				assert.Equal(t, tt.nodes, w.offered)
				assert.Equal(t, before, w.revision)
			}
			assert.Equal(t, []string{"filter scheduler " + tt.result}, w.decisions)
			assert.Equal(t, []string{"filter 200"}, w.requests)
			assert.Contains(t, w.recent, p.UID)

			whole := &v1.NodeList{Items: []v1.Node{}}
			for _, n := range tt.nodes {
				if n == "" {
					return
				}
				whole.Items = append(whole.Items, v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n, Labels: map[string]string{"of": n}}})
			}
			got = extenderv1.ExtenderFilterResult{}
			w.ask("filter", extenderv1.ExtenderArgs{Pod: p, Nodes: whole}, &got)
			assert.Nil(t, got.NodeNames)
			require.NotNil(t, got.Nodes)
			require.Len(t, got.Nodes.Items, len(tt.kept))
			for i, n := range got.Nodes.Items {
				assert.Equal(t, tt.kept[i], n.Name)
				assert.Equal(t, map[string]string{"of": n.Name}, n.Labels, "a node is passed on whole")
			}
			assertMap(t, tt.failed, got.FailedNodes)
			assertMap(t, tt.unresolvable, got.FailedAndUnresolvableNodes)
		})
	}
}

func assertMap(t *testing.T, want, got extenderv1.FailedNodesMap) {
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
	for reason := ledger.NodeUnknown; reason <= ledger.DeviceClaimUnusable; reason++ {
		if reason > ledger.PodGone && reason < ledger.InsufficientDevices {
			continue // of other ways in
		}
		text := refusals[reason].text
		assert.NotEmpty(t, text, reason)
		assert.False(t, seen[text], "%s has the text of another", reason)
		seen[text] = true
	}
	assert.Len(t, refusals, int(ledger.DeviceClaimUnusable)+1)
}

// TestPodIsNotDecodedTwice: what the informer, or an earlier request, has
// brought at the same resource version is used instead of the request's pod.
func TestPodIsNotDecodedTwice(t *testing.T) {
	known := func(w *world, p *v1.Pod) *podinfo.Info {
		info, err := podinfo.New(w.ledger.Table(), p)
		require.NoError(w.t, err)
		return info
	}
	tests := map[string]struct {
		setup func(w *world, p *v1.Pod)
		asked string // the version in the request
		reuse bool
	}{
		"informer has it":                   {func(w *world, p *v1.Pod) { w.pods[p.UID] = known(w, p) }, "7", true},
		"informer has another version":      {func(w *world, p *v1.Pod) { w.pods[p.UID] = known(w, p) }, "8", false},
		"an earlier request brought it":     {func(w *world, p *v1.Pod) { w.recent[p.UID] = known(w, p) }, "7", true},
		"an earlier request, older":         {func(w *world, p *v1.Pod) { w.recent[p.UID] = known(w, p) }, "8", false},
		"nobody has it":                     {func(*world, *v1.Pod) {}, "7", false},
		"no version":                        {func(w *world, p *v1.Pod) { w.pods[p.UID] = known(w, p) }, "", false},
		"a version that is none":            {func(w *world, p *v1.Pod) { w.pods[p.UID] = known(w, p) }, "x", false},
		"informer has another pod by name":  {func(w *world, p *v1.Pod) { p.UID = "old"; w.pods["old"] = known(w, p) }, "7", false},
		"another pod's version 0":           {func(w *world, p *v1.Pod) { p.ResourceVersion = ""; w.pods[p.UID] = known(w, p) }, "0", false},
		"an earlier request, under another": {func(w *world, p *v1.Pod) { i := known(w, p); i.Ref.Name = "q"; w.recent[p.UID] = i }, "7", false},
		"it asked for something new": {func(w *world, p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
			w.pods[p.UID] = known(w, p)
		}, "7", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node("small", 500, 1e10)
			tt.setup(w, newPod("p"))
			// The request's pod is smaller than the known one, to tell them apart.
			p := newPod("p")
			p.ResourceVersion = tt.asked
			p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("100m")
			var got extenderv1.ExtenderFilterResult
			w.ask("filter", extenderv1.ExtenderArgs{Pod: p, NodeNames: &[]string{"small"}}, &got)
			assert.Equal(t, tt.reuse, len(*got.NodeNames) == 0)
		})
	}
}

func TestFilterUncountablePod(t *testing.T) {
	w, p := fillWorld(t), newPod("p")
	p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("-1")
	args := extenderv1.ExtenderArgs{Pod: p, NodeNames: &allNodes}
	var got extenderv1.ExtenderFilterResult
	for range 2 {
		// An error would have kube-scheduler try again and again; this waits for a
		// change of the cluster.
		w.ask("filter", args, &got)
		assert.Empty(t, got.Error)
		assert.Empty(t, *got.NodeNames)
		assert.Empty(t, got.FailedNodes)
		assert.Len(t, got.FailedAndUnresolvableNodes, len(allNodes))
		for _, text := range got.FailedAndUnresolvableNodes {
			assert.Equal(t, uncountableRefusal, text, "kube-scheduler takes another text for news")
		}
	}
	assert.Empty(t, w.recent)
	require.Len(t, w.logs.AllEntries(), 1, "one line for a pod, however often it is asked about")
	assert.ErrorContains(t, w.logs.LastEntry().Data[logrus.ErrorKey].(error), "spec.containers[0].resources.requests[cpu] is -1")

	for _, verb := range []string{"prioritize", "preempt"} {
		answer := w.post(verb, args)
		assert.Equal(t, http.StatusBadRequest, answer.Code)
		assert.Contains(t, answer.Body.String(), "must not be negative")
	}
}

func TestFilterLogs(t *testing.T) {
	w := fillWorld(t)
	args := extenderv1.ExtenderArgs{Pod: newPod("p"), NodeNames: &allNodes}
	var got extenderv1.ExtenderFilterResult
	w.ask("filter", args, &got)
	require.Len(t, w.logs.AllEntries(), 1)
	line := w.logs.LastEntry()
	assert.Equal(t, logrus.DebugLevel, line.Level)
	assert.Equal(t, "ns/p", line.Data["pod"])
	assert.Equal(t, 3, line.Data["fit"])
	assert.Equal(t, map[string]int{"InsufficientResource": 1, "NodeUnknown": 1, "NodeUnschedulable": 1}, line.Data["refused"])

	w.o.Log.SetLevel(logrus.InfoLevel)
	w.ask("filter", args, &got)
	assert.Len(t, w.logs.AllEntries(), 1)
}

func TestSplitNames(t *testing.T) {
	for _, text := range []string{
		`[]`, ` [ ] `, `["a"]`, `[ "a" , "b\u0041\"\\" ,"\\\\","é",""]`, `["\"","\\\"","\n"]`, "[\n\t\"a\",\r\n\"b\"\n]",
	} {
		var want []string
		require.NoError(t, json.Unmarshal([]byte(text), &want))
		got := nodeNames{limit: 10}
		require.NoError(t, unmarshal(text, &got), text)
		assert.True(t, got.given)
		assert.Equal(t, want, got.names, text)
	}
	for _, text := range []string{`[1]`, `["a",null]`, `[["a"]]`, `{}`, `"a"`, `true`, `["a"`} {
		assert.Error(t, unmarshal(text, &nodeNames{limit: 10}), text)
	}
	got := args{NodeNames: nodeNames{limit: 10}}
	require.NoError(t, unmarshal(`{"NodeNames":["a"],"nodenames":null}`, &got))
	assert.Equal(t, nodeNames{limit: 10}, got.NodeNames, "the last of two wins")
}
