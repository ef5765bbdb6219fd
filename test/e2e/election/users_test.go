//go:build e2e

package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

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
