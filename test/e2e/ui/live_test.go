//go:build e2e

package ui

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	raceNodes = 20
	nodeCPU   = 4000
	raceLooks = 15
)

// cluster has two servers: the page of the leader is open to whoever reaches it, and that of the follower asks for
// tokens.
type cluster struct {
	testbed.Cluster
	nodes         []string
	page, guarded *documented
	browser       *browser
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Cluster: testbed.NewCluster(t, shared.StartT(t))}
	for pool, nodes := range map[string]int{"batch": raceNodes / 3, "general": raceNodes - raceNodes/3} {
		c.nodes = append(c.nodes, c.AddNodes(nodes, controlplane.NodeTemplate{Prefix: pool +
			"-", Labels: map[string]string{"karpenter.sh/nodepool": pool}})...)
	}
	slices.Sort(c.nodes)
	ports := []int{c.port(), c.port()}
	c.StartServer(clusterload.ServerOptions{Args: []string{fmt.Sprintf("--ui-address=127.0.0.1:%d", ports[0])}})
	testbed.StartServer(t, c.ControlPlane, clusterload.ServerOptions{
		Name: "follower", Args: []string{fmt.Sprintf("--ui-address=0.0.0.0:%d", ports[1]), "--allow-insecure-http"},
	})
	c.page = newDocumented(t, fmt.Sprintf("http://127.0.0.1:%d", ports[0]))
	c.guarded = newDocumented(t, fmt.Sprintf("http://127.0.0.1:%d", ports[1]))
	return c
}

func (c *cluster) port() int {
	c.T.Helper()
	port, err := c.FreePort()
	require.NoError(c.T, err)
	return port
}

func (c *cluster) in(t *testing.T) *cluster {
	inner, b := *c, *c.browser
	b.t, inner.T, inner.browser = t, t, &b
	return &inner
}

// TestLive looks at a cluster as a visitor does.
func TestLive(t *testing.T) {
	c := newCluster(t)
	c.browser = startBrowser(t)
	c.browser.open(c.page.URL)
	c.browser.wait(soon, "globalreserve.account.value?.nodes.size === %d", raceNodes)
	for _, test := range []struct {
		name string
		run  func(*cluster)
	}{
		{"race", race},
		{"waiting", waiting},
		{"conflicts", conflicts},
		{"node", node},
		{"reservations", reservations},
		{"a lost connection", lostConnection},
		{"keyboard", keyboard},
	} {
		require.True(t, t.Run(test.name, func(t *testing.T) { test.run(c.in(t)) }))
	}
	for name, test := range map[string]func(*cluster){"tenant": tenant, "stranger": stranger} {
		t.Run(name, func(t *testing.T) { test(c.in(t)) })
	}
}

func (c *cluster) revision() uint64 {
	c.T.Helper()
	var answer reserver.RevisionAnswer
	require.NoError(c.T, c.Ledger.Get(c.T.Context(), "/v1/revision", &answer))
	return answer.Revision
}

// race: two schedulers ask for more than there is, and the map follows them.
func race(c *cluster) {
	c.CreateReservation("kept",
		fmt.Sprintf(`{ttl: 1h, consumers: {index: nobody}, slots: [{name: a, nodeName: %s, requests: {cpu: 2}}, {name: b, nodeName: %s, requests: {cpu: 1}}]}`,
			c.nodes[1], c.nodes[2]))
	c.AwaitReservation("kept", v1alpha1.ReservationAvailable)
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	c.StartKubeScheduler("second-scheduler", "second-scheduler.yaml")
	pods := clusterload.Race(clusterload.RaceOptions{
		Namespace: testbed.Namespace, Capacity: raceNodes * nodeCPU, Percent: 120,
		Sizes: []corev1.ResourceList{
			testbed.Requests("500m"), testbed.Requests("1"), testbed.Requests("750m"),
			testbed.Requests("1500m"),
		},
		Schedulers: []string{"default-scheduler", "second-scheduler"},
	})
	created := make(chan error, 1)
	go func() { created <- clusterload.CreatePods(c.T.Context(), c.Client(), pods) }()
	var late []time.Duration
	for range raceLooks {
		revision, began := c.revision(), time.Now()
		c.browser.wait(soon, `(a => a.revision >= %d && !a.dirty.size)(globalreserve.account.value)`, revision)
		late = append(late, time.Since(began))
		<-time.After(100 * time.Millisecond)
	}
	require.NoError(c.T, <-created)
	slices.Sort(late)
	c.T.Logf("the map is late by %s at most, %s mostly", late[len(late)-1], late[len(late)/2])
	c.Eventually(func(t *assert.CollectT) {
		snapshot := c.Watcher.Snapshot()
		assert.NotZero(t, snapshot.Pending)
		assert.Equal(t, len(pods), snapshot.Bound+snapshot.Pending)
		assert.Greater(t, snapshot.Bound, raceNodes)
	})
	c.sameAsServer()
	c.browser.shows("default-scheduler")
	assert.Equal(c.T, "0 nodes overcommitted", c.one("[data-testid=overcommitted]"))
	c.browser.fine("map")
	c.cells()
	c.choices()
}

