package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/test/clusterload"
)

const (
	// raceTimeout bounds a run, quietTime is how long nothing may happen before it counts as over.
	raceTimeout = 60 * time.Second
	quietTime   = 2 * time.Second
	tellEvery   = time.Second
)

// race is one run.
type race struct {
	label string
	schedulers
	// observerURL is that of a server that observes; empty: there is none.
	observerURL string
	// keep leaves the schedulers running.
	keep bool
}

// race starts the schedulers, gives them all pods at the same moment, and waits until there is nothing
// left that they could do.
func (d *demo) race(ctx context.Context, r race) (result, error) {
	d.page.show("the run " + r.label + " is under way")
	d.out.step("run %s: starting two kube-schedulers and the gang scheduler", r.label)
	if err := d.startSchedulers(ctx, r.schedulers); err != nil {
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
	seen, err := d.conflicts(ctx, r, began)
	if err != nil {
		return result{}, err
	}
	d.page.add(run{Result: final, Binds: d.tally.recorded(), Conflicts: seen})
	if r.keep {
		return final, nil
	}
	return final, d.stopSchedulers(r.schedulers)
}

// conflicts returns what the observing server has seen.
func (d *demo) conflicts(ctx context.Context, r race, began time.Time) ([]bind, error) {
	if r.observerURL == "" {
		return nil, nil
	}
	observer, err := client.New(client.Options{URL: r.observerURL})
	if err != nil {
		return nil, err
	}
	answer, err := observer.Refusals(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("ask what the server has observed: %w", err)
	}
	var seen []bind
	for _, refusal := range answer.Refusals {
		node, known := nodeNumber(refusal.Rejection.Node)
		if !refusal.Observed || !known {
			continue
		}
		seen = append(seen, bind{
			At: refusal.Time.Sub(began).Milliseconds(), Pod: refusal.Rejection.Pod,
			Scheduler: slices.Index(schedulerNames, refusal.Scheduler), Node: node,
		})
	}
	d.out.step("  the server that observes saw %d pods bound where there was no capacity for them", len(seen))
	return seen, nil
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
	d.tally.record(began)
	// After a failure too: a frozen process cannot be stopped.
	return began, errors.Join(created, d.signal(r, syscall.SIGCONT))
}

// demand makes the pods: more than fit, a quarter of them in gangs.
func demand() []*corev1.Pod {
	return clusterload.Race(clusterload.RaceOptions{
		Namespace: namespace, Capacity: nodeCount * nodeCPUs * 1000, Percent: demandPercent,
		Sizes: podSizes(), Schedulers: []string{defaultScheduler, secondScheduler},
		GangScheduler: gangScheduler, GangSize: gangSize, GangPercent: gangPercent,
	})
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

// await waits for the end of a run and reports how it goes. A run in which pods are stuck ends with the
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
