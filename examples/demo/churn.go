package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
)

const (
	// churnEvery is how often pods go and others come, and churnPods how many: a gang, and as many for each other
	// scheduler.
	churnEvery = time.Second
	churnPods  = 3 * gangSize
	// historyLength is how many seconds the page shows.
	historyLength = 180
)

// controls are the switches of the page.
type controls struct {
	// Churn: pods come and go. Behind: all schedulers ask GlobalReserve.
	Churn  bool `json:"churn"`
	Behind bool `json:"behind"`
}

// sample is the cluster at one second.
type sample struct {
	Overcommitted int  `json:"overcommitted"`
	Behind        bool `json:"behind"`
}

// churn keeps the cluster busy after the runs as a visitor wants it.
type churn struct {
	*cluster
	tally         *tally
	with, without schedulers
	round         int

	mu      sync.Mutex // guards what follows
	wished  controls
	is      controls
	history []sample
}

func (c *churn) wish(wished controls) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wished = wished
}

// state is what the switches are at, and what was wished for.
func (c *churn) state() (is, wished controls, history []sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.is, c.wished, append([]sample{}, c.history...)
}

// run does what is wished for until the context ends.
func (c *churn) run(ctx context.Context) error {
	ticker := time.NewTicker(churnEvery)
	defer ticker.Stop()
	for {
		is, wished, _ := c.state()
		if is.Behind != wished.Behind {
			if err := c.exchange(ctx, wished.Behind); err != nil {
				return fmt.Errorf("put the schedulers before or behind GlobalReserve: %w", err)
			}
		}
		c.note(wished)
		if wished.Churn {
			if err := c.burst(ctx); err != nil {
				return fmt.Errorf("have pods come and go: %w", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// note takes a sample.
func (c *churn) note(is controls) {
	nodes, _ := c.tally.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.is = is
	c.history = append(c.history, sample{Overcommitted: overcommitted(nodes), Behind: is.Behind})
	if len(c.history) > historyLength {
		c.history = c.history[1:]
	}
}

// exchange stops the schedulers that run and starts those of the same names that do, or do not, ask GlobalReserve.
func (c *churn) exchange(ctx context.Context, behind bool) error {
	from, to := c.with, c.without
	if behind {
		from, to = to, from
	}
	if err := c.stopSchedulers(from); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range to.parts() {
		group.Go(func() error { return c.cp.StartPart(ctx, name) })
	}
	return group.Wait()
}

// burst deletes some of the pods that have a node, and creates as many as are missing.
func (c *churn) burst(ctx context.Context) error {
	bound := c.tally.bound()
	if len(bound) < churnPods {
		return nil
	}
	rand.Shuffle(len(bound), func(i, j int) { bound[i], bound[j] = bound[j], bound[i] })
	group, groupCtx := errgroup.WithContext(ctx)
	now := int64(0)
	for _, pod := range bound[:churnPods] {
		group.Go(func() error {
			err := c.cp.Client().CoreV1().Pods(pod.namespace).Delete(groupCtx, pod.name,
				metav1.DeleteOptions{GracePeriodSeconds: &now})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	c.round++
	return clusterload.CreatePods(ctx, c.cp.Client(), c.newcomers())
}

// newcomers are the pods of one round.
func (c *churn) newcomers() []*corev1.Pod {
	var all []*corev1.Pod
	for _, name := range schedulerNames {
		batch := clusterload.Batch{
			Namespace: namespace, Prefix: fmt.Sprintf("round-%d-%s", c.round, name), Scheduler: name,
			Count: gangSize, Sizes: podSizes(),
		}
		if name == gangScheduler {
			batch.GangSize = gangSize
		}
		all = append(all, batch.Pods()...)
	}
	return all
}

// podSizes are the requests of all pods.
func podSizes() []corev1.ResourceList {
	return []corev1.ResourceList{{
		corev1.ResourceCPU:    *resource.NewQuantity(podCPUs, resource.DecimalSI),
		corev1.ResourceMemory: resource.MustParse("1Gi"),
	}}
}