// one is the text of what a selector finds.
func (c *cluster) one(selector string) (text string) {
	c.T.Helper()
	c.browser.do(command{Do: "eval", Script: fmt.Sprintf("document.querySelector(%q).innerText", selector)}, &text)
	return text
}

// sameAsServer waits until the page has what the server answers.
func (c *cluster) sameAsServer() {
	c.T.Helper()
	type usage struct{ Allocatable, Bound, Reserved, Free int64 }
	c.Eventually(func(t *assert.CollectT) {
		answer, err := c.Ledger.Nodes(c.T.Context())
		require.NoError(t, err)
		want, shown := map[string]usage{}, map[string]usage{}
		for _, n := range answer.Nodes {
			for _, r := range []string{"cpu", "memory", "pods"} {
				a := n.Resources[r]
				want[n.Name+" "+r] = usage{a.Allocatable, a.Bound, a.Reserved, a.Free}
			}
		}
		require.NoError(t, c.browser.try(command{
			Do: "eval",
			Script: `(() => { const a = globalreserve.account.value, all = {};
			for (const n of a.nodes.values()) for (const r of ['cpu', 'memory', 'pods']) all[n.name + ' ' + r] = a.usage(n, r)
			return all })()`,
		}, &shown))
		assert.Equal(t, want, shown)
	})
}

// waiting: the row of a pod that waits says what kubectl reserve explain says.
func waiting(c *cluster) {
	c.browser.open(c.page.URL + "/#/waiting")
	c.browser.wait(soon, "document.querySelectorAll('[data-pod]').length > 0")
	plugin := testbed.File(c.T, "bin", "kubectl-reserve")
	var pod, row string
	var answer reserver.ExplainAnswer
	c.Eventually(func(t *assert.CollectT) {
		require.NoError(t, c.browser.try(command{Do: "eval", Script: "document.querySelector('[data-pod]').dataset.pod"},
			&pod))
		_, name, _ := strings.Cut(pod, "/")
		said, err := exec.CommandContext(c.T.Context(), plugin, "explain", name, "-n", testbed.Namespace, "--ledger-url",
			c.Ledger.URL, "-o", "yaml").CombinedOutput()
		require.NoError(t, err, string(said))
		answer = reserver.ExplainAnswer{}
		require.NoError(t, c.Ledger.Get(c.T.Context(), testbed.ExplainPath+"?namespace="+testbed.Namespace+"&pod="+name,
			&answer))
		require.Contains(t, flat(string(said)), flat(answer.Message))
		require.NoError(t, c.browser.try(command{
			Do:     "eval",
			Script: fmt.Sprintf("document.querySelector('[data-pod=%q]').innerText", pod),
		}, &row))
		assert.Contains(t, flat(row), flat(answer.Message))
		assert.Contains(t, flat(row), answer.Closest.Node)
		assert.Contains(t, row, "CPU", "amounts have units")
	})
	c.askWhatIf(pod, answer.Closest)
	c.CreatePod("rank-0", testbed.Nobody, "1", func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{"globalreserve.io/gang": "train", "globalreserve.io/gang-min": "4"}
	})
	c.browser.wait(soon, `/default\/train.*\tIncomplete\t4\t0\t/.test(document.body.innerText)`)
	c.browser.fine("waiting")
	c.browser.picture("waiting")
	c.Delete("rank-0")
}

