package extender

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/bubble"
)

func unmarshal(text string, into any) error { return httpjson.Unmarshal([]byte(text), into) }

func TestPrioritize(t *testing.T) {
	cpu := []policy.ResourceWeight{{Name: "cpu", Weight: 1}}
	weights := func(names ...v1.ResourceName) (list []policy.ResourceWeight) {
		for i, name := range names {
			list = append(list, policy.ResourceWeight{Name: name, Weight: []int64{3, 1, 100}[i]})
		}
		return list
	}
	tests := map[string]struct {
		scoring policy.Prioritize
		reserve string // the node the pod has a reservation on
		want    map[string]int64
	}{
		// The pod asks for 1000m and 1G. Nodes of 4000m and 4G: idle has nothing on it, half has 2000m and 0.
		"MostAllocated": {policy.Prioritize{Resources: cpu}, "", map[string]int64{"idle": 3, "half": 8, "unknown": 0}},
		"weights":       {policy.Prioritize{Resources: weights("cpu", "memory")}, "", map[string]int64{"idle": 3, "half": 6}},
		"a resource the pod does not ask for": {
			policy.Prioritize{Resources: weights("cpu", "memory", "example.com/gpu")},
			"",
			map[string]int64{"idle": 3, "half": 6},
		},
		"a resource nobody has": {policy.Prioritize{Resources: weights("example.com/none")}, "", map[string]int64{"idle": 0}},
		// idle has the pod's 1000m in its use already: 25 of 100.
		"reservation by half": {
			policy.Prioritize{Resources: cpu, ReservationMatch: 5}, "idle", map[string]int64{"idle": 6, "half": 4},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w, p := newWorld(t), newPod("p")
			w.create(p)
			w.score(tt.scoring)
			_, ok := w.Ledger.Table().Offer("example.com/gpu")
			require.True(t, ok)
			w.node("idle", 4000, 4e9)
			w.node("half", 4000, 4e9)
			w.run("1", "half", 2000, 0)
			if tt.reserve != "" {
				w.reserve(p, tt.reserve)
			}
			names, whole := []string{}, &v1.NodeList{}
			for n := range tt.want {
				names = append(names, n)
				whole.Items = append(whole.Items, v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}})
			}
			for _, args := range []extenderv1.ExtenderArgs{{Pod: p, NodeNames: &names}, {Pod: p, Nodes: whole}} {
				got := ask[extenderv1.HostPriorityList](w, "prioritize", args)
				require.Len(t, got, len(tt.want))
				for i, n := range names {
					assert.Equal(t, extenderv1.HostPriority{Host: n, Score: tt.want[n]}, got[i])
				}
			}
			assert.Equal(t, 2, w.Counted(t, "decisions_total", "prioritize", "scheduler", "scored"))
		})
	}
}

func TestPreempt(t *testing.T) {
	meta := func(violations int64, uids ...string) *extenderv1.MetaVictims {
		v := &extenderv1.MetaVictims{NumPDBViolations: violations}
		for _, uid := range uids {
			v.Pods = append(v.Pods, &extenderv1.MetaPod{UID: uid})
		}
		return v
	}
	type nodes = map[string]*extenderv1.MetaVictims
	tests := map[string]struct{ candidates, kept nodes }{
		"enough goes":      {nodes{"n": meta(2, "big")}, nodes{"n": meta(2, "big")}},
		"too little goes":  {nodes{"n": meta(0, "small")}, nil},
		"one of two nodes": {nodes{"n": meta(0, "small", "big"), "m": meta(0, "small")}, nodes{"n": meta(0, "small", "big")}},
		// kube-scheduler sends these from Kubernetes 1.38 on.
		"no victims where it fits":         {nodes{"idle": meta(0)}, nodes{"idle": meta(0)}},
		"no victims where it does not fit": {nodes{"n": meta(0)}, nil},
		"no victims beside some": {
			nodes{"idle": meta(0), "n": meta(1, "big"), "m": meta(0)}, nodes{"idle": meta(0), "n": meta(1, "big")},
		},
		"null for victims":     {nodes{"n": nil}, nil},
		"null for a victim":    {nodes{"n": {Pods: []*extenderv1.MetaPod{nil}}}, nil},
		"a victim without UID": {nodes{"n": meta(0, "")}, nil},
		"null for a victim next to one": {
			nodes{"n": {Pods: []*extenderv1.MetaPod{nil, {UID: "big"}}}}, nodes{"n": meta(0, "big")},
		},
		"the same victim twice": {nodes{"n": meta(0, "small", "small")}, nil},
		"null for candidates":   {},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w, p := newWorld(t), newPod("p")
			w.create(p)
			w.node("n", 4000, 4e9)
			w.node("m", 4000, 4e9)
			w.node("idle", 4000, 4e9)
			w.run("small", "n", 300, 0)
			w.run("big", "n", 3000, 0)
			w.run("full", "m", 4000, 0)
			w.run("rest", "n", 300, 0)
			if tt.kept == nil {
				tt.kept = nodes{}
			}
			assert.Equal(t, tt.kept, w.preempted(p, tt.candidates))
			result := map[bool]string{true: "granted", false: "refused"}[len(tt.kept) > 0]
			assert.Equal(t, 1, w.Counted(t, "decisions_total", "preempt", "scheduler", result))
		})
	}
}

