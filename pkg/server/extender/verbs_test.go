package extender

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

func unmarshal(text string, into any) error { return httpjson.Unmarshal([]byte(text), into) }

func TestPrioritize(t *testing.T) {
	cpu := []policy.ResourceWeight{{Name: "cpu", Weight: 1}}
	tests := map[string]struct {
		scoring policy.Prioritize
		reserve string // the node the pod has a reservation on
		want    map[string]int64
	}{
		// The pod asks for 1000m and 1G. Nodes of 4000m and 4G: idle has nothing
		// on it, half has 2000m and 0.
		"MostAllocated": {
			scoring: policy.Prioritize{Resources: cpu},
			want:    map[string]int64{"idle": 3, "half": 8, "unknown": 0},
		},
		"weights": {
			scoring: policy.Prioritize{Resources: []policy.ResourceWeight{
				{Name: "cpu", Weight: 3},
				{Name: "memory", Weight: 1},
			}},
			want: map[string]int64{"idle": 3, "half": 6},
		},
		"a resource the pod does not ask for": {
			scoring: policy.Prioritize{Resources: []policy.ResourceWeight{
				{Name: "cpu", Weight: 1},
				{Name: "example.com/gpu", Weight: 100},
			}},
			want: map[string]int64{"idle": 3, "half": 8},
		},
		"a resource nobody has": {
			scoring: policy.Prioritize{Resources: []policy.ResourceWeight{{Name: "example.com/none", Weight: 100}}},
			want:    map[string]int64{"idle": 0},
		},
		"reservation by half": {
			// idle has the pod's 1000m in its use already: 25 of 100.
			scoring: policy.Prioritize{Resources: cpu, ReservationMatch: 5}, reserve: "idle",
			want: map[string]int64{"idle": 6, "half": 4},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w, p := newWorld(t), newPod("p")
			w.create(p)
			w.score(tt.scoring)
			_, ok := w.Ledger.Table().Intern("example.com/gpu")
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
				var got extenderv1.HostPriorityList
				w.ask("prioritize", args, &got)
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
	tests := map[string]struct {
		candidates map[string]*extenderv1.MetaVictims
		kept       map[string]*extenderv1.MetaVictims
	}{
		"enough goes": {
			candidates: map[string]*extenderv1.MetaVictims{"n": meta(2, "big")},
			kept:       map[string]*extenderv1.MetaVictims{"n": meta(2, "big")},
		},
		"too little goes": {candidates: map[string]*extenderv1.MetaVictims{"n": meta(0, "small")}},
		"one of two nodes": {
			candidates: map[string]*extenderv1.MetaVictims{"n": meta(0, "small", "big"), "m": meta(0, "small")},
			kept:       map[string]*extenderv1.MetaVictims{"n": meta(0, "small", "big")},
		},
		// kube-scheduler sends these from Kubernetes 1.38 on.
		"no victims where it fits": {
			candidates: map[string]*extenderv1.MetaVictims{"idle": meta(0)},
			kept:       map[string]*extenderv1.MetaVictims{"idle": meta(0)},
		},
		"no victims where it does not fit": {candidates: map[string]*extenderv1.MetaVictims{"n": meta(0)}},
		"no victims beside some": {
			candidates: map[string]*extenderv1.MetaVictims{"idle": meta(0), "n": meta(1, "big"), "m": meta(0)},
			kept:       map[string]*extenderv1.MetaVictims{"idle": meta(0), "n": meta(1, "big")},
		},
		"null for victims": {candidates: map[string]*extenderv1.MetaVictims{"n": nil}},
		"null for a victim": {candidates: map[string]*extenderv1.MetaVictims{
			"n": {Pods: []*extenderv1.MetaPod{nil}},
		}},
		"a victim without UID": {candidates: map[string]*extenderv1.MetaVictims{"n": meta(0, "")}},
		"null for a victim next to one": {candidates: map[string]*extenderv1.MetaVictims{
			"n": {Pods: []*extenderv1.MetaPod{nil, {UID: "big"}}},
		}, kept: map[string]*extenderv1.MetaVictims{"n": meta(0, "big")}},
		"the same victim twice": {candidates: map[string]*extenderv1.MetaVictims{"n": meta(0, "small", "small")}},
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
			want := tt.kept
			if want == nil {
				want = map[string]*extenderv1.MetaVictims{}
			}
			var got extenderv1.ExtenderPreemptionResult
			w.ask("preempt", extenderv1.ExtenderPreemptionArgs{Pod: p, NodeNameToMetaVictims: tt.candidates}, &got)
			assert.Equal(t, want, got.NodeNameToMetaVictims)
			result := map[bool]string{true: "granted", false: "refused"}[len(want) > 0]
			assert.Equal(t, 1, w.Counted(t, "decisions_total", "preempt", "scheduler", result))
		})
	}
}