// askWhatIf asks whether a pod would fit without the first pod that holds what it lacks, and knows the answer.
func (c *cluster) askWhatIf(pod string, closest *reserver.ClosestNode) {
	first := slices.IndexFunc(closest.Holders, func(h reserver.Holder) bool { return h.Pod != "" })
	require.GreaterOrEqual(c.T, first, 0)
	gone := closest.Holders[first]
	says := fmt.Sprintf("node %q has too little cpu for pod %s", closest.Node, pod)
	if gone.Amount >= closest.Missing[0].Missing {
		says = fmt.Sprintf("it would fit on %s.", closest.Node)
	}
	c.browser.click(fmt.Sprintf(`[data-pod=%q] button[aria-label="if gone? %s/%s"]`, pod, gone.Namespace, gone.Pod))
	c.browser.shows(fmt.Sprintf("Without %s/%s: %s", gone.Namespace, gone.Pod, says))
}

// flat makes nothing of how a text is wrapped.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// conflicts: who was refused, and a pod that was bound without asking.
func conflicts(c *cluster) {
	c.browser.open(c.page.URL + "/#/map")
	c.browser.click("input[type=checkbox]")
	c.CreatePod("bypasses", testbed.Nobody, "3500m", func(pod *corev1.Pod) { pod.Spec.NodeName = c.nodes[0] })
	c.browser.shows("1 node overcommitted, by ")
	c.browser.wait(soon, "(%s)[%q] > 0", pixels(c.nodes[0]), "211,33,45")
	c.browser.fine("map by pool")
	c.browser.picture("map")
	c.browser.open(c.page.URL + "/#/conflicts")
	c.browser.shows("Who was refused, by who holds most")
	c.browser.shows("1 pod bound without asking")
	c.browser.wait(soon, "document.querySelectorAll('.uplot canvas').length === 1")
	c.browser.fine("conflicts")
	c.browser.picture("conflicts")
}

// node: all about one node, as it changes.
func node(c *cluster) {
	c.browser.open(c.page.URL + "/#/node/" + c.nodes[0])
	const listed = "[...document.querySelectorAll('th')].some(t => t.innerText === 'default/bypasses')"
	c.browser.wait(soon, listed)
	c.Delete("bypasses")
	c.browser.wait(soon, "!"+listed)
	c.browser.shows("pod default/bypasses is gone")
	c.browser.fine("node")
	c.browser.open(c.page.URL + "/#/node/" + c.nodes[1])
	c.browser.shows("Node " + c.nodes[1])
	c.CreateDevice("card", c.nodes[1], "H100")
	c.browser.shows("-scheduler\tBound\t")
	c.browser.wait(soon, `/default\/kept\/a\t.*2 CPU\t2 CPU\t.*\t\d+m$/m.test(document.body.innerText)`)
	c.browser.wait(soon, "document.querySelector('.tile.free')?.innerText.includes('nvidia.com/gpu')")
	c.draDevices(c.nodes[1]) // of which the watch does not tell
	c.browser.wait(soon, "document.querySelector('.tile.had')?.innerText.includes(%q)",
		"claim default/inference for pod server-0")
	c.browser.fine("node with devices")
	c.browser.picture("node")
}

