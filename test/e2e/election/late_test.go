package election

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// lateCluster is a cluster of one node with two servers. The first one decides, reaches the API server through a
// proxy, and has sent a write that the proxy holds back.
type lateCluster struct {
	*cluster
	first, second *testbed.Server
	// release lets the write go on, and answers gets what the API server answers to it.
	release func()
	answers chan int
	// late is the pod that the write is for, and other one that does not fit beside it.
	late, other *corev1.Pod
}

// holdBack starts both servers, and has the first one send a write for a pod.
func holdBack(t *testing.T, matches func(*http.Request) bool, send func(c *lateCluster)) *lateCluster {
	t.Helper()
	c := &lateCluster{cluster: newCluster(t, shared.StartT(t), 1), answers: make(chan int, 10)}
	proxy, err := c.StartFaultProxy()
	require.NoError(t, err)
	c.first = c.start("first", proxy)
	c.awaitLeader(c.first)
	c.second = c.start("second", nil)
	pods := c.Create(testbed.NewPod("late", nobody, "3"), testbed.NewPod("other", nobody, "3"))
	c.late, c.other = pods[0], pods[1]

	held, released := make(chan struct{}, 10), make(chan struct{})
	c.release = func() { close(released) }
	proxy.SetFault(func(r *http.Request) controlplane.Fault {
		if !matches(r) {
			return controlplane.Fault{}
		}
		held <- struct{}{}
		<-released
		return controlplane.Fault{DropAnswer: true, Answered: c.answers} // it is carried out even if the server is gone
	})
	go send(c)
	select {
	case <-held:
	case <-time.After(testbed.Soon):
		require.Fail(t, "the server never wrote")
	}
	return c
}

// sendBind and sendReserve ask the first server for what it writes; nobody waits for the answer.
func sendBind(c *lateCluster) { _, _ = bindAt(context.Background(), c.first, c.late, c.nodes[0]) }

func sendReserve(c *lateCluster) {
	request := &reserver.Request{SchedulerName: nobody, Pods: []*corev1.Pod{c.late}, Nodes: c.nodes, TTLSeconds: 600}
	_ = c.first.Post(context.Background(), testbed.ReservePath, request, &reserver.Answer{})
}

func isCreate(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/reservations")
}

// A leader has sent a write that the network holds back, and is suspended for longer than its lease lasts. The next
// one gives the capacity to another pod. When both go on, the API server refuses the write, and the leader of before
// decides nothing any more.
func TestLateWrite(t *testing.T) {
	for name, tc := range map[string]struct {
		matches func(*http.Request) bool
		send    func(*lateCluster)
	}{
		"a binding": {controlplane.IsBinding, sendBind}, "a reservation": {isCreate, sendReserve},
	} {
		t.Run(name, func(t *testing.T) {
			c := holdBack(t, tc.matches, tc.send)
			require.NoError(t, c.first.Signal(syscall.SIGSTOP))
			stopped := time.Now()
			c.awaitLeader(c.second)
			t.Logf("the next one decides %s later", time.Since(stopped).Round(time.Millisecond))
			refusal, err := bindAt(t.Context(), c.second, c.other, c.nodes[0])
			require.NoError(t, err)
			require.Empty(t, refusal, "nothing is known of what was not written")

			// What the first one is asked by now it answers as soon as it goes on.
			asked := make(chan string, 1)
			go func() {
				refusal, err := bindAt(t.Context(), c.first, c.late, c.nodes[0])
				asked <- fmt.Sprint(refusal, err)
			}()
			c.release()
			assert.Equal(t, http.StatusUnprocessableEntity, <-c.answers, "the API server knows that it is late")
			require.NoError(t, c.first.Signal(syscall.SIGCONT))
			require.Regexp(t, "too little cpu|decid|unknown|EOF|reset|refused", <-asked,
				"it decides no more, or is gone, and the one that does refuses")
			c.Eventually(func(t *assert.CollectT) { assert.False(t, c.first.Running(), "it ends itself") })
			assert.Empty(t, c.Pod("late").Spec.NodeName)
			assert.Empty(t, c.ListReservations())
			c.RequireNeverOvercommitted()
			c.awaitLeader(c.second) // its lease is its own
		})
	}
}
