package e2e

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	gangNodes = 20
	gangCount = 60
	gangSize  = 6
	gangTries = 6 // plans each gang comes up with before it gives up
)

// TestGangsAreReservedWhole lets 60 gangs ask at once for capacity on the same nodes, for four times
// what there is. Every gang plans at random, so nearly all plans overlap with others.
func TestGangsAreReservedWhole(t *testing.T) {
	c := newServedCluster(t, gangNodes)
	gangs := make([][]*corev1.Pod, gangCount)
	for i := range gangs {
		gangs[i] = c.Create(testbed.NewPods(gangSize, fmt.Sprintf("group-%d", i), nobody, "900m")...)
	}
	stopReader := c.readSlotsAllTheTime(gangs)
	granted := make([][]string, gangCount) // nodes, for the gangs that were granted
	var senders errgroup.Group
	senders.SetLimit(testbed.Writers)
	for i := range gangs {
		senders.Go(func() (err error) {
			granted[i], err = c.reserveSomehow(gangs[i], uint64(i))
			return err
		})
	}
	require.NoError(t, senders.Wait())
	snapshots := stopReader()
	count := 0
	for i := range gangs {
		c.requireKept(gangs[i], granted[i])
		if granted[i] != nil {
			count++
		}
	}
	t.Logf("%d of %d gangs granted, %d snapshots of the allocations read meanwhile", count, gangCount, snapshots)
	require.NotZero(t, count)
	require.Less(t, count, gangCount, "every gang had capacity: nothing was contended")
	require.NotZero(t, snapshots)
	c.bindGranted(gangs, granted)
	c.RequireNeverOvercommitted()
	c.requireNoDriftSeen()
}

// reserveSomehow tries random plans until one is granted, and returns its nodes. Every third gang
// gives its capacity back once and asks again, so that capacity also becomes free.
func (c *cluster) reserveSomehow(pods []*corev1.Pod, seed uint64) ([]string, error) {
	random := rand.New(rand.NewPCG(seed, 1))
	regret := seed%3 == 0
	for range gangTries {
		request := gangOf(pods)
		request.TTLSeconds = 600
		for range pods {
			request.Nodes = append(request.Nodes, fmt.Sprintf("node-%d", random.IntN(gangNodes)))
		}
		var answer reserver.Answer
		if err := c.Ledger.Post(c.T.Context(), testbed.ReservePath, request, &answer); err != nil {
			return nil, err
		}
		if answer.Granted() && !regret {
			return request.Nodes, nil
		}
		if !answer.Granted() {
			continue
		}
		regret = false
		var back reserver.Answer
		if err := c.Ledger.Post(c.T.Context(), testbed.UnreservePath, gangOf(pods, request.Nodes...), &back); err != nil {
			return nil, err
		}
		if !back.Granted() {
			return nil, fmt.Errorf("unreserve %s: %s", pods[0].Name, back.Error)
		}
	}
	return nil, nil
}

// readSlotsAllTheTime checks snapshot after snapshot of the ledger that of no gang only a part is
// there. The function it returns ends that and tells how many snapshots there were.
func (c *cluster) readSlotsAllTheTime(gangs [][]*corev1.Pod) (stop func() int) {
	gangOf := map[string]int{}
	for i, pods := range gangs {
		for _, pod := range pods {
			gangOf[string(pod.UID)] = i
		}
	}
	done := make(chan struct{})
	var reader sync.WaitGroup
	snapshots := 0
	reader.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			answer, err := c.Ledger.Reservations(c.T.Context())
			if !assert.NoError(c.T, err) {
				return
			}
			sizes := map[int]int{}
			for _, r := range answer.Reservations {
				sizes[gangOf[r.Slots[0].UID]]++
			}
			for gang, size := range sizes {
				assert.Equal(c.T, gangSize, size, "gang %d is there in part", gang)
			}
			snapshots++
		}
	})
	return func() int {
		close(done)
		reader.Wait()
		return snapshots
	}
}

// requireKept checks that the server keeps for a gang exactly what it was granted.
func (c *cluster) requireKept(pods []*corev1.Pod, nodes []string) {
	c.T.Helper()
	for i, pod := range pods {
		slot := c.KeptFor(pod)
		if nodes == nil {
			require.Nil(c.T, slot, "%s was refused", pod.Name)
			continue
		}
		require.NotNil(c.T, slot, "%s was granted", pod.Name)
		require.Equal(c.T, nodes[i], slot.Node)
		require.Equal(c.T, int64(900), slot.Requests["cpu"])
	}
}

// bindGranted binds half of the granted gangs through the server and half at the API server, as
// gang schedulers do. Nothing may be counted twice on the way.
func (c *cluster) bindGranted(gangs [][]*corev1.Pod, granted [][]string) {
	c.T.Helper()
	for i := range gangs {
		for k, node := range granted[i] {
			if i%2 == 0 {
				require.Empty(c.T, c.Bind(gangs[i][k], node))
			} else {
				require.NoError(c.T, c.BindDirectly(gangs[i][k].Name, node))
			}
		}
	}
	c.requireAgreement()
	require.Zero(c.T, c.Metric("globalreserve_bypassed_binds_total"), "reserved pods were taken for strangers")
}

