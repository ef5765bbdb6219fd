package schedulers

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// fullNodes is how many nodes the nearly full cluster has: above 100 kube-scheduler looks at a part of them only.
var fullNodes = flag.Int("full-nodes", 1000, "nodes of the cluster that is nearly full")

const (
	mostFree = 40
	// extra is how much longer than a plain kube-scheduler one behind the ledger may take.
	extra = 30 * time.Second
	// usedShare is one node in how many that is full for every scheduler; the others are full in the ledger only.
	usedShare = 4
	// mostAtOnce is how many pods are reserved by one request.
	mostAtOnce = 1000
)

// TestNearlyFull has all nodes full but a few, most of them by what the ledger alone knows of. kube-scheduler offers
// the ledger a sample of the nodes that look free to it, with the file as it is shipped. All that fits is
// bound nearly as soon as a plain kube-scheduler binds it where nothing is reserved.
func TestNearlyFull(t *testing.T) {
	c := testbed.NewCluster(t, shared.StartT(t))
	names := c.AddNodes(*fullNodes, controlplane.NodeTemplate{})
	slices.Sort(names) // kube-scheduler's order: what is free is all in one sample
	c.StartServer(clusterload.ServerOptions{})
	f := full{Cluster: c, free: mostFree, wave: mostFree}
	plain := f.bindAll("plain", "", 1, 1, names)
	for name, tt := range map[string]struct {
		free       int // nodes
		schedulers int
		demand     int // times what is free
		wave       int // how many pods of a scheduler come at once, and the next when they are bound
	}{
		"all but 40":                   {free: mostFree, schedulers: 1, demand: 1, wave: mostFree},
		"all but 6, one pod at a time": {free: 6, schedulers: 1, demand: 1, wave: 1},
		"all but 2%, a race of four":   {free: *fullNodes / 50, schedulers: 4, demand: 2, wave: *fullNodes},
	} {
		t.Run(name, func(t *testing.T) {
			f := full{Cluster: c, free: tt.free, wave: tt.wave}
			f.T = t
			behind := f.bindAll(fmt.Sprintf("behind-%d", tt.free), c.Ledger.URL, tt.schedulers, tt.demand, names)
			t.Logf("%d pods were bound after %s; %d by a plain kube-scheduler after %s", tt.free, behind, mostFree, plain)
			assert.Less(t, behind, plain+extra)
			f.RequireNeverOvercommitted()
		})
	}
}

// full is a cluster of which only some nodes are free.
type full struct {
	testbed.Cluster

	free, wave int
}

// bindAll has pods bound to all nodes that are free, and returns how long that took. Without a URL the
// others look full to everybody.
func (f *full) bindAll(prefix, url string, schedulers, demand int, names []string) time.Duration {
	f.T.Helper()
	var used, reserved []string
	for i, name := range names {
		switch {
		case i < f.free:
		case url == "" || i%usedShare == 0:
			used = append(used, name)
		default:
			reserved = append(reserved, name)
		}
	}
	f.use(used)
	promised := f.promise(reserved)
	for i := range schedulers {
		name := fmt.Sprintf("%s-%d", prefix, i)
		config, err := clusterload.SchedulerConfig("default-scheduler.yaml", url)
		require.NoError(f.T, err)
		config = []byte(strings.Replace(string(config), "schedulerName: default-scheduler", "schedulerName: "+name, 1))
		require.NoError(f.T, f.StartScheduler(f.T.Context(), name, config))
	}
	began, each := time.Now(), f.free*demand/schedulers
	for from := 0; from < each; from += f.wave {
		for i := range schedulers {
			name := fmt.Sprintf("%s-%d", prefix, i)
			f.Create(testbed.NewPods(min(f.wave, each-from), fmt.Sprintf("%s-%d", name, from), name, strconv.Itoa(nodeCPUs))...)
		}
		bound := len(used) + min(f.free, (from+f.wave)*schedulers)
		f.Eventually(func(t *assert.CollectT) { assert.Equal(t, bound, f.Watcher.Snapshot().Bound) })
	}
	took := time.Since(began)
	for i := range schedulers {
		require.NoError(f.T, f.StopPart(fmt.Sprintf("%s-%d", prefix, i)))
	}
	for _, request := range promised {
		require.True(f.T, f.Unreserve(request).Granted())
	}
	require.NoError(f.T, clusterload.DeletePods(f.T.Context(), f.Client(), namespace))
	f.Eventually(func(t *assert.CollectT) { assert.Empty(t, f.Allocations().Allocations) })
	return took
}

// use has each of the nodes filled by a pod.
func (f *full) use(nodes []string) {
	f.T.Helper()
	pods := testbed.NewPods(len(nodes), "used", testbed.Nobody, strconv.Itoa(nodeCPUs))
	for i, pod := range pods {
		pod.Spec.NodeName = nodes[i]
	}
	f.Create(pods...)
	f.Eventually(func(t *assert.CollectT) {
		assert.Len(t, nodes, f.Metric("globalreserve_allocations", "state", "Bound"))
	})
}

// promise reserves each of the nodes for a pod that does not come.
func (f *full) promise(nodes []string) (promised []*reserver.Request) {
	f.T.Helper()
	for chunk := range slices.Chunk(nodes, mostAtOnce) {
		request := &reserver.Request{
			SchedulerName: testbed.Nobody, Nodes: chunk, TTLSeconds: 600,
			Pods: testbed.NewPods(len(chunk), "promised-"+chunk[0], testbed.Nobody, strconv.Itoa(nodeCPUs)),
		}
		require.True(f.T, f.Reserve(request).Granted())
		promised = append(promised, request)
	}
	return promised
}