// Schedulers without a cache of nodes send whole pods.
func TestPreemptWithWholePods(t *testing.T) {
	w := newWorld(t)
	w.node("n", 4000, 4e9)
	w.run("big", "n", 3500, 0)
	got := ask[extenderv1.ExtenderPreemptionResult](w, "preempt", `{"Pod":`+podText(t)+
		`,"NodeNameToVictims":{"m":null,"n":{"NumPDBViolations":2,"Pods":[null,{"metadata":{"uid":"big"}}]}}}`)
	want := &extenderv1.MetaVictims{NumPDBViolations: 2, Pods: []*extenderv1.MetaPod{{UID: "big"}}}
	assert.Equal(t, map[string]*extenderv1.MetaVictims{"n": want}, got.NodeNameToMetaVictims)
}

func TestBind(t *testing.T) {
	full := func(w *world, _ *v1.Pod) { w.run("other", "n", 3500, 0) }
	type testCase struct {
		setup    func(w *world, p *v1.Pod)
		node     string
		unknown  bool // nothing is known of the pod
		result   string
		message  string
		reason   string // the ledger's
		conflict string // the resource of the conflict that is counted, if one is
	}
	bubble.Each(t, map[string]testCase{
		"success": {result: "granted"},
		"refused": {
			reason: "InsufficientResource",
			setup:  full, result: "refused",
			message: `node "n" has too little cpu for pod ns/p: requested 1 CPU, 0.5 free`, conflict: "cpu",
		},
		"refused a port": {reason: "HostPortConflict", setup: func(w *world, p *v1.Pod) {
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
			w.run("other", "n", 0, 0, resources.HostPort{PortKey: resources.PortKey{Protocol: "TCP", Port: 8080}, IP: "0.0.0.0"})
		}, result: "refused", message: "hostPort/TCP/8080 on node", conflict: "hostPort"},
		"refused, but not for capacity": {
			node: "unheard-of", reason: "NodeUnknown", result: "refused", message: "is not in the ledger",
		},
		"gone": {
			setup: func(w *world, p *v1.Pod) { p.Name = "another" }, unknown: true, result: "pod_gone", message: "was deleted",
		},
		"unknown": {setup: func(w *world, _ *v1.Pod) {
			w.api.refuse = func() error {
				w.API.Answer(0, errDown)
				return errDown
			}
		}, result: "unknown", message: "not known yet"},
	}, func(t *testing.T, tt testCase) {
		w, p := newWorld(t), newPod("p")
		defer func() { assert.NoError(t, w.o.Arbiter.Stop(t.Context())) }()
		w.node("n", 4000, 4e9)
		if tt.setup != nil {
			tt.setup(w, p)
		}
		w.create(p)
		node := cmp.Or(tt.node, "n")
		got := w.bound(newPod("p"), node)
		assert.Contains(t, got.Error, tt.message)
		granted := tt.result == "granted"
		assert.Equal(t, granted, got.Error == "")
		assert.Equal(t, tt.reason, got.Reason)
		if granted || tt.result == "refused" {
			assert.Equal(t, w.Ledger.Revision(), got.Revision)
		}
		if !granted {
			assert.Equal(t, tt.result, got.Outcome)
		}
		scheduler := "scheduler"
		if tt.unknown {
			scheduler = "other"
		}
		assert.Equal(t, 1, w.Counted(t, "decisions_total", "bind", scheduler, tt.result))
		if tt.conflict != "" {
			assert.Equal(t, 1, w.Counted(t, "conflicts_total", "scheduler", tt.conflict))
		}
		assert.Equal(t, tt.conflict != "", w.Counted(t, "conflicts_total") == 1)

		require.Len(t, w.Logs.AllEntries(), 1)
		line := w.Logs.LastEntry()
		assert.Equal(t, logrus.InfoLevel, line.Level)
		assert.Equal(t, "ns/p", line.Data["pod"])
		assert.Equal(t, types.UID("uid-p"), line.Data["uid"])
		assert.Equal(t, node, line.Data["node"])
		assert.Equal(t, tt.result, line.Data["result"])
		if granted {
			assert.Equal(t, int64(1000), line.Data["cpu_milli"])
			assert.Equal(t, int64(1e9), line.Data["memory_bytes"])
			assert.Equal(t, int64(3000), line.Data["free_cpu_milli"])
			assert.Equal(t, int64(3e9), line.Data["free_memory_bytes"])
		}
	})
}