// TestReservedPods follows pods from their reservation to the node.
func TestReservedPods(t *testing.T) {
	c := newServedCluster(t, 3)
	tests := map[string]func(*cluster, *corev1.Pod){
		"bound by its scheduler, it is counted once": func(c *cluster, pod *corev1.Pod) {
			require.NoError(c.T, c.BindDirectly(pod.Name, "node-0"))
			c.requireUsed("node-0", reserver.NodeAmount{Allocatable: 4000, Bound: 3000, Free: 1000})
		},
		"bound by the server, it is counted once": func(c *cluster, pod *corev1.Pod) {
			require.Empty(c.T, c.Bind(pod, "node-0"))
			c.requireUsed("node-0", reserver.NodeAmount{Allocatable: 4000, Bound: 3000, Free: 1000})
		},
		"bound elsewhere, it gives its reservation back": func(c *cluster, pod *corev1.Pod) {
			require.NoError(c.T, c.BindDirectly(pod.Name, "node-1"))
			c.requireUsed("node-0", reserver.NodeAmount{Allocatable: 4000, Free: 4000})
			c.requireUsed("node-1", reserver.NodeAmount{Allocatable: 4000, Bound: 3000, Free: 1000})
		},
		"deleted before it is bound, it gives its reservation back": func(c *cluster, pod *corev1.Pod) {
			c.Delete(pod.Name)
			c.requireUsed("node-0", reserver.NodeAmount{Allocatable: 4000, Free: 4000})
		},
		"given back, it can be reserved elsewhere": func(c *cluster, pod *corev1.Pod) {
			there := gangOf([]*corev1.Pod{pod}, "node-1")
			require.NotEmpty(c.T, c.Reserve(there).Error, "it holds capacity on node-0")
			require.True(c.T, c.Unreserve(gangOf([]*corev1.Pod{pod}, "node-0")).Granted())
			require.True(c.T, c.Reserve(there).Granted())
			c.requireUsed("node-0", reserver.NodeAmount{Allocatable: 4000, Free: 4000})
			c.requireUsed("node-1", reserver.NodeAmount{Allocatable: 4000, Reserved: 3000, Free: 1000})
			require.True(c.T, c.Unreserve(there).Granted())
		},
		"the server does not bind it elsewhere": func(c *cluster, pod *corev1.Pod) {
			require.Contains(c.T, c.Bind(pod, "node-1"), "node-0")
			require.Empty(c.T, c.Pod(pod.Name).Spec.NodeName)
			require.Empty(c.T, c.Bind(pod, "node-0"))
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := c.in(t)
			c.clear()
			pod := c.CreatePod("worker", nobody, "3")
			reserved := gangOf([]*corev1.Pod{pod}, "node-0")
			reserved.TTLSeconds = 3600
			require.True(t, c.Reserve(reserved).Granted())
			c.requireUsed("node-0", reserver.NodeAmount{Allocatable: 4000, Reserved: 3000, Free: 1000})
			rival := c.CreatePod("rival", nobody, "2")
			refused := c.Reserve(gangOf([]*corev1.Pod{rival}, "node-0"))
			require.Equal(t, []string{"rival"}, refused.FailedPods)
			require.Equal(t, int64(1000), refused.Rejections[0].Free)
			test(c, pod)
			c.Delete(rival.Name)
		})
	}
}

// TestCompatibleReserve sends what the client of kube-globalreserve sends, word for word: three fields,
// in Go's own names, whole pods, and expects status 200 whatever the answer is.
func TestCompatibleReserve(t *testing.T) {
	c := newServedCluster(t, 2)
	pods := c.Create(testbed.NewPods(3, "worker", nobody, "3")...)
	type threeFields struct {
		SchedulerName string
		Pods          []*corev1.Pod
		Nodes         []string
	}
	type answer struct {
		FailedPods []string
		Error      string
	}
	tooMany := threeFields{SchedulerName: "batch", Pods: pods, Nodes: []string{"node-0", "node-1", "node-1"}}
	ask := func(path string, question threeFields) (got answer) {
		require.NoError(t, c.Ledger.Post(t.Context(), path, question, &got))
		return got
	}
	refused := ask(testbed.ReservePath, tooMany)
	require.Equal(t, []string{"worker-2"}, refused.FailedPods)
	require.NotEmpty(t, refused.Error)
	require.Empty(t, c.Held(), "a refused gang holds nothing")

	fits := threeFields{SchedulerName: "batch", Pods: pods[:2], Nodes: []string{"node-0", "node-1"}}
	require.Equal(t, answer{FailedPods: []string{}}, ask(testbed.ReservePath, fits))
	require.Len(t, c.Held(), 2)
	require.Equal(t, answer{FailedPods: []string{}}, ask(testbed.UnreservePath, fits))
	require.Empty(t, c.Held())
}

// requireUsed waits until the server has this account of a node's CPU.
func (c *cluster) requireUsed(node string, cpu reserver.NodeAmount) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		assert.Equal(t, cpu, c.CPU(node))
	})
}
