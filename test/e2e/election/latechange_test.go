//go:build e2e

package election

import (
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestLateRepeat is TestLateWrite with writes that the server sends again.
func TestLateRepeat(t *testing.T) {
	testLateWrites(t, map[string]lateWrite{
		"a binding": {controlplane.IsBinding, 1, sendBind}, "a reservation": {isCreate, 1, sendReserve},
	})
}

// The same with what is written into objects that are there: a status, and an annotation of a pod.
func TestLateChange(t *testing.T) {
	writes := func(method, under string) func(*http.Request) bool {
		return func(r *http.Request) bool { return r.Method == method && strings.Contains(r.URL.Path, under) }
	}
	for name, tc := range map[string]struct {
		matches func(*http.Request) bool
		send    func(*lateCluster)
		answer  int
	}{
		// The next one has written it by then, so the API server need not even ask whose it is.
		"a status": {writes(http.MethodPut, "/reservations/"), func(c *lateCluster) {
			assert.NoError(c.T, c.TryReservation("late", `{ttl: 10m, slots: [{name: s, requests: {cpu: 1}}]}`))
		}, http.StatusConflict},
		"an annotation": {writes(http.MethodPatch, "/pods/late"), wakeLate, http.StatusUnprocessableEntity},
	} {
		t.Run(name, func(t *testing.T) {
			c := holdBack(t, shared.StartT(t), tc.matches, 0, tc.send)
			require.NoError(t, c.first.Signal(syscall.SIGSTOP))
			c.awaitLeader(c.second)
			if len(c.ListReservations()) > 0 {
				c.AwaitReservation("late", v1alpha1.ReservationAvailable)
			}
			c.release()
			assert.Equal(t, tc.answer, <-c.answers)
			require.NoError(t, c.first.Signal(syscall.SIGCONT))
			c.Eventually(func(t *assert.CollectT) { assert.False(t, c.first.Running(), "it ends itself") })
			c.RequireNeverOvercommitted()
		})
	}
}

// wakeLate has the first server wake a pod that it refused, by an annotation.
func wakeLate(c *lateCluster) {
	refusal, err := bindAt(c.T.Context(), c.first, c.other, c.nodes[0])
	assert.NoError(c.T, err)
	assert.Empty(c.T, refusal)
	reasons, err := c.first.Filter(c.T.Context(), c.late, c.nodes...)
	assert.NoError(c.T, err)
	assert.NotEmpty(c.T, reasons)
	assert.NoError(c.T, c.Client().CoreV1().Pods(c.Namespace).Delete(c.T.Context(), c.other.Name, metav1.DeleteOptions{}))
}

// A binding is carried out, its answer does not come, and the leader is suspended. The next one tells the client that
// asks it again of a success: the pod is bound once, and where it was.
func TestAnswerThatNeverComes(t *testing.T) {
	c := &lateCluster{cluster: newCluster(t, shared.StartT(t), 2), answers: make(chan int, 10)}
	proxy, err := c.StartFaultProxy()
	require.NoError(t, err)
	c.first = c.start("first", proxy, clusterload.QuickLease...)
	c.awaitLeader(c.first)
	c.second = c.start("second", nil, clusterload.QuickLease...)
	c.late = c.CreatePod("late", nobody, "3")
	proxy.SetFault(func(r *http.Request) controlplane.Fault {
		if controlplane.IsBinding(r) {
			return controlplane.Fault{After: testbed.Soon, Answered: c.answers}
		}
		return controlplane.Fault{}
	})
	go sendBind(c)
	require.Equal(t, http.StatusCreated, <-c.answers)
	require.NoError(t, c.first.Signal(syscall.SIGSTOP))
	before := c.Pod("late")
	require.Equal(t, c.nodes[0], before.Spec.NodeName)
	c.awaitLeader(c.second)
	refusal, err := bindAt(t.Context(), c.second, c.late, c.nodes[0])
	require.NoError(t, err)
	assert.Empty(t, refusal, "it is bound where it was to be")
	refusal, err = bindAt(t.Context(), c.second, c.late, c.nodes[1])
	require.NoError(t, err)
	assert.Contains(t, refusal, c.nodes[0], "and nowhere else")
	refusal, err = bindAt(t.Context(), c.second, c.CreatePod("other", nobody, "3"), c.nodes[0])
	require.NoError(t, err)
	assert.Contains(t, refusal, "cpu", "its capacity is counted once")
	assert.Equal(t, before.ResourceVersion, c.Pod("late").ResourceVersion, "nobody has written to it again")
	require.NoError(t, c.first.Signal(syscall.SIGCONT))
	c.Eventually(func(t *assert.CollectT) { assert.False(t, c.first.Running(), "it ends itself") })
	c.RequireNeverOvercommitted()
}

// Without the fence the API server carries out what is late, and the next leader waits for that before it decides.
func TestLateWriteWithoutAFence(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	require.NoError(t, crd.Prepare(t.Context(), cp))
	removeFence(t, cp)
	c := holdBack(t, cp, controlplane.IsBinding, 0, sendBind)
	require.NoError(t, c.first.Signal(syscall.SIGSTOP))
	require.Eventually(t, func() bool {
		return strings.Contains(testbed.Tail(c.second.LogFile(), 100), "so this one waits before it decides")
	}, testbed.Soon, testbed.Poll)
	refusals := make(chan string, 1)
	go func() { // takes the capacity as soon as it is given away
		for ; t.Context().Err() == nil; <-time.After(testbed.Poll) {
			if refusal, err := bindAt(t.Context(), c.second, c.other, c.nodes[0]); err == nil {
				refusals <- refusal
				return
			}
		}
	}()
	<-time.After(time.Second) // the network takes its time, less than a request may
	c.release()
	assert.Equal(t, http.StatusCreated, <-c.answers)
	assert.Contains(t, <-refusals, "cpu")
	assert.Equal(t, c.nodes[0], c.Pod("late").Spec.NodeName)
	require.NoError(t, c.first.Signal(syscall.SIGCONT))
	c.Eventually(func(t *assert.CollectT) { assert.False(t, c.first.Running(), "it ends itself") })
	c.RequireNeverOvercommitted()
}

// A leader takes back a reservation whose creation was answered with nothing. The network holds its DELETE back, and the
// next leader acknowledges the reservation to the client that asks again: the DELETE, which carries no term, is refused.
func TestLateDelete(t *testing.T) {
	c := &lateCluster{cluster: newCluster(t, shared.StartT(t), 1)}
	proxy, err := c.StartFaultProxy()
	require.NoError(t, err)
	c.first = c.start("first", proxy, clusterload.QuickLease...)
	c.awaitLeader(c.first)
	c.second = c.start("second", nil, clusterload.QuickLease...)
	pods := c.Create(testbed.NewPod("late", nobody, "3"), testbed.NewPod("other", nobody, "3"))
	held, released, answered := make(chan struct{}, 100), make(chan struct{}), make(chan int, 100)
	var failed atomic.Bool
	proxy.SetFault(func(r *http.Request) controlplane.Fault {
		one := strings.Contains(r.URL.Path, "/reservations/") && !strings.HasSuffix(r.URL.Path, "/status")
		switch {
		case isCreate(r):
			return controlplane.Fault{DropAnswer: true}
		case one && r.Method == http.MethodGet && !failed.Load():
			return controlplane.Fault{DropRequest: true}
		case one && r.Method == http.MethodDelete:
			held <- struct{}{}
			<-released
			return controlplane.Fault{DropAnswer: true, Answered: answered}
		}
		return controlplane.Fault{}
	})
	request := &reserver.Request{SchedulerName: nobody, Pods: pods[:1], Nodes: c.nodes, TTLSeconds: 600, RequestID: "r1"}
	answer := &reserver.Answer{}
	require.NoError(t, c.first.Post(t.Context(), testbed.ReservePath, request, answer))
	require.NotEmpty(t, answer.Error)
	failed.Store(true)
	<-held
	require.NoError(t, c.first.Signal(syscall.SIGSTOP))
	c.awaitLeader(c.second)
	repeat := &reserver.Answer{}
	require.NoError(t, c.second.Post(t.Context(), testbed.ReservePath, request, repeat))
	require.Empty(t, repeat.Error)
	close(released)
	assert.Equal(t, http.StatusConflict, <-answered)
	assert.Len(t, c.ListReservations(), 1)
	refusal, err := bindAt(t.Context(), c.second, pods[1], c.nodes[0])
	require.NoError(t, err)
	assert.Contains(t, refusal, "cpu", "the capacity is kept")
	require.NoError(t, c.first.Signal(syscall.SIGCONT))
	c.Eventually(func(t *assert.CollectT) { assert.False(t, c.first.Running(), "it ends itself") })
	assert.Len(t, c.ListReservations(), 1)
}
