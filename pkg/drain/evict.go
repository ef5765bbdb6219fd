package drain

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
)

// move evicts a pod that has a place, and waits until the one that is made for it is bound. A pod whose place is gone
// by now stays for the next plan.
func (d *Drain) move(ctx context.Context, pod *Pod) error {
	name := pod.Namespace + "/" + pod.Pod
	if pod.needsPlace() && pod.To != "" {
		if has, err := d.hasSlot(ctx, pod); err != nil || !has {
			return err
		}
	}
	before, err := d.siblings(ctx, pod)
	if err != nil {
		return err
	}
	if err := d.evict(ctx, pod); err != nil {
		return fmt.Errorf("evicting pod %s: %w", name, err)
	}
	what := "evicted, and needs no place"
	if pod.needsPlace() {
		known := sets.New[types.UID]()
		for i := range before {
			known.Insert(before[i].UID)
		}
		if what, err = d.await(ctx, pod, known); err != nil {
			return fmt.Errorf("waiting for what is made for pod %s: %w", name, err)
		}
	}
	d.mu.Lock()
	d.moved++
	d.mu.Unlock()
	d.say("pod/%s %s\n", name, what)
	return nil
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

// siblings returns the pods of a pod's owner, those that are being deleted aside.
func (d *Drain) siblings(ctx context.Context, pod *Pod) ([]v1.Pod, error) {
	of := metav1.GetControllerOf(pod.Object)
	if of == nil {
		return nil, nil
	}
	list, err := d.Kube.CoreV1().Pods(pod.Object.Namespace).List(ctx, metav1.ListOptions{LabelSelector: alike(pod.Object)})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(p v1.Pod) bool {
		by := metav1.GetControllerOf(&p)
		return by == nil || by.UID != of.UID || p.DeletionTimestamp != nil || p.Status.Phase == v1.PodFailed
	}), nil
}

// podName is the label of a StatefulSet's pod with its own name.
const podName = "statefulset.kubernetes.io/pod-name"

// alike selects the pods of an owner that says which are its own, and else all.
func alike(pod *v1.Pod) string {
	for _, key := range []string{appsv1.DefaultDeploymentUniqueLabelKey, batchv1.ControllerUidLabel, podName} {
		if value, ok := pod.Labels[key]; ok {
			return labels.SelectorFromSet(labels.Set{key: value}).String()
		}
	}
	return ""
}

// await waits until all pods that an owner has made since are bound, or ready, at least one of them. It returns in
// words what became of the pod, also where its owner makes no other.
func (d *Drain) await(ctx context.Context, pod *Pod, before sets.Set[types.UID]) (what string, err error) {
	if pod.To == "" {
		return "evicted without a place: " + pod.Why, nil
	}
	err = wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		now, err := d.siblings(ctx, pod)
		if err != nil {
			return false, err
		}
		made := slices.DeleteFunc(slices.Clone(now), func(p v1.Pod) bool { return before.Has(p.UID) })
		waits := slices.ContainsFunc(made, func(p v1.Pod) bool { return !d.arrived(&p) })
		switch {
		case waits:
			return false, nil
		case len(made) > 0:
			what = fmt.Sprintf("evicted; %s is on %s", made[0].Name, made[0].Spec.NodeName)
			return true, nil
		}
		what = "evicted; its owner makes no other"
		return d.wantsNoMore(ctx, pod, len(now))
	})
	return what, err
}

func (d *Drain) arrived(pod *v1.Pod) bool {
	if !d.UntilReady || pod.Status.Phase == v1.PodSucceeded {
		return pod.Spec.NodeName != ""
	}
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

// wantsNoMore reports whether an owner that has so many pods makes no other: it is gone, is to have no more, or is
// done.
func (d *Drain) wantsNoMore(ctx context.Context, pod *Pod, has int) (bool, error) {
	of, in := metav1.GetControllerOf(pod.Object), pod.Object.Namespace
	var wants int32
	var err error
	switch of.Kind {
	case "ReplicaSet":
		set, e := d.Kube.AppsV1().ReplicaSets(in).Get(ctx, of.Name, metav1.GetOptions{})
		wants, err = ptr.Deref(set.Spec.Replicas, 1), e
	case "StatefulSet":
		// Its pods are selected by their names: there is one, or none.
		set, e := d.Kube.AppsV1().StatefulSets(in).Get(ctx, of.Name, metav1.GetOptions{})
		if err = e; e == nil && hasOrdinal(set, pod.Object.Name) {
			wants = 1
		}
	case "ReplicationController":
		set, e := d.Kube.CoreV1().ReplicationControllers(in).Get(ctx, of.Name, metav1.GetOptions{})
		wants, err = ptr.Deref(set.Spec.Replicas, 1), e
	case "Job":
		job, e := d.Kube.BatchV1().Jobs(in).Get(ctx, of.Name, metav1.GetOptions{})
		err = e
		if e == nil && !isDone(job) {
			wants = min(ptr.Deref(job.Spec.Parallelism, 1), ptr.Deref(job.Spec.Completions, 1<<30)-job.Status.Succeeded)
		}
	default:
		return false, nil // of a kind that is not known, wait for the pod
	}
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return int(wants) <= has, err
}

// hasOrdinal reports whether a StatefulSet has a pod of a name.
func hasOrdinal(set *appsv1.StatefulSet, name string) bool {
	start := 0
	if set.Spec.Ordinals != nil {
		start = int(set.Spec.Ordinals.Start)
	}
	ordinal, err := strconv.Atoi(name[strings.LastIndex(name, "-")+1:])
	return err == nil && ordinal >= start && ordinal < start+int(ptr.Deref(set.Spec.Replicas, 1))
}

// isDone reports whether a Job makes no more pods.
func isDone(job *batchv1.Job) bool {
	over := func(c batchv1.JobCondition) bool {
		return c.Status == v1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed)
	}
	return ptr.Deref(job.Spec.Suspend, false) || slices.ContainsFunc(job.Status.Conditions, over)
}
