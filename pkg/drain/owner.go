package drain

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
)

// standing is how many pods an owner is to have, and those that it has, apart from those that are being deleted or have
// ended.
type standing struct {
	known bool // false for kinds that do not say
	wants int
	pods  []v1.Pod
}

// standing reads what an owner is to have, and then what it has. One that is gone is to have nothing.
func (d *Drain) standing(ctx context.Context, of owner) (*standing, error) {
	if of.unknown {
		return &standing{}, nil
	}
	s, selector, err := d.wants(ctx, of)
	if apierrors.IsNotFound(err) {
		return &standing{known: true}, nil
	}
	if err != nil || !s.known {
		return s, err
	}
	by, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, fmt.Errorf("the selector of %s: %w", of, err)
	}
	list, err := d.Kube.CoreV1().Pods(of.namespace).List(ctx, metav1.ListOptions{LabelSelector: by.String()})
	if err != nil {
		return nil, err
	}
	s.pods = slices.DeleteFunc(list.Items, func(p v1.Pod) bool {
		return !of.controls(&p) || p.DeletionTimestamp != nil || p.Status.Phase == v1.PodSucceeded ||
			p.Status.Phase == v1.PodFailed
	})
	return s, nil
}

// controls reports whether a pod is the owner's. A selector may select others, too.
func (o owner) controls(pod *v1.Pod) bool {
	by := metav1.GetControllerOf(pod)
	if by == nil {
		return false
	}
	if o.kind == "Deployment" {
		return by.Kind == "ReplicaSet" && by.Name == o.name+"-"+pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	}
	return by.Kind == o.kind && by.Name == o.name
}

// wants reads how many pods an owner is to have, and how they are selected.
func (d *Drain) wants(ctx context.Context, of owner) (*standing, *metav1.LabelSelector, error) {
	replicas := func(n *int32) *standing { return &standing{known: true, wants: int(ptr.Deref(n, 1))} }
	get := metav1.GetOptions{}
	switch of.kind {
	case "Deployment":
		o, err := d.Kube.AppsV1().Deployments(of.namespace).Get(ctx, of.name, get)
		return replicas(o.Spec.Replicas), o.Spec.Selector, err
	case "ReplicaSet":
		o, err := d.Kube.AppsV1().ReplicaSets(of.namespace).Get(ctx, of.name, get)
		return replicas(o.Spec.Replicas), o.Spec.Selector, err
	case "StatefulSet":
		o, err := d.Kube.AppsV1().StatefulSets(of.namespace).Get(ctx, of.name, get)
		return replicas(o.Spec.Replicas), o.Spec.Selector, err
	case "ReplicationController":
		o, err := d.Kube.CoreV1().ReplicationControllers(of.namespace).Get(ctx, of.name, get)
		return replicas(o.Spec.Replicas), &metav1.LabelSelector{MatchLabels: o.Spec.Selector}, err
	case "Job":
		o, err := d.Kube.BatchV1().Jobs(of.namespace).Get(ctx, of.name, get)
		return &standing{known: true, wants: jobWants(o)}, o.Spec.Selector, err
	default:
		return &standing{}, nil, nil
	}
}

// jobWants is how many pods of a Job are to run.
func jobWants(job *batchv1.Job) int {
	over := func(c batchv1.JobCondition) bool {
		return c.Status == v1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed)
	}
	if ptr.Deref(job.Spec.Suspend, false) || slices.ContainsFunc(job.Status.Conditions, over) {
		return 0
	}
	wants := ptr.Deref(job.Spec.Parallelism, 1)
	if job.Spec.Completions != nil {
		wants = min(wants, *job.Spec.Completions-job.Status.Succeeded)
	}
	return int(wants)
}

// settled reports whether an owner has as many pods as before, or as it is to have, and no more of them wait for a node
// than before, or are not ready.
func (s *standing) settled(before *standing, untilReady bool) bool {
	return len(s.pods) >= min(s.wants, len(before.pods)) && s.count(unbound) <= before.count(unbound) &&
		(!untilReady || s.count(unready) <= before.count(unready))
}

func (s *standing) count(what func(*v1.Pod) bool) (n int) {
	for i := range s.pods {
		if what(&s.pods[i]) {
			n++
		}
	}
	return n
}

func unbound(pod *v1.Pod) bool { return pod.Spec.NodeName == "" }

func unready(pod *v1.Pod) bool {
	return !slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

// since returns a pod that was made since, nil where there is none.
func (s *standing) since(before *standing) *v1.Pod {
	known := sets.New[types.UID]()
	for i := range before.pods {
		known.Insert(before.pods[i].UID)
	}
	i := slices.IndexFunc(s.pods, func(p v1.Pod) bool { return !known.Has(p.UID) })
	if i < 0 {
		return nil
	}
	return &s.pods[i]
}