func TestMalformed(t *testing.T) {
	pod := `{"metadata":{"namespace":"ns","name":"p","uid":"u"}}`
	long := strings.Repeat("a", 254)
	args := func(pod string) string { return `{"Pod":` + pod + `,"NodeNames":["n"]}` }
	bind := func(name, namespace, uid, node string) string {
		return fmt.Sprintf(`{"PodName":%q,"PodNamespace":%q,"PodUID":%q,"Node":%q}`, name, namespace, uid, node)
	}
	const advice = "filter prioritize preempt"
	named := func(metadata string) string { return args(`{"metadata":{` + metadata + `}}`) }
	nodes := func(nodes string) string { return `{"Pod":` + pod + `,` + nodes + `}` }
	tests := map[string]struct {
		verbs   string
		body    string
		code    int
		message string
	}{
		"no body":            {advice + " bind", "", 400, "empty"},
		"too large":          {advice, args(`{"a":"` + strings.Repeat("a", maxBody) + `"}`), 413, "larger than the limit"},
		"no nodes":           {"filter prioritize", nodes(`"Nodes":null,"NodeNames":null`), 400, "both missing"},
		"no pod":             {advice, `{"NodeNames":["n"]}`, 400, "Pod is missing"},
		"a pod that is text": {advice, args(`"p"`), 400, "Pod: "},
		"an empty pod":       {advice, args("{}"), 400, "is missing"},
		"no name":            {advice, named(`"namespace":"ns","uid":"u"`), 400, "Pod.metadata.name is missing"},
		"no namespace":       {advice, named(`"name":"p","uid":"u"`), 400, "Pod.metadata.namespace is missing"},
		"no UID":             {advice, named(`"namespace":"ns","name":"p"`), 400, "Pod.metadata.uid is missing"},
		"a long UID":         {advice, named(`"namespace":"ns","name":"p","uid":"` + long + `"`), 400, "longer than 253"},
		"a quantity that takes seconds": {
			advice,
			args(`{"metadata":{"namespace":"ns","name":"p","uid":"u"},` +
				`"spec":{"containers":[{"resources":{"requests":{"cpu":"0.1e-30000000"}}}]}}`),
			400, "/spec/containers/0/resources/requests/cpu",
		},
		"names in an object":      {"filter prioritize", nodes(`"NodeNames":{}`), 400, "/NodeNames"},
		"items that are no nodes": {"filter prioritize", nodes(`"Nodes":{"items":["n"]}`), 400, "/Nodes/items/0"},
		"a node without a name": {
			"filter prioritize", nodes(`"Nodes":{"items":[{"metadata":{}}]}`), 400, "Nodes.items[0].metadata.name is missing",
		},
		"victims that are no pods": {
			"preempt", nodes(`"NodeNameToVictims":{"n":{"Pods":["a"]}}`), 400, "/NodeNameToVictims/n/Pods/0",
		},
		"bind: no node":           {"bind", bind("p", "ns", "u", ""), 400, "Node is missing"},
		"bind: a path for a name": {"bind", bind("../p", "ns", "u", "n"), 400, "PodName"},
		"bind: NUL in a name": {
			"bind", `{"PodName":"p\u0000","PodNamespace":"ns","PodUID":"u","Node":"n"}`, 400, "PodName",
		},
		"bind: a line feed":        {"bind", bind("p", "ns", "u\nx", "n"), 400, "PodUID"},
		"bind: a long UID":         {"bind", bind("p", "ns", long, "n"), 400, "PodUID"},
		"bind: a dotted namespace": {"bind", bind("p", "n.s", "u", "n"), 400, "PodNamespace"},
		"bind: a node in capitals": {"bind", bind("p", "ns", "u", "Node"), 400, "Node"},
		"bind: too large": {
			"bind", `{"PodName":"` + strings.Repeat("a", 65<<10) + `"}`, 413, "larger than the limit",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, verb := range strings.Fields(tt.verbs) {
				w := newWorld(t)
				w.node("n", 4000, 4e9)
				before := w.Ledger.Revision()
				got := w.post(verb, tt.body)
				assert.Equal(t, tt.code, got.Code, "%s: %s", verb, got.Body)
				var body httpjson.ErrorBody
				require.NoError(t, unmarshal(got.Body.String(), &body))
				assert.Contains(t, body.Error, tt.message, verb)
				assert.Equal(t, before, w.Ledger.Revision())
				assert.Zero(t, w.Counted(t, "decisions_total"))
				assert.Zero(t, w.api.posts)
				assert.Equal(t, 1, w.Counted(t, "requests_total", verb, strconv.Itoa(tt.code)))
			}
		})
	}
}

