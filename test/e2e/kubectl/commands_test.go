package kubectl

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
)

// TestCommands goes the way of somebody who keeps room, sees a pod wait for it, finds out why and gives
// the room back.
func TestCommands(t *testing.T) {
	b := newBench(t)
	config, err := clusterload.SchedulerConfig("default-scheduler.yaml", b.server.URL)
	require.NoError(t, err)
	require.NoError(t, b.StartScheduler(t.Context(), "default-scheduler", config))

	for _, step := range []struct {
		name string
		run  func(*bench)
	}{
		{"version", (*bench).checkVersion},
		{"nodes", (*bench).checkNodes},
		{"create", (*bench).checkCreate},
		{"create what does not fit", (*bench).checkTooLarge},
		{"list", (*bench).checkList},
		{"describe", (*bench).checkDescribe},
		{"pods", (*bench).checkPods},
		{"explain", (*bench).checkExplain},
		{"completion", (*bench).checkCompletion},
		{"delete", (*bench).checkDelete},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(b.in(t)) }) {
			return // each step stands on those before
		}
	}
}

func (b *bench) checkVersion() {
	out := b.must(b.ask("version"))
	assert.Contains(b.t, out, "Client: globalreserve ")
	assert.Contains(b.t, out, "Server: globalreserve ")
}

func (b *bench) checkNodes() {
	out := b.must(b.ask("nodes"))
	assert.Equal(b.t, []string{"NODE", "STATUS", "RESOURCE", "ALLOCATABLE", "BOUND", "RESERVED", "FREE", "USE"}, strings.Fields(line(b.t, out, "NODE")))
	for _, node := range b.nodes {
		assert.Equal(b.t, []string{node, "OK", "cpu", "4", "0", "0", "4", "[....................]", "0%"}, strings.Fields(line(b.t, out, node)))
	}
	assert.Equal(b.t, "node/"+b.nodes[0]+"\nnode/"+b.nodes[1]+"\n", b.must(b.ask("nodes", "-o", "name")))

	got := b.ask("nodes", "nowhere")
	assert.Equal(b.t, 1, got.code)
	assert.Contains(b.t, got.err, `node "nowhere" is not in the ledger`)
}

// checkCreate keeps 3 of 4 CPUs on both nodes.
func (b *bench) checkCreate() {
	out := b.must(b.run("create", "room", "--cpu", "3", "--memory", "1Gi", "--replicas", "2", "--index", "later", "--ttl", "1h", "--wait"))
	assert.Contains(b.t, out, "reservation.globalreserve.io/room created\n")
	assert.Contains(b.t, out, "reservation.globalreserve.io/room available on "+b.nodes[0]+" +1\n")

	out = b.must(b.ask("nodes"))
	for _, node := range b.nodes {
		assert.Equal(b.t, []string{node, "OK", "cpu", "4", "0", "3", "1", "[===============.....]", "75%"}, strings.Fields(line(b.t, out, node)))
	}

	got := b.run("create", "room", "--cpu", "1")
	assert.Equal(b.t, 1, got.code)
	assert.Contains(b.t, got.err, `create reservation "room": reservations.globalreserve.io "room" already exists`)
	got = b.run("create", "other", "--cpu", "1", "-n", "nowhere")
	assert.Equal(b.t, 1, got.code)
	assert.Contains(b.t, got.err, `namespaces "nowhere" not found`)
	out = b.must(b.run("create", "other", "--cpu", "1", "--dry-run=server", "-o", "yaml"))
	assert.Contains(b.t, out, "uid: ", "the API server has seen it")
	// What the plugin leaves to the schema to refuse.
	got = b.run("create", "other", "--cpu", "1", "--scheduler", strings.Repeat("n", 254))
	assert.Equal(b.t, 1, got.code)
	assert.Contains(b.t, got.err, "spec.schedulerName")
}

func (b *bench) checkTooLarge() {
	got := b.run("create", "large", "--cpu", "100", "--wait=2s")
	assert.Equal(b.t, 4, got.code)
	assert.Equal(b.t, "reservation.globalreserve.io/large created\n", got.out)
	assert.Contains(b.t, got.err, `reservation "large" is not available after 2s: Pending: `)
	assert.Contains(b.t, got.err, "cpu", "it says what is missing")
	b.must(b.run("delete", "large"))
}

func (b *bench) checkList() {
	out := b.must(b.run("list"))
	cells := strings.Fields(line(b.t, out, "room"))
	assert.Equal(b.t, []string{"room", b.nodes[0], "+1", "Available", "0/2", "in"}, cells[:6])
	assert.Equal(b.t, "reservation.globalreserve.io/room\n", b.must(b.run("list", "-A", "-o", "name")))

	var list struct {
		Kind  string
		Items []struct {
			Kind   string
			Status struct{ Phase string }
		}
	}
	require.NoError(b.t, json.Unmarshal([]byte(b.must(b.run("list", "-o", "json"))), &list))
	require.Len(b.t, list.Items, 1)
	assert.Equal(b.t, "ReservationList", list.Kind)
	assert.Equal(b.t, "Reservation", list.Items[0].Kind)
	assert.Equal(b.t, "Available", list.Items[0].Status.Phase)

	got := b.run("list", "-n", "kube-system")
	assert.Equal(b.t, 0, got.code)
	assert.Equal(b.t, "There are no reservations in namespace kube-system.\n", got.err)
}

