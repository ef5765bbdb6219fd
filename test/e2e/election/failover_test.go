package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	kills = 6
	stops = 4
	// afterKill and afterStop are how soon another server has to decide when the one that did is gone.
	afterKill = leaseDuration + 2*time.Second
	afterStop = 2 * time.Second
)

// Of three servers the one that decides is killed, or stopped, again and again while pods are bound, reserved for and
// deleted: another one decides soon, no node is ever overcommitted, and no reservation is lost that was acknowledged.
func TestFailover(t *testing.T) {
	c := newCluster(t, shared.StartT(t), 12)
	for i := range 3 {
		c.start(fmt.Sprint("server-", i), nil)
	}
	users := &users{cluster: c}
	users.load.Next = users.next
	stop := users.load.Run(t, 6)
	var killed, stopped []time.Duration
	for i := range kills + stops {
		leader := c.leader()
		began := time.Now()
		if i%5 < 3 {
			require.NoError(t, leader.Kill())
			killed = append(killed, c.awaitOther(leader, began))
		} else {
			ended := make(chan error, 1)
			go func() {
				_, err := leader.Stop()
				ended <- err
			}()
			stopped = append(stopped, c.awaitOther(leader, began))
			require.NoError(t, <-ended)
		}
		require.NoError(t, leader.Start(t.Context()))
	}
	users.load.AssertDone(t, 20, "bind", "reserve", "give back", "delete")
	stop()
	report(t, "after a kill", killed, afterKill)
	report(t, "after a stop", stopped, afterStop)
	c.RequireNeverOvercommitted()
	users.requireKept()
}

// leader waits for the server that decides.
func (c *cluster) leader() (leader *testbed.Server) {
	c.T.Helper()
	require.Eventually(c.T, func() bool {
		for _, s := range c.servers {
			if decides(c.T.Context(), s) {
				leader = s
			}
		}
		return leader != nil
	}, testbed.Soon, testbed.Poll)
	return leader
}

// awaitOther waits until another server than the one before decides, and returns how long that took.
func (c *cluster) awaitOther(before *testbed.Server, began time.Time) (took time.Duration) {
	c.T.Helper()
	require.Eventually(c.T, func() bool {
		for _, s := range c.servers {
			if s != before && decides(c.T.Context(), s) {
				took = time.Since(began)
				return true
			}
		}
		return false
	}, testbed.Soon, testbed.Poll)
	return took
}

func report(t *testing.T, what string, took []time.Duration, limit time.Duration) {
	t.Helper()
	slices.Sort(took)
	worst := took[len(took)-1]
	t.Logf("%s another server decides within %s (p50), %s (worst) of %d", what,
		took[len(took)/2].Round(time.Millisecond), worst.Round(time.Millisecond), len(took))
	assert.Less(t, worst, limit, what)
}

// users bind pods, reserve for them, give that back, and delete pods.
type users struct {
	*cluster
	load    testbed.Load
	numbers atomic.Int64

	mu    sync.Mutex // guards what follows
	bound []string
	kept  []string // reservations that were acknowledged, and that nobody has tried to give back
}

func (u *users) next() testbed.Deed {
	return []testbed.Deed{u.bind, u.bind, u.delete, u.reserve, u.giveBack}[rand.IntN(5)]
}

// create makes a pod of 1 to 3 CPUs.
func (u *users) create(ctx context.Context) (*corev1.Pod, error) {
	pod := testbed.NewPod(fmt.Sprint("pod-", u.numbers.Add(1)), nobody, fmt.Sprint(1+rand.IntN(3)))
	return u.Client().CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
}

func (u *users) remove(ctx context.Context, pod string) error {
	return u.Client().CoreV1().Pods(testbed.Namespace).Delete(ctx, pod, metav1.DeleteOptions{})
}

func (u *users) node() string { return u.nodes[rand.IntN(len(u.nodes))] }

// take takes one of a list, "" where there is none.
func (u *users) take(list *[]string) (one string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n := len(*list); n > 0 {
		i := rand.IntN(n)
		one = (*list)[i]
		*list = slices.Delete(*list, i, i+1)
	}
	return one
}

func (u *users) add(list *[]string, one string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	*list = append(*list, one)
}

func (u *users) bind(ctx context.Context) error {
	pod, err := u.create(ctx)
	if err != nil {
		return err
	}
	refusal, err := u.servers.bind(ctx, pod, u.node())
	if err != nil || refusal != "" {
		return errors.Join(err, u.remove(ctx, pod.Name))
	}
	u.add(&u.bound, pod.Name)
	return u.load.Did("bind", nil)
}

func (u *users) delete(ctx context.Context) error {
	name := u.take(&u.bound)
	if name == "" {
		return nil
	}
	return u.load.Did("delete", u.remove(ctx, name))
}

// reserve keeps capacity for a pod that is bound by nobody.
func (u *users) reserve(ctx context.Context) error {
	pod, err := u.create(ctx)
	if err != nil {
		return err
	}
	var answer reserver.Answer
	request := &reserver.Request{SchedulerName: nobody, Pods: []*corev1.Pod{pod}, Nodes: []string{u.node()}, TTLSeconds: 600}
	err = u.servers.ask(func(s *testbed.Server) error { return s.Post(ctx, testbed.ReservePath, request, &answer) })
	if err != nil || answer.Error != "" {
		return errors.Join(err, u.remove(ctx, pod.Name))
	}
	u.add(&u.kept, answer.Reservation)
	return u.load.Did("reserve", nil)
}

func (u *users) giveBack(ctx context.Context) error {
	one := u.take(&u.kept)
	if one == "" {
		return nil
	}
	var answer reserver.Answer
	request := &reserver.Request{SchedulerName: nobody, Reservation: one}
	return u.load.Did("give back", u.servers.ask(func(s *testbed.Server) error {
		return s.Post(ctx, testbed.UnreservePath, request, &answer)
	}))
}

// requireKept fails unless what was acknowledged is kept.
func (u *users) requireKept() {
	u.T.Helper()
	u.Ledger = u.leader().Caller
	held := map[string]bool{}
	for _, slot := range u.Held() {
		name, _, _ := strings.Cut(slot, "@")
		held[name[:strings.LastIndex(name, "/")]] = true
	}
	for _, one := range u.kept {
		assert.True(u.T, held[one], one)
	}
	u.T.Logf("%d reservations were acknowledged and are kept", len(u.kept))
}
