// Command firstscheduler is the smallest useful scheduler behind GlobalReserve, written to be read
// from top to bottom by somebody who has never written one. README.md says how to run it.
//
// A scheduler does four things over and over: it notices a pod that has no node, picks a node,
// makes sure of the capacity there, and binds. The third step is the one that schedulers which run side
// by side get wrong, because each of them only knows what it sees; here it is GlobalReserve's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// scheduler places pods one at a time.
type scheduler struct {
	name   string         // of this scheduler: spec.schedulerName of its pods
	ttl    time.Duration  // how long capacity is kept if we die before we bind
	server *client.Client // GlobalReserve
	pods   corelisters.PodLister
	nodes  corelisters.NodeLister
	// queue has the keys (namespace/name) of pods to place. It hands out a key once at a time, and
	// keys that come back after a failure wait longer each time.
	queue workqueue.TypedRateLimitingInterface[string]
	log   *logrus.Logger
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig; default: $KUBECONFIG or ~/.kube/config")
	name := flag.String("scheduler-name", "first-scheduler", "place the pods that have this as their schedulerName")
	url := flag.String("globalreserve-url", "http://127.0.0.1:23456", "where GlobalReserve serves")
	ttl := flag.Duration("reservation-ttl", 30*time.Second, "how long capacity is kept for a pod that does not get bound")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	err := run(ctx, *kubeconfig, *name, *url, *ttl)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "firstscheduler:", err)
		os.Exit(1)
	}
}

// run connects everything and places pods until ctx ends.
func run(ctx context.Context, kubeconfig, name, url string, ttl time.Duration) error {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w; give --kubeconfig", err)
	}
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if _, err := api.Discovery().ServerVersion(); err != nil {
		return fmt.Errorf("the cluster does not answer: %w; is --kubeconfig the right one?", err)
	}
	// The client repeats a request without an answer, here not for long: the queue tries again, too, and logs it.
	server, err := client.New(client.Options{URL: url, RetryFor: 10 * time.Second})
	if err != nil {
		return fmt.Errorf("--globalreserve-url: %w", err)
	}
	defer server.Close()

	// An informer lists objects once and then watches them. Its lister answers from memory, so that
	// looking at all nodes costs no request.
	factory := informers.NewSharedInformerFactory(api, 0)
	defer factory.Shutdown()
	s := &scheduler{
		name: name, ttl: ttl, server: server, log: logrus.New(),
		pods: factory.Core().V1().Pods().Lister(), nodes: factory.Core().V1().Nodes().Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 5*time.Second)),
	}
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(s.handler()); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	// Before the first lists are complete the scheduler would decide on half a cluster.
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("stopped before all objects (%s) were read", kind)
		}
	}
	s.log.WithField("scheduler", s.name).Info("placing pods")
	defer context.AfterFunc(ctx, s.queue.ShutDown)()
	for {
		key, shutdown := s.queue.Get()
		if shutdown {
			return nil
		}
		s.handle(ctx, key)
		s.queue.Done(key)
	}
}

// handler puts the pods into the queue that are ours to place. The filter is what keeps schedulers
// apart: each pod names its scheduler, and every other one leaves it alone.
func (s *scheduler) handler() cache.ResourceEventHandler {
	enqueue := func(object any) {
		if key, err := cache.MetaNamespaceKeyFunc(object); err == nil {
			s.queue.Add(key)
		}
	}
	return cache.FilteringResourceEventHandler{
		FilterFunc: func(object any) bool {
			pod, ok := object.(*v1.Pod) // a deletion may come as something else, and needs no handling
			return ok && s.isOurs(pod)
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    enqueue,
			UpdateFunc: func(_, pod any) { enqueue(pod) },
		},
	}
}

// isOurs reports whether a pod waits for this scheduler. One with scheduling gates is not to be
// placed yet, and one that is being deleted never.
func (s *scheduler) isOurs(pod *v1.Pod) bool {
	return pod.Spec.SchedulerName == s.name && pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil &&
		len(pod.Spec.SchedulingGates) == 0
}