// A short entry of a body must not become a long one of an answer any number of times.
func TestNumberOfNodesIsBounded(t *testing.T) {
	tests := map[string]struct{ verb, open, entry, end string }{
		"filter":       {"filter", `"NodeNames":[`, `"a"`, `]`},
		"filter whole": {"filter", `"Nodes":{"items":[`, `{"metadata":{"name":"a"}}`, `]}`},
		"preempt":      {"preempt", `"NodeNameToMetaVictims":{`, `"#":{}`, `}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node("a", 1000, 1000)
			body := func(n int) string {
				entries := make([]string, n)
				for i := range entries {
					entries[i] = strings.ReplaceAll(tt.entry, "#", strconv.Itoa(i))
				}
				return `{"Pod":` + podText(t) + `,` + tt.open + strings.Join(entries, ",") + tt.end + `}`
			}
			assert.Equal(t, http.StatusOK, w.post(tt.verb, body(maxNodes)).Code)
			refused := w.post(tt.verb, body(maxNodes+1))
			assert.Equal(t, http.StatusBadRequest, refused.Code)
			assert.Contains(t, refused.Body.String(), "has more than the limit of 100000 elements")
		})
	}
}

// What a request takes is given back with its answer, also where that is an error.
func TestIntakeIsGivenBack(t *testing.T) {
	w := newWorld(t)
	w.node("a", 1000, 1000)
	for _, verb := range []string{"filter", "prioritize", "preempt", "bind"} {
		for _, body := range []string{`{"Pod":` + podText(t) + `,"NodeNames":["a"]}`, `{}`, `{`} {
			w.post(verb, body+strings.Repeat(" ", 10<<10))
			assert.Zero(t, w.o.Intake.Used(), "%s %s", verb, body)
		}
	}
}

func podText(t *testing.T) string {
	text, err := json.Marshal(newPod("p"))
	require.NoError(t, err)
	return string(text)
}
