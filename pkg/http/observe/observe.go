// Package observe is what a server does that only observes (--observe). It decides nothing and refuses nothing: it
// answers yes to schedulers and the API server, and carries out the binds that schedulers ask for. It follows pods and
// nodes. Of each pod that gets a node which the ledger would have refused, it remembers who had the capacity.
//
// There is one place that finds conflicts: where the watch brings a pod that is bound. So each is found once, whether
// it was bound through this server, past its webhook or without it, and in the order in which the API server took the
// pods.
//
// What may be touched: the only thing that is written is the Binding that a scheduler asks for, without any annotation.
// The server takes part in no election, and so can run beside one that decides: for that it is one more scheduler that
// binds past it.
package observe

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/lru"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/requeue"
)

// ReserveText is the answer to a caller that asks for capacity.
const ReserveText = "nothing was reserved: this server only observes (--observe) and keeps no capacity for anybody; " +
	"bind the pods as without GlobalReserve, or start the server without --observe"

// maxAsked is how many of the latest binds are remembered, to know who asked for them.
const maxAsked = 10_000

// Options are what an Observer works with. All are required.
type Options struct {
	Client      kubernetes.Interface
	Arbiter     *decide.Arbiter
	BindTimeout time.Duration
	Log         logrus.FieldLogger
}

// Observer binds what it is asked to, and finds conflicts. Make one with New.
type Observer struct {
	Options
	asked *lru.Cache // of asked, by the namespace and name of the pod
}

// asked is who asked for a pod to be on a node.
type asked struct{ path, caller, node string }

// New returns an Observer.
func New(o Options) *Observer { return &Observer{Options: o, asked: lru.New(maxAsked)} }

// Bind binds a pod to a node, whatever is free there.
func (o *Observer) Bind(ctx context.Context, ref ledger.PodRef, node string) error {
	ref, err := o.Arbiter.MayBind(ctx, ref)
	if err != nil {
		return err
	}
	o.Asked(requeue.Bind, auth.Name(ctx), ref, node)
	ctx, cancel := context.WithTimeout(ctx, o.BindTimeout)
	defer cancel()
	pods := o.Client.CoreV1().Pods(ref.Namespace)
	err = pods.Bind(ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if err == nil {
		return nil
	}
	pod, missing := pods.Get(ctx, ref.Name, metav1.GetOptions{})
	if missing == nil && pod.UID == ref.UID && pod.Spec.NodeName == node {
		return nil // a request before this one was carried out
	}
	return &gates.Error{Outcome: gates.Failed, Pod: ref, Node: node, Cause: err}
}

// Asked notes who asked by which path for a pod to be on a node.
func (o *Observer) Asked(path, caller string, pod ledger.PodRef, node string) {
	o.asked.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, asked{path, caller, node})
}

// Bound is called for a pod that got a node, after the ledger has recorded it.
func (o *Observer) Bound(pod *cluster.Pod) {
	by := asked{path: requeue.Watch}
	if known, ok := o.asked.Get(types.NamespacedName{Namespace: pod.Ref.Namespace, Name: pod.Ref.Name}); ok {
		if k, ok := known.(asked); ok && k.node == pod.Node {
			by = k
		}
	}
	if conflict := o.Arbiter.Observe(pod, by.path, by.caller); conflict != nil {
		o.Log.WithFields(logrus.Fields{
			"pod": pod.Ref.String(), "uid": pod.Ref.UID, "node": pod.Node, "scheduler": pod.Scheduler, "path": by.path,
		}).Warn("a conflict, which a server without --observe would have refused: " + conflict.Message())
	}
}