// handle tries to place a pod once. Whatever goes wrong, the pod comes back later: an event that
// makes capacity need not be one that a scheduler can see.
func (s *scheduler) handle(ctx context.Context, key string) {
	log := s.log.WithField("pod", key)
	node, err := s.place(ctx, key)
	switch {
	case err != nil:
		log.WithError(err).Warn("not placed, trying again")
		s.queue.AddRateLimited(key)
		return
	case node != "":
		log.WithField("node", node).Info("placed")
	}
	s.queue.Forget(key) // its next failure starts with a short pause again
}

// place picks a node, reserves and binds. It returns no node where there is nothing to do.
func (s *scheduler) place(ctx context.Context, key string) (string, error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return "", err
	}
	pod, err := s.pods.Pods(namespace).Get(name)
	switch {
	case apierrors.IsNotFound(err) || err == nil && !s.isOurs(pod):
		return "", nil // deleted or placed meanwhile; the queue only has names
	case err != nil:
		return "", err
	}
	node, err := s.pick(ctx)
	if err != nil {
		return "", err
	}
	request := &reserver.Request{
		SchedulerName: s.name, Pods: []*v1.Pod{pod}, Nodes: []string{node}, TTLSeconds: int64(s.ttl / time.Second),
		// In memory only: bind makes good what the server may forget. See below.
		Durable: new(bool),
	}
	_, err = s.server.Reserve(ctx, request)
	var refused *reserver.RefusedError
	if errors.As(err, &refused) {
		// The answer is no. It says what is missing and who holds it; a scheduler that cares
		// would pick another node by that.
		return "", err
	}
	if err != nil {
		return "", fmt.Errorf("reserve: %w", err)
	}
	// If this process dies here, nobody has to clean up: the capacity comes back when its time is over.
	return node, s.bind(ctx, pod, node, request)
}

// bind lets the server bind the pod. We could do that ourselves, by creating a Binding; but the capacity
// is kept in the server's memory, and if the server was started anew since the reserve, somebody
// else may have it. /bind makes sure of the capacity once more before it binds, or refuses.
func (s *scheduler) bind(ctx context.Context, pod *v1.Pod, node string, request *reserver.Request) error {
	err := s.server.Bind(ctx, &extenderv1.ExtenderBindingArgs{
		PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID, Node: node,
	})
	var unknown *reserver.UnknownOutcomeError
	if err == nil || errors.As(err, &unknown) {
		return err // if the pod is bound after all, the informer shows it, and there is nothing to do
	}
	// Not bound: give the capacity back at once, so that others need not wait for its time to be over.
	back := &reserver.Request{SchedulerName: s.name, Pods: request.Pods, Nodes: request.Nodes}
	if _, failed := s.server.Unreserve(ctx, back); failed != nil {
		s.log.WithError(failed).Warn("capacity stays reserved until its time is over")
	}
	return fmt.Errorf("bind to %s: %w", node, err)
}

// pick returns the node with the most free CPU. This is the place for a policy of your own: which
// nodes suit the pod (labels, taints, volumes, ...), and which of them suits best. What is free comes
// from the server, which counts what other schedulers have reserved and not bound yet; no informer
// shows that. Between this look and the reserve things change; that is what the reserve is for.
func (s *scheduler) pick(ctx context.Context) (string, error) {
	nodes, err := s.nodes.List(labels.Everything())
	if err != nil {
		return "", err
	}
	usable := map[string]bool{}
	for _, node := range nodes {
		usable[node.Name] = !node.Spec.Unschedulable && len(node.Spec.Taints) == 0
	}
	account, err := s.server.Nodes(ctx)
	if err != nil {
		return "", fmt.Errorf("ask what is free: %w", err)
	}
	best, most := "", int64(0)
	for _, node := range account.Nodes {
		if free := node.Resources[string(v1.ResourceCPU)].Free; usable[node.Name] && free > most {
			best, most = node.Name, free
		}
	}
	if best == "" {
		return "", errors.New("no usable node has any CPU left")
	}
	return best, nil
}
