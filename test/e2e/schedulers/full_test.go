//go:build e2e

package schedulers

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	// fullNodes is how many nodes the nearly full cluster has: above 100 kube-scheduler looks at a part of them only.
	fullNodes = 1000
	// usedShare is one node in how many that is full for every scheduler; the others are full in the ledger only.
	usedShare = 4
)

// TestNearlyFull has all nodes full but a few, most of them by what the ledger alone knows of. kube-scheduler offers
// the ledger a sample of the nodes that look free to it, with the file as it is shipped. All that fits is bound.
func TestNearlyFull(t *testing.T) {
	c := testbed.NewCluster(t, shared.StartT(t))
	names := c.AddNodes(fullNodes, controlplane.NodeTemplate{})
	slices.Sort(names) // kube-scheduler's order: what is free is all in one sample
	c.StartServer(clusterload.ServerOptions{})
	for name, tt := range map[string]struct {
		free       int // nodes
		schedulers int
		demand     int // times what is free
		wave       int // how many pods of a scheduler come at once, and the next when they are bound
	}{
		"all but 6, one pod at a time": {free: 6, schedulers: 1, demand: 1, wave: 1},
		"all but 20, a race of four":   {free: 20, schedulers: 4, demand: 2, wave: fullNodes},
	} {
		t.Run(name, func(t *testing.T) {
			f := full{Cluster: c}
			f.T = t
			used, promised := f.fill(names[tt.free:])
			schedulers := f.startSchedulers(tt.free, tt.schedulers)
			began, each := time.Now(), tt.free*tt.demand/tt.schedulers
			for from := 0; from < each; from += tt.wave {
				for _, name := range schedulers {
					prefix := fmt.Sprintf("%s-%d", name, from)
					f.Create(testbed.NewPods(min(tt.wave, each-from), prefix, name, strconv.Itoa(nodeCPUs))...)
				}
				bound := used + min(tt.free, (from+tt.wave)*tt.schedulers)
				f.Eventually(func(t *assert.CollectT) { assert.Equal(t, bound, f.Watcher.Snapshot().Bound) })
			}
			t.Logf("%d pods were bound after %s", tt.free, time.Since(began).Round(time.Millisecond))
			f.RequireNeverOvercommitted()
			f.clear(schedulers, promised)
		})
	}
}

// full is a cluster of which only some nodes are free.
type full struct{ testbed.Cluster }

// fill fills nodes: some of them by pods, and the others by what is promised, which kube-scheduler does not see.
func (f *full) fill(names []string) (pods int, promised *reserver.Request) {
	f.T.Helper()
	var used, reserved []string
	for i, name := range names {
		if i%usedShare == 0 {
			used = append(used, name)
		} else {
			reserved = append(reserved, name)
		}
	}
	f.use(used)
	return len(used), f.promise(reserved)
}

// startSchedulers starts so many with the file that is shipped, each for pods of its own name.
func (f *full) startSchedulers(free, count int) (names []string) {
	f.T.Helper()
	for i := range count {
		name := fmt.Sprintf("behind-%d-%d", free, i)
		f.StartKubeScheduler(name, "default-scheduler.yaml", "schedulerName: default-scheduler", "schedulerName: "+name)
		names = append(names, name)
	}
	return names
}

// clear leaves nothing but the nodes.
func (f *full) clear(schedulers []string, promised *reserver.Request) {
	f.T.Helper()
	for _, name := range schedulers {
		require.NoError(f.T, f.StopPart(name))
	}
	require.True(f.T, f.Unreserve(promised).Granted())
	f.Clear()
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
func (f *full) promise(nodes []string) *reserver.Request {
	f.T.Helper()
	request := &reserver.Request{
		SchedulerName: testbed.Nobody, Nodes: nodes, TTLSeconds: 600,
		Pods: testbed.NewPods(len(nodes), "promised", testbed.Nobody, strconv.Itoa(nodeCPUs)),
	}
	require.True(f.T, f.Reserve(request).Granted())
	return request
}