// Schedulers without a cache of nodes send whole pods.
func TestPreemptWithWholePods(t *testing.T) {
	w := newWorld(t)
	w.node("n", 4000, 4e9)
	w.run("big", "n", 3500, 0)
	var got extenderv1.ExtenderPreemptionResult
	w.ask("preempt", `{"Pod":`+podText(t)+
		`,"NodeNameToVictims":{"m":null,"n":{"NumPDBViolations":2,"Pods":[null,{"metadata":{"uid":"big"}}]}}}`, &got)
	assert.Equal(t, map[string]*extenderv1.MetaVictims{"n": {
		NumPDBViolations: 2,
		Pods:             []*extenderv1.MetaPod{{UID: "big"}},
	}}, got.NodeNameToMetaVictims)
}

func TestBind(t *testing.T) {
	full := func(w *world, _ *v1.Pod) { w.run("other", "n", 3500, 0) }
	tests := map[string]struct {
		setup    func(w *world, p *v1.Pod)
		node     string
		unknown  bool // nothing is known of the pod
		result   string
		message  string
		reason   string // the ledger's
		conflict string // the resource of the conflict that is counted, if one is
	}{
		"success": {result: "granted"},
		"refused": {
			reason: "InsufficientResource",
			setup:  full, result: "refused",
			message: `node "n" has too little cpu for pod ns/p: requested 1 CPU, 0.5 free`, conflict: "cpu",
		},
		"refused a port": {
			reason: "HostPortConflict",
			setup: func(w *world, p *v1.Pod) {
				p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
				w.run("other", "n", 0, 0, resources.HostPort{
					PortKey: resources.PortKey{Protocol: "TCP", Port: 8080},
					IP:      "0.0.0.0",
				})
			},
			result: "refused", message: "hostPort/TCP/8080 on node", conflict: "hostPort",
		},
		"refused, but not for capacity": {
			node: "unheard-of", reason: "NodeUnknown", result: "refused",
			message: "is not in the ledger",
		},
		"gone": {
			setup: func(w *world, p *v1.Pod) { p.Name = "another" }, unknown: true, result: "pod_gone", message: "was deleted",
		},
		"unknown": {
			setup: func(w *world, _ *v1.Pod) {
				w.api.refuse = func() error {
					w.API.Answer(0, errDown)
					return errDown
				}
			},
			result: "unknown", message: "not known yet",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, p := newWorld(t), newPod("p")
				defer func() { assert.NoError(t, w.o.Arbiter.Stop(t.Context())) }()
				w.node("n", 4000, 4e9)
				if tt.setup != nil {
					tt.setup(w, p)
				}
				w.create(p)
				node := cmp.Or(tt.node, "n")
				var got bindAnswer
				w.ask("bind", extenderv1.ExtenderBindingArgs{PodName: "p", PodNamespace: "ns", PodUID: "uid-p", Node: node}, &got)
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
				if tt.conflict == "" {
					assert.Zero(t, w.Counted(t, "conflicts_total"))
				} else {
					assert.Equal(t, 1, w.Counted(t, "conflicts_total", "scheduler", tt.conflict))
				}

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
		})
	}
}

