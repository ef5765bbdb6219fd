package election

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// lateCluster is a cluster of one node with two servers. The first one decided, reaches the API server through a
// proxy, and was suspended when it had sent a write that the proxy holds back.
type lateCluster struct {
	*cluster
	first, second *testbed.Server
	// release lets the write go on, and answers gets what the API server answers to it.
	release func()
	answers chan int
	// late is the pod that the write is for, and other one that does not fit beside it.
	late, other *corev1.Pod
}

// holdBack starts the first server, has it send a write for a pod, and suspends it. Of the writes that match, lost ones are
// lost first, and then repeated by the server. The second one is started only then: nobody else takes the Lease before.
func holdBack(t *testing.T, cp *controlplane.ControlPlane, matches func(*http.Request) bool, lost int64, send func(c *lateCluster), args ...string) *lateCluster {
	t.Helper()
	c := &lateCluster{cluster: newCluster(t, cp, 1), answers: make(chan int, 10)}
	proxy, err := c.StartFaultProxy()
	require.NoError(t, err)
	c.first = c.start("first", proxy, args...)
	c.awaitLeader(c.first)
	pods := c.Create(testbed.NewPod("late", nobody, "3"), testbed.NewPod("other", nobody, "3"))
	c.late, c.other = pods[0], pods[1]

	held, released := make(chan struct{}, 10), make(chan struct{})
	c.release = func() { close(released) }
	var seen atomic.Int64
	proxy.SetFault(func(r *http.Request) controlplane.Fault {
		switch {
		case !matches(r):
			return controlplane.Fault{}
		case seen.Add(1) <= lost:
			return controlplane.Fault{DropRequest: true}
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
	c.suspendFirst(args...)
	return c
}

// suspendFirst suspends the first server, and starts the second one.
func (c *lateCluster) suspendFirst(args ...string) {
	c.T.Helper()
	require.NoError(c.T, c.first.Signal(syscall.SIGSTOP))
	c.second = c.start("second", nil, args...)
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
		lost    int64
		send    func(*lateCluster)
	}{
		"a binding":                   {controlplane.IsBinding, 0, sendBind},
		"the repeat of a lost one":    {controlplane.IsBinding, 1, sendBind},
		"a reservation":               {isCreate, 0, sendReserve},
		"the repeat of a reservation": {isCreate, 1, sendReserve},
	} {
		t.Run(name, func(t *testing.T) {
			c := holdBack(t, shared.StartT(t), tc.matches, tc.lost, tc.send)
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
			require.Regexp(t, "too little cpu|decid|unknown", <-asked, "it decides no more, and the one that does refuses")
			c.Eventually(func(t *assert.CollectT) { assert.False(t, c.first.Running(), "it ends itself") })
			assert.Empty(t, c.Pod("late").Spec.NodeName)
			assert.Empty(t, c.ListReservations())
			c.RequireNeverOvercommitted()
			c.awaitLeader(c.second) // its lease is its own
		})
	}
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
	c.first = c.start("first", proxy)
	c.awaitLeader(c.first)
	c.late = c.CreatePod("late", nobody, "3")
	proxy.SetFault(func(r *http.Request) controlplane.Fault {
		if controlplane.IsBinding(r) {
			return controlplane.Fault{After: testbed.Soon, Answered: c.answers}
		}
		return controlplane.Fault{}
	})
	go sendBind(c)
	require.Equal(t, http.StatusCreated, <-c.answers)
	c.suspendFirst()
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
	// A control plane that has just started may leave requests waiting for seconds, which must not cost the first server
	// its Lease: its next leadership would have to wait as well.
	c := holdBack(t, cp, controlplane.IsBinding, 0, sendBind, clusterload.SlowLease...)
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
	c.first = c.start("first", proxy)
	c.awaitLeader(c.first)
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
	c.suspendFirst()
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
