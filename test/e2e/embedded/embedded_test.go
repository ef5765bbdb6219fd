package embedded

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	nodes   = 50
	nodeCPU = 4000 // milli-CPU
	name    = "embedded-scheduler"
)

// startEmbedded builds and starts the example, and returns where its server serves.
func startEmbedded(t *testing.T, cp *controlplane.ControlPlane) (process *controlplane.Process, url string) {
	t.Helper()
	kubeconfig, err := clusterload.ServerKubeconfig(t.Context(), cp) // the server's own rights are enough
	require.NoError(t, err)
	port, err := cp.FreePort()
	require.NoError(t, err)
	url = "http://127.0.0.1:" + strconv.Itoa(port)
	process, err = cp.StartProcess(t.Context(), controlplane.ProcessOptions{
		Name: name, Path: testbed.Program(t, "embedded"), Args: []string{"--kubeconfig=" + kubeconfig, "--port=" + strconv.Itoa(port)},
		Ready: controlplane.HTTPReady(url+"/readyz", nil), ReadyTimeout: time.Minute,
	})
	require.NoError(t, err)
	return process, url
}

// race is a cluster in which an embedded scheduler and a kube-scheduler, which asks it, are about to
// ask for 120% of what there is.
type race struct {
	*controlplane.ControlPlane
	watcher *clusterload.Watcher
	process *controlplane.Process
	url     string
}

func newRace(t *testing.T) *race {
	t.Helper()
	cp := shared.StartT(t)
	_, err := cp.CreateNodes(t.Context(), nodes, controlplane.NodeTemplate{})
	require.NoError(t, err)
	r := &race{ControlPlane: cp, watcher: testbed.Watch(t, cp)}
	r.process, r.url = startEmbedded(t, cp)
	config, err := clusterload.SchedulerConfig("default-scheduler.yaml", r.url)
	require.NoError(t, err)
	require.NoError(t, cp.StartScheduler(t.Context(), "default-scheduler", config))
	return r
}

// begin creates the pods.
func (r *race) begin(t *testing.T) {
	t.Helper()
	sizes := make([]corev1.ResourceList, 0, 3)
	for _, cpu := range []string{"500m", "1", "1500m"} {
		sizes = append(sizes, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)})
	}
	require.NoError(t, clusterload.CreatePods(t.Context(), r.Client(), clusterload.Race(clusterload.RaceOptions{
		Namespace: corev1.NamespaceDefault, Capacity: nodes * nodeCPU, Percent: 120, Sizes: sizes,
		Schedulers: []string{"default-scheduler"}, GroupScheduler: name, GroupSize: 8, GroupPercent: 50,
	})))
}

// settle waits for the end. No node was ever overcommitted, all that fits is bound, and no group runs in
// part.
func (r *race) settle(t *testing.T) clusterload.Snapshot {
	t.Helper()
	snapshot, err := r.watcher.AwaitSettled(t.Context(), 2*time.Second)
	require.NoError(t, err)
	whole, half := snapshot.CountGroups()
	t.Logf("%d of %d pods bound; %d groups whole, %d half, of %d",
		snapshot.Bound, snapshot.Pods, whole, half, len(snapshot.Groups))
	assert.Empty(t, r.watcher.Violations())
	assert.Zero(t, r.watcher.Gaps(), "events were lost: the verdict is not complete")
	assert.Empty(t, snapshot.FittingPods, "pods wait although they fit")
	assert.NotZero(t, snapshot.Pending, "everything fitted: this was no race for room")
	assert.NotZero(t, whole)
	assert.Zero(t, half)
	return snapshot
}

func TestRaceWithAnEmbeddedServer(t *testing.T) {
	r := newRace(t)
	r.begin(t)
	snapshot := r.settle(t)

	// Others see what the embedded scheduler has.
	c, err := client.New(client.Options{URL: r.url})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	account, err := c.Nodes(t.Context())
	require.NoError(t, err)
	claims := 0
	for _, node := range account.Nodes {
		assert.False(t, node.Overcommitted, node.Name)
		claims += node.ClaimCount
	}
	assert.Equal(t, snapshot.Bound, claims, "of both schedulers")

	code, err := r.process.Stop()
	require.NoError(t, err)
	assert.Zero(t, code, "it stops cleanly when it is told to")
}

// The process with the ledger is killed in the middle of the race, more than once, most often between the
// binds of a group. Nobody takes the room of the rest of that group, and no claim is left behind.
func TestKilledInTheRace(t *testing.T) {
	r := newRace(t)
	r.begin(t)
	for range 3 {
		before := r.watcher.Snapshot().Bound
		require.Eventually(t, func() bool {
			snapshot := r.watcher.Snapshot()
			_, half := snapshot.CountGroups()
			return half > 0 && snapshot.Bound > before
		}, time.Minute, time.Millisecond)
		require.NoError(t, r.process.Kill())
		require.NoError(t, r.process.Start(t.Context()))
	}
	snapshot := r.settle(t)

	c, err := client.New(client.Options{URL: r.url})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	require.Eventually(t, func() bool {
		account, err := c.Nodes(t.Context())
		require.NoError(t, err)
		claims, reserved := 0, int64(0)
		for _, node := range account.Nodes {
			claims += node.ClaimCount
			for _, amount := range node.Resources {
				reserved += amount.Reserved
			}
		}
		return claims == snapshot.Bound && reserved == 0
	}, time.Minute, 100*time.Millisecond, "only what is bound is held")
}