func TestMalformed(t *testing.T) {
	pod := `{"metadata":{"namespace":"ns","name":"p","uid":"u"}}`
	long := strings.Repeat("a", 254)
	args := func(pod string) string { return `{"Pod":` + pod + `,"NodeNames":["n"]}` }
	bind := func(name, namespace, uid, node string) string {
		return fmt.Sprintf(`{"PodName":%q,"PodNamespace":%q,"PodUID":%q,"Node":%q}`, name, namespace, uid, node)
	}
	tests := map[string]struct {
		verbs   string
		body    string
		code    int
		message string
	}{
		"no body": {"filter prioritize preempt bind", "", 400, "empty"},
		"too large": {
			"filter prioritize preempt", args(`{"a":"` + strings.Repeat("a", 1<<20) + `"}`), 413,
			"larger than the limit",
		},
		"no nodes":           {"filter prioritize", `{"Pod":` + pod + `,"Nodes":null,"NodeNames":null}`, 400, "both missing"},
		"no pod":             {"filter prioritize preempt", `{"NodeNames":["n"]}`, 400, "Pod is missing"},
		"a pod that is text": {"filter prioritize preempt", args(`"p"`), 400, "Pod: "},
		"an empty pod":       {"filter prioritize preempt", args("{}"), 400, "is missing"},
		"no name": {
			"filter prioritize preempt", args(`{"metadata":{"namespace":"ns","uid":"u"}}`), 400,
			"Pod.metadata.name is missing",
		},
		"no namespace": {
			"filter prioritize preempt", args(`{"metadata":{"name":"p","uid":"u"}}`), 400,
			"Pod.metadata.namespace is missing",
		},
		"no UID": {
			"filter prioritize preempt", args(`{"metadata":{"namespace":"ns","name":"p"}}`), 400,
			"Pod.metadata.uid is missing",
		},
		"a long UID": {
			"filter prioritize preempt", args(`{"metadata":{"namespace":"ns","name":"p","uid":"` + long + `"}}`),
			400, "longer than 253",
		},
		"a quantity that takes seconds": {
			"filter prioritize preempt",
			args(`{"metadata":{"namespace":"ns","name":"p","uid":"u"},` +
				`"spec":{"containers":[{"resources":{"requests":{"cpu":"0.1e-30000000"}}}]}}`), 400,
			"/spec/containers/0/resources/requests/cpu",
		},
		"names in an object": {"filter prioritize", `{"Pod":` + pod + `,"NodeNames":{}}`, 400, "/NodeNames"},
		"items that are no nodes": {"filter prioritize", `{"Pod":` + pod +
			`,"Nodes":{"items":["n"]}}`, 400, "/Nodes/items/0"},
		"a node without a name": {"filter prioritize", `{"Pod":` + pod +
			`,"Nodes":{"items":[{"metadata":{}}]}}`, 400, "Nodes.items[0].metadata.name is missing"},
		"victims that are no pods": {
			"preempt", `{"Pod":` + pod + `,"NodeNameToVictims":{"n":{"Pods":["a"]}}}`, 400,
			"/NodeNameToVictims/n/Pods/0",
		},
		"bind: no node":           {"bind", bind("p", "ns", "u", ""), 400, "Node is missing"},
		"bind: a path for a name": {"bind", bind("../p", "ns", "u", "n"), 400, "PodName"},
		"bind: NUL in a name": {
			"bind", `{"PodName":"p\u0000","PodNamespace":"ns","PodUID":"u","Node":"n"}`, 400,
			"PodName",
		},
		"bind: a line feed":        {"bind", bind("p", "ns", "u\nx", "n"), 400, "PodUID"},
		"bind: a long UID":         {"bind", bind("p", "ns", long, "n"), 400, "PodUID"},
		"bind: a dotted namespace": {"bind", bind("p", "n.s", "u", "n"), 400, "PodNamespace"},
		"bind: a node in capitals": {"bind", bind("p", "ns", "u", "Node"), 400, "Node"},
		"bind: too large": {"bind", `{"PodName":"` + strings.Repeat("a", 65<<10) +
			`"}`, 413, "larger than the limit"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, verb := range strings.Fields(tt.verbs) {
				w := newWorld(t)
				w.o.MaxBody = 1 << 20
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

// A short entry of a body must not become a long one of an answer any number of
// times.
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
