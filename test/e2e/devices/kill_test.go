package devices

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	kills       = 8
	killWorkers = 4
	// mostPods is how many pods there are before each deed deletes one instead.
	mostPods = 16
)

// load is what users and schedulers do, all at once, to a server that may be killed at any moment.
type load struct {
	*cluster
	testbed.Load

	mu    sync.Mutex // guards what follows
	count int
	pods  []string // each has a claim of its name
}

// TestKilledAgainAndAgain kills the server at random moments while a kube-scheduler and others that call
// /bind place pods with claims, and pods and claims are deleted. After each start all must say what the
// bound pods say, and at no event may a device have been with two pods.
func TestKilledAgainAndAgain(t *testing.T) {
	c := newCluster(t, setup{nodes: raceNodes})
	c.createRaceDevices()
	c.startScheduler(scheduler)
	l := &load{cluster: c}
	deeds := []testbed.Deed{l.bindPod, l.bindPod, l.bindPod, l.schedulePod, l.deletePod, l.deletePod}
	l.Next = func() testbed.Deed {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.pods) > mostPods {
			return l.deletePod
		}
		return deeds[rand.IntN(len(deeds))]
	}
	stop := l.Run(t, killWorkers)
	for range kills {
		c.KillAtRandom()
		l.Paused(func() { // nothing but the kube-scheduler is under way while both sides are compared
			c.requireConsistent()
			c.requireNoOtherClaims()
		})
		c.verdict.requireGood(t)
	}
	l.AssertDone(t, kills, "pods bound", "pods for the kube-scheduler", "pods deleted", "claims deleted")
	stop()
	require.NoError(t, c.Client().CoreV1().Pods(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	for i := range raceDevices {
		c.requireAvailable(fmt.Sprintf("gpu-%d", i))
	}
	c.requireConsistent()
}

// requireNoOtherClaims waits until the account has the capacity of bound pods and no other.
func (c *cluster) requireNoOtherClaims() {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		assert.Empty(t, c.Kept())
		claims := c.Allocations().Allocations
		for i := range claims {
			assert.Equal(t, "Bound", claims[i].State, "%+v", claims[i])
		}
		assert.Len(t, claims, len(c.boundPods()))
	})
}

// add creates the next claim, of one device or two, and remembers the pod that is to come.
func (l *load) add(ctx context.Context) (name string, err error) {
	l.mu.Lock()
	l.count++
	name = fmt.Sprintf("pod-%d", l.count)
	l.mu.Unlock()
	_, err = l.DeviceClaims().Create(ctx, testbed.NewDeviceClaim(name, "K80", 1+rand.Int32N(2)), metav1.CreateOptions{})
	return name, err
}

func (l *load) remember(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pods = append(l.pods, name)
}

// bindPod binds a pod with a claim to some node that has the devices.
func (l *load) bindPod(ctx context.Context) error {
	name, err := l.add(ctx)
	if err != nil {
		return err
	}
	pod, err := l.Client().CoreV1().Pods(namespace).Create(ctx, newPod(name, testbed.Nobody, name), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	l.remember(name)
	for _, i := range rand.Perm(raceNodes) {
		refusal, err := l.Ledger.TryBind(ctx, pod, fmt.Sprintf("node-%d", i))
		if err != nil {
			return err // it may be bound or not; nobody needs to know
		}
		if refusal == "" {
			return l.Did("pods bound", nil)
		}
	}
	return nil
}

// schedulePod leaves a pod to the kube-scheduler.
func (l *load) schedulePod(ctx context.Context) error {
	name, err := l.add(ctx)
	if err != nil {
		return err
	}
	if _, err = l.Client().CoreV1().Pods(namespace).Create(ctx, newPod(name, scheduler, name), metav1.CreateOptions{}); err != nil {
		return err
	}
	l.remember(name)
	return l.Did("pods for the kube-scheduler", nil)
}

// deletePod deletes a pod and its claim, in either order.
func (l *load) deletePod(ctx context.Context) error {
	l.mu.Lock()
	if len(l.pods) == 0 {
		l.mu.Unlock()
		return nil
	}
	i := rand.IntN(len(l.pods))
	name := l.pods[i]
	l.pods = append(l.pods[:i], l.pods[i+1:]...)
	l.mu.Unlock()
	steps := []func() error{
		func() error {
			_ = l.Did("pods deleted", nil)
			return l.Client().CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		},
		func() error {
			_ = l.Did("claims deleted", nil)
			return l.DeviceClaims().Delete(ctx, name, metav1.DeleteOptions{})
		},
	}
	for _, k := range rand.Perm(len(steps)) {
		if err := steps[k](); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