func (b *bench) checkDescribe() {
	out := b.must(b.run("describe", "room"))
	for _, part := range []string{
		"Status:           Available", `pods with the index "later"`, "TTL:              1h0m0s", "room-0", "room-1", "cpu 3, memory 1Gi", "Conditions:",
	} {
		assert.Contains(b.t, out, part)
	}
	got := b.run("describe", "nobody")
	assert.Equal(b.t, 1, got.code)
	assert.Contains(b.t, got.err, `describe reservation "nobody" in namespace "default": reservations.globalreserve.io "nobody" not found`)
}

func (b *bench) checkPods() {
	b.createPod("small", "default-scheduler", "500m")
	b.eventually(func(t *assert.CollectT) { assert.NotEmpty(t, b.getPod(t, "small").Spec.NodeName) })
	node := b.getPod(b.t, "small").Spec.NodeName
	b.eventually(func(t *assert.CollectT) {
		assert.Equal(t, []string{"default-scheduler", "small", "Bound", node, "0.5", "0", "<none>", "<none>"},
			strings.Fields(line(t, b.ask("pods").out, "default-scheduler")))
	})
	assert.Equal(b.t, []string{"default-scheduler", "Bound", "1", "0.5", "0", "<none>"},
		strings.Fields(line(b.t, b.must(b.ask("pods", "-A", "--summary")), "default-scheduler")))
	assert.Contains(b.t, b.must(b.ask("nodes", node)), "small")
	assert.Contains(b.t, b.must(b.ask("explain", "small")), "State:      Bound")
}

// checkExplain has a pod wait for room that a reservation holds.
func (b *bench) checkExplain() {
	b.createPod("waiting", "default-scheduler", "2")
	b.eventually(func(t *assert.CollectT) {
		for _, c := range b.getPod(t, "waiting").Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
				return
			}
		}
		assert.Fail(t, "the scheduler has not refused it yet")
	})
	out := b.must(b.ask("explain", "waiting"))
	for _, part := range []string{
		"Pod:        default/waiting", "State:      Pending", "Scheduler:  default-scheduler", "Requests:   cpu 2", "Room on:    0 of 2 nodes",
		"reservation/default/room/room-",
	} {
		assert.Contains(b.t, out, part)
	}
	assert.Equal(b.t, []string{"2", "InsufficientResource", "cpu", b.nodes[0] + ",", b.nodes[1]}, strings.Fields(line(b.t, out, "  2 ")))
	assert.Equal(b.t, []string{"cpu", "2", "1", "1"}, strings.Fields(line(b.t, out, "  cpu ")))

	got := b.ask("explain", "nobody")
	assert.Equal(b.t, 1, got.code)
	assert.Contains(b.t, got.err, `"default/nobody" is not known`)
}

func (b *bench) checkCompletion() {
	assert.Contains(b.t, b.run("__complete", "describe", "").out, "room\n")
	assert.Contains(b.t, b.run("__complete", "nodes", "").out, b.nodes[0]+"\n")
	out := b.run("__complete", "explain", "").out
	assert.Contains(b.t, out, "waiting\n")
	assert.NotContains(b.t, out, "small\n", "it has a node")
}

// checkDelete gives the room back, which the waiting pod then gets, and watches it go.
func (b *bench) checkDelete() {
	watching := b.command(b.t.Context(), "list", "--watch")
	file, err := os.Create(b.t.TempDir() + "/out")
	require.NoError(b.t, err)
	defer file.Close()
	watching.Stdout = file
	require.NoError(b.t, watching.Start())
	watched := func() string {
		content, err := os.ReadFile(file.Name())
		require.NoError(b.t, err)
		return string(content)
	}
	b.eventually(func(t *assert.CollectT) { assert.Contains(t, watched(), "room") })

	assert.Equal(b.t, "reservation.globalreserve.io/room deleted\n", b.must(b.run("delete", "room")))
	b.eventually(func(t *assert.CollectT) { assert.NotEmpty(t, b.getPod(t, "waiting").Spec.NodeName) })
	b.eventually(func(t *assert.CollectT) { assert.Equal(t, 2, strings.Count(watched(), "room"), watched()) })
	require.NoError(b.t, watching.Process.Signal(syscall.SIGINT))
	require.NoError(b.t, watching.Wait(), "an interrupt is how a watch ends")

	got := b.run("delete", "room")
	assert.Equal(b.t, 1, got.code)
	assert.Contains(b.t, got.err, `"room" not found`)
	b.must(b.run("delete", "room", "--ignore-not-found"))
	_, err = b.Client().CoreV1().Pods(namespace).Get(b.t.Context(), "small", metav1.GetOptions{})
	require.NoError(b.t, err)
}

// line returns the first line of a text that starts with prefix.
func line(t require.TestingT, text, prefix string) string {
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, prefix) {
			return l
		}
	}
	require.Fail(t, "there is no such line", "%q in\n%s", prefix, text)
	return ""
}
