package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
)

const (
	// raceTimeout bounds a run, quietTime is how long nothing may happen before it counts as over.
	raceTimeout = 60 * time.Second
	quietTime   = 2 * time.Second
	tellEvery   = time.Second

	defaultScheduler = "default-scheduler"
	secondScheduler  = "second-scheduler"
	gangScheduler    = "gang-scheduler"
)

// race is one run.
type race struct {
	label string
	// serverURL is GlobalReserve's; empty: every scheduler binds on its own view.
	serverURL string
	// keep leaves the schedulers running.
	keep bool
}

// partName keeps the processes of the runs apart.
func (r race) partName(scheduler string) string {
	if r.serverURL == "" {
		return scheduler
	}
	return scheduler + "-with-globalreserve"
}

func (r race) parts() []string {
	return []string{r.partName(defaultScheduler), r.partName(secondScheduler), r.partName(gangScheduler)}
}

// race starts the schedulers, gives them all pods at the same moment, and waits until there is nothing
// left that they could do.
func (d *demo) race(ctx context.Context, r race) (result, error) {
	d.out.step("run %s: starting two kube-schedulers and the gang scheduler", r.label)
	if err := d.startSchedulers(ctx, r); err != nil {
		return result{}, err
	}
	began, err := d.letGo(ctx, r, demand())
	if err != nil {
		return result{}, err
	}
	settled, err := d.await(ctx)
	if err != nil {
		return result{}, err
	}
	final := newResult(r.label, d.watcher, settled, settled.LastBind.Sub(began))
	d.out.step("  %s", final.summary())
	if r.keep {
		return final, nil
	}
	return final, d.stopSchedulers(r)
}

// letGo creates all pods while the schedulers are frozen, so that they begin at the same moment.
func (d *demo) letGo(ctx context.Context, r race, pods []*corev1.Pod) (began time.Time, err error) {
	d.out.step("  creating %d pods while the schedulers are held back", len(pods))
	if err := d.signal(r, syscall.SIGSTOP); err != nil {
		return time.Time{}, err
	}
	created := clusterload.CreatePods(ctx, d.cp.Client(), pods)
	d.out.step("  all pods are there, and the schedulers are let go at once")
	began = time.Now()
	// After a failure too: a frozen process cannot be stopped.
	return began, errors.Join(created, d.signal(r, syscall.SIGCONT))
}

// demand makes the pods: more than fit, a quarter of them in gangs.
func demand() []*corev1.Pod {
	return clusterload.Race(clusterload.RaceOptions{
		Namespace: namespace, Capacity: nodeCount * nodeCPUs * 1000, Percent: demandPercent,
		Sizes: []corev1.ResourceList{{
			corev1.ResourceCPU:    *resource.NewQuantity(podCPUs, resource.DecimalSI),
			corev1.ResourceMemory: resource.MustParse("1Gi"),
		}},
		Schedulers:    []string{defaultScheduler, secondScheduler},
		GangScheduler: gangScheduler, GangSize: gangSize, GangPercent: gangPercent,
	})
}

func (d *demo) startSchedulers(ctx context.Context, r race) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range []string{defaultScheduler, secondScheduler} {
		group.Go(func() error {
			config, err := clusterload.SchedulerConfig(name+".yaml", r.serverURL)
			if err != nil {
				return err
			}
			return d.cp.StartScheduler(ctx, r.partName(name), config)
		})
	}
	group.Go(func() error {
		_, err := clusterload.StartGangScheduler(ctx, d.cp, clusterload.GangSchedulerOptions{
			Name: r.partName(gangScheduler), SchedulerName: gangScheduler, ServerURL: r.serverURL,
			Command: []string{d.self, "gangscheduler"},
		})
		return err
	})
	return group.Wait()
}

func (d *demo) stopSchedulers(r race) error {
	var errs []error
	for _, name := range r.parts() {
		errs = append(errs, d.cp.StopPart(name))
	}
	return errors.Join(errs...)
}

// signal freezes the schedulers or lets them go.
func (d *demo) signal(r race, signal syscall.Signal) error {
	for _, name := range r.parts() {
		process, err := d.cp.Process(name)
		if err != nil {
			return err
		}
		if err := process.Signal(signal); err != nil {
			return fmt.Errorf("signal %s: %w", name, err)
		}
	}
	return nil
}

// await waits for the end of a run and tells how it goes. A run in which pods are stuck ends with the
// timeout and is a result too.
func (d *demo) await(ctx context.Context) (clusterload.Snapshot, error) {
	telling, done := context.WithCancel(ctx)
	var teller sync.WaitGroup
	teller.Go(func() { d.tell(telling) })
	defer teller.Wait()
	defer done()
	limited, cancel := context.WithTimeout(ctx, raceTimeout)
	defer cancel()
	snapshot, err := d.watcher.AwaitSettled(limited, quietTime)
	if errors.Is(err, clusterload.ErrStuck) && ctx.Err() == nil {
		return snapshot, nil
	}
	return snapshot, err
}

// tell prints the state every second in which it has changed.
func (d *demo) tell(ctx context.Context) {
	ticker := time.NewTicker(tellEvery)
	defer ticker.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s := d.watcher.Snapshot()
		now := fmt.Sprintf("%d pods bound, %d wait, %d nodes overcommitted", s.Bound, s.Pending, s.OvercommittedNodes)
		if now != last {
			d.out.step("  %s", now)
		}
		last = now
	}
}

// waitingPod returns the name of a pod that waits for capacity, a single one if there is one; or "".
func (d *demo) waitingPod(ctx context.Context) string {
	list, err := d.cp.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
	if err != nil {
		return ""
	}
	found := ""
	for i := range list.Items {
		pod := &list.Items[i]
		if found == "" || pod.Spec.SchedulerName != gangScheduler {
			found = pod.Name
		}
	}
	return found
}
