package devices

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	kills       = 8
	killWorkers = 4
	// deedTimeout is how long one deed may take: the server may be gone.
	deedTimeout = 5 * time.Second
	// mostPods is how many pods there are before each deed deletes one instead.
	mostPods = 16
)

// quickStart shortens what a server that starts waits for: binds of the one before, for as long as these may
// take.
var quickStart = []string{"--bind-timeout=1500ms"}

// load is what users and schedulers do, all at once, to a server that may be killed at any moment.
type load struct {
	*cluster
	// running is held for reading by every deed, so that whoever writes sees none half done.
	running sync.RWMutex

	mu    sync.Mutex // guards what follows
	count int
	pods  []string // each has a claim of its name
	done  map[string]int
}

// TestKilledAgainAndAgain kills the server at random moments while a kube-scheduler and others that call
// /bind place pods with claims, and pods and claims are deleted. After each start all must say what the
// bound pods say, and at no event may a device have been with two pods.
func TestKilledAgainAndAgain(t *testing.T) {
	c := newCluster(t, setup{nodes: raceNodes, args: quickStart})
	c.createRaceDevices()
	c.startScheduler(scheduler)
	l := &load{cluster: c, done: map[string]int{}}
	ctx, stop := context.WithCancel(t.Context())
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		l.run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-finished
	})
	for range kills {
		<-time.After(time.Duration(100+rand.IntN(600)) * time.Millisecond)
		require.NoError(t, c.server.Kill())
		require.NoError(t, c.server.Start(t.Context()))
		func() {
			l.running.Lock() // nothing but the kube-scheduler is under way while both sides are compared
			defer l.running.Unlock()
			c.requireConsistent()
			c.requireNoOtherClaims()
		}()
		c.verdict.requireGood(t)
	}
	stop()
	<-finished
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("done beside %d kills: %v", kills, l.done)
	for _, deed := range []string{"pods bound", "pods for the kube-scheduler", "pods deleted", "claims deleted"} {
		assert.Greater(t, l.done[deed], kills, "%s: too few to prove anything", deed)
	}
	require.NoError(t, c.Client().CoreV1().Pods(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	for i := range raceDevices {
		c.requireAvailable(fmt.Sprintf("gpu-%d", i))
	}
	c.requireConsistent()
}

// requireNoOtherClaims waits until the account has the room of bound pods and no other.
func (c *cluster) requireNoOtherClaims() {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) {
		answer, err := c.server.Claims(c.t.Context())
		require.NoError(t, err)
		for i := range answer.Claims {
			assert.Equal(t, "Bound", answer.Claims[i].State, "%+v", answer.Claims[i])
		}
		assert.Len(t, answer.Claims, len(c.boundPods()))
	})
}

// run goes on until ctx ends.
func (l *load) run(ctx context.Context) {
	deeds := []func(context.Context) error{l.bindPod, l.bindPod, l.bindPod, l.schedulePod, l.deletePod, l.deletePod}
	var group errgroup.Group
	for range killWorkers {
		group.Go(func() error {
			for ctx.Err() == nil {
				deed := deeds[rand.IntN(len(deeds))]
				if l.tooMany() {
					deed = l.deletePod
				}
				if l.deed(ctx, deed) != nil && ctx.Err() == nil {
					<-time.After(10 * time.Millisecond) // the server is gone for a moment
				}
			}
			return nil
		})
	}
	_ = group.Wait() // the workers return no errors
}

func (l *load) tooMany() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pods) > mostPods
}

func (l *load) deed(ctx context.Context, do func(context.Context) error) error {
	l.running.RLock()
	defer l.running.RUnlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deedTimeout)
	defer cancel()
	return do(ctx)
}

func (l *load) did(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done[what]++
}

// add creates the next claim, of one device or two, and remembers the pod that is to come.
func (l *load) add(ctx context.Context) (name string, err error) {
	l.mu.Lock()
	l.count++
	name = fmt.Sprintf("pod-%d", l.count)
	l.mu.Unlock()
	_, err = l.claims().Create(ctx, newClaim(name, "K80", 1+rand.Int32N(2)), metav1.CreateOptions{})
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
	pod, err := l.Client().CoreV1().Pods(namespace).Create(ctx, newPod(name, "nobody", name), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	l.remember(name)
	for _, i := range rand.Perm(raceNodes) {
		refusal, err := l.server.TryBind(ctx, pod, fmt.Sprintf("node-%d", i))
		if err != nil {
			return err // it may be bound or not; nobody needs to know
		}
		if refusal == "" {
			l.did("pods bound")
			return nil
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
	l.did("pods for the kube-scheduler")
	return nil
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
			defer l.did("pods deleted")
			return l.Client().CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		},
		func() error {
			defer l.did("claims deleted")
			return l.claims().Delete(ctx, name, metav1.DeleteOptions{})
		},
	}
	for _, k := range rand.Perm(len(steps)) {
		if err := steps[k](); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