// reservations: one appears, is used, and expires.
func reservations(c *cluster) {
	require.NoError(c.T, clusterload.DeletePods(c.T.Context(), c.Client(), testbed.Namespace))
	c.browser.open("about:blank")
	c.browser.open(c.page.URL + "/#/reservations") // anew: what was there before has its beginning all the same
	c.row("default/kept/a", "unused")
	_, err := c.Reservations().Patch(c.T.Context(), "kept", types.MergePatchType, fmt.Appendf(nil, `{"metadata": {
		"labels": {%q: "drain-1"}, "annotations": {%q: "node-a,node-b", %q: "the budget"}
	}}`, v1alpha1.DrainLabel, v1alpha1.DrainedNodesAnnotation, v1alpha1.DrainWaitsForAnnotation), metav1.PatchOptions{})
	require.NoError(c.T, err)
	c.browser.wait(soon, "/drain-1\\s+node-a, node-b\\s+0\\s+2\\s+kept: the budget/.test(document.querySelector("+
		"'[data-drain=drain-1]')?.innerText)")
	c.CreateReservation("short",
		fmt.Sprintf(`{ttl: 30s, consumers: {index: nobody}, slots: [{name: a, nodeName: %s, requests: {cpu: 1}}]}`,
			c.nodes[3]))
	c.CreateReservation("large", `{ttl: 10m, slots: [{name: a, requests: {cpu: 400}}]}`)
	c.CreateReservation("shared",
		fmt.Sprintf(
			`{ttl: 10m, allocatePolicy: Aligned, consumers: {selector: {}}, slots: [{name: a, nodeName: %s, requests: {cpu: 2}}]}`, c.nodes[1],
		))
	c.row("default/short/a", "ends in")
	c.row("default/shared/a", "unused")
	c.AwaitReservation("shared", v1alpha1.ReservationAvailable)
	require.Empty(c.T, c.Bind(c.CreatePod("user", testbed.Nobody, "1"), c.nodes[1]))
	c.row("default/shared/a", "used by user")
	unused, used := c.bar("default/kept/a"), c.bar("default/shared/a")
	assert.Greater(c.T, used[0], unused[0], "it began after what was there when the page was opened")
	assert.Zero(c.T, unused[1])
	assert.InDelta(c.T, 0.5, used[1], 0.01, "half of it is used")
	c.browser.fine("reservations")
	c.browser.picture("reservations")
	c.row("default/short/a", "expired")
	c.browser.shows("cpu: asks 400 CPU, at most ")
	assert.NotContains(c.T, c.browser.text(), "pods: asks", "every node has room for one pod more")
	for _, name := range []string{"large", "shared", "kept"} {
		require.NoError(c.T, c.Reservations().Delete(c.T.Context(), name, metav1.DeleteOptions{}))
	}
}

// bar is where the bar of a slot begins, in pixels, and which share of it is used. It fails where nobody knows when it
// began.
func (c *cluster) bar(slot string) (of []float64) {
	c.T.Helper()
	c.browser.do(command{Do: "eval", Script: fmt.Sprintf(`(row => {
		if (row.querySelector('.slot.open')) throw new Error('it is not told when it began')
		const hollow = row.querySelector('.hollow'), solid = row.querySelector('.solid')
		return [hollow.x.baseVal.value - 0.5, (solid?.height.baseVal.value ?? 0) / (hollow.height.baseVal.value + 1)]
	})(document.querySelector('[data-slot=%q]'))`, slot)}, &of)
	return of
}

// row waits until the row of a slot has a text.
func (c *cluster) row(slot, text string) {
	c.T.Helper()
	c.browser.wait(soon, "document.querySelector('[data-slot=%q]')?.innerText.includes(%q)", slot, text)
}

// lostConnection: what happens while the connection is lost is told later, without a new snapshot, and all numbers are
// right.
func lostConnection(c *cluster) {
	c.browser.open(c.page.URL + "/#/map")
	c.browser.do(command{Do: "eval", Script: "window.before = globalreserve.account.value, true"}, nil)
	c.page.cut()
	c.browser.shows("connection lost")
	for i := range 8 {
		c.CreatePod(fmt.Sprintf("meanwhile-%d", i), testbed.Nobody, "250m",
			func(pod *corev1.Pod) { pod.Spec.NodeName = c.nodes[i] })
	}
	c.Delete("user")
	c.page.mend()
	c.browser.shows("live")
	c.sameAsServer()
	var same bool
	c.browser.do(command{Do: "eval", Script: "window.before === globalreserve.account.value"}, &same)
	assert.True(c.T, same, "the account was loaded anew")

	// Another run of the server, or the follower: nothing of before can be gone on with.
	require.NoError(c.T, c.Server.Kill())
	require.NoError(c.T, c.Server.Start(c.T.Context()))
	c.browser.wait(soon, "window.before !== globalreserve.account.value")
	c.browser.shows("live")
	c.sameAsServer()
}

// keyboard: a node can be found, and opened, without a mouse.
func keyboard(c *cluster) {
	c.browser.open(c.page.URL + "/#/map")
	c.browser.wait(soon, "document.querySelector('canvas')?.height > 40")
	for _, key := range []string{"Home", "ArrowRight", "ArrowRight"} {
		c.browser.do(command{Do: "press", Selector: "canvas", Text: key}, nil)
	}
	c.browser.shows("of batch: of 4 CPU")
	c.browser.do(command{Do: "press", Selector: "canvas", Text: "Enter"}, nil)
	c.browser.shows("Last changes")
}
