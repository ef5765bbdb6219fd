package drain

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
)

// move evicts a pod that has a place, and waits until the one that is made for it is bound. A pod whose place is gone
// by now stays for the next plan.
func (d *Drain) move(ctx context.Context, pod *Pod) error {
	name := pod.Namespace + "/" + pod.Pod
	placed := pod.needsPlace() && pod.To != ""
	if placed {
		if has, err := d.hasSlot(ctx, pod); err != nil || !has {
			return err
		}
	}
	before, err := d.standing(ctx, pod.owner())
	if err != nil {
		return err
	}
	if err := d.evict(ctx, pod); err != nil {
		return fmt.Errorf("evicting pod %s: %w", name, err)
	}
	what := "evicted"
	switch {
	case placed:
		if what, err = d.await(ctx, pod, before); err != nil {
			return fmt.Errorf("waiting for what is made for pod %s: %w", name, err)
		}
	case pod.needsPlace():
		what = "evicted without a place: " + pod.Why
	}
	d.mu.Lock()
	if d.moved++; pod.needsPlace() && !placed {
		d.unplaced++
	}
	d.mu.Unlock()
	d.say("pod/%s %s\n", name, what)
	return nil
}

// await waits until the owner of a pod that was evicted has as many pods as before, or as it is to have, and no more of
// them wait than before. It returns in words what became of the pod.
func (d *Drain) await(ctx context.Context, pod *Pod, before *standing) (what string, err error) {
	err = wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		now, err := d.standing(ctx, pod.owner())
		if err != nil {
			return false, err
		}
		if !now.known { // then its pods come to its slots
			has, err := d.hasSlot(ctx, pod)
			what = "evicted; another one has its place"
			return !has, err
		}
		what = "evicted; its owner makes no other"
		if made := now.since(before); made != nil {
			what = fmt.Sprintf("evicted; %s is on %s", made.Name, made.Spec.NodeName)
		}
		return now.settled(before, d.UntilReady), nil
	})
	return what, err
}

// evict evicts a pod once its PodDisruptionBudgets allow it, and waits until it is gone. kubectl's own helper names no
// UID: after a wait it might evict the pod of a StatefulSet that was made for this one.
func (d *Drain) evict(ctx context.Context, pod *Pod) error {
	eviction := &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Object.Namespace, Name: pod.Object.Name},
		DeleteOptions: &metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(pod.Object.UID)),
		},
	}
	if d.GracePeriod >= 0 {
		eviction.DeleteOptions.GracePeriodSeconds = ptr.To(int64(d.GracePeriod))
	}
	said := ""
	return wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		now, err := d.Kube.CoreV1().Pods(pod.Object.Namespace).Get(ctx, pod.Object.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && now.UID != pod.Object.UID:
			return true, nil
		case err != nil:
			return false, err
		case now.DeletionTimestamp != nil:
			return false, nil
		}
		err = d.Kube.PolicyV1().Evictions(pod.Object.Namespace).Evict(ctx, eviction)
		switch {
		case apierrors.IsTooManyRequests(err), apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause):
			if said != err.Error() {
				said = err.Error()
				d.complain("pod/%s/%s has to wait: %v\n", pod.Object.Namespace, pod.Object.Name, err)
			}
			return false, nil
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			return false, nil
		}
		return false, err
	})
}
