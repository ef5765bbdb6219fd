package gangsched

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// The reasons of a Rejection that this scheduler distinguishes.
const (
	reasonInsufficientResource = "InsufficientResource"
	reasonClaimedElsewhere     = "AllocatedElsewhere"
)

const (
	// plansPerAttempt bounds how often a refused gang is planned anew before it backs off.
	plansPerAttempt = 5
	// firstBackOff and longestBackOff bound the time between attempts that failed.
	firstBackOff, longestBackOff = 50 * time.Millisecond, 5 * time.Second
	// recheck is how often a gang without capacity is looked at again. Mostly an event in the
	// cluster wakes it before; capacity that another scheduler had reserved and gave back makes none.
	recheck = 5 * time.Second
	// reservationTTL bounds how long the capacity of a gang stays reserved if this scheduler dies
	// between its reserve and its binds. It is more than two changes of the server that decides, one after
	// the other, take with the default times of the Lease.
	reservationTTL = time.Minute
	// retryFor bounds the tries of one request.
	retryFor  = 5 * time.Second
	gangIndex = "gang"
)

// Options configures a Scheduler.
type Options struct {
	// Client reads pods and nodes and, without GlobalReserve, binds.
	Client kubernetes.Interface
	// SchedulerName selects the pods: those with it as their schedulerName and of a gang.
	SchedulerName string
	// GlobalReserve reserves and binds: a client of the server (NewClient), or the server itself
	// where it is in this process. Nil: bind on this scheduler's own view.
	GlobalReserve GlobalReserve
	// Log receives what the scheduler does. Default: logrus's standard logger.
	Log logrus.FieldLogger
}

// GlobalReserve is what a Scheduler needs of the server: of one elsewhere it is a *client.Client;
// examples/embedded shows one in the scheduler's own process.
type GlobalReserve interface {
	Reserve(ctx context.Context, r *reserver.Request) (*reserver.Answer, error)
	Unreserve(ctx context.Context, r *reserver.Request) (*reserver.Answer, error)
	Bind(ctx context.Context, args *extenderv1.ExtenderBindingArgs) error
}

// NewClient returns a client for a server elsewhere, such as http://127.0.0.1:23456. It gives up
// sooner than by default, because one goroutine places all gangs.
func NewClient(url string) (*client.Client, error) {
	return client.New(client.Options{URL: url, RetryFor: retryFor})
}

// Scheduler places gangs of pods. One goroutine decides, one gang at a time.
type Scheduler struct {
	client   kubernetes.Interface
	name     string
	server   GlobalReserve // may be nil
	log      logrus.FieldLogger
	factory  informers.SharedInformerFactory
	podIndex cache.Indexer
	pods     corelisters.PodLister
	nodes    corelisters.NodeLister
	queue    workqueue.TypedRateLimitingInterface[string] // keys of gangs
	ready    chan struct{}

	mu      sync.Mutex           // guards what follows
	assumed map[types.UID]string // nodes of pods that were bound here and do not show it yet
	waiting map[string]bool      // gangs that wait for capacity
}

// New returns a Scheduler that does nothing until Run.
func New(o Options) (*Scheduler, error) {
	if o.SchedulerName == "" {
		return nil, errors.New("the scheduler's name is empty; give the schedulerName of the pods to place")
	}
	s := &Scheduler{
		client: o.Client, server: o.GlobalReserve, name: o.SchedulerName, log: o.Log,
		ready: make(chan struct{}), assumed: map[types.UID]string{}, waiting: map[string]bool{},
	}
	if s.log == nil {
		s.log = logrus.StandardLogger()
	}
	s.queue = workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstBackOff, longestBackOff))
	if err := s.setUpInformers(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Scheduler) setUpInformers() error {
	s.factory = informers.NewSharedInformerFactory(s.client, 0)
	pods, nodes := s.factory.Core().V1().Pods(), s.factory.Core().V1().Nodes()
	s.pods, s.nodes, s.podIndex = pods.Lister(), nodes.Lister(), pods.Informer().GetIndexer()
	err := pods.Informer().AddIndexers(cache.Indexers{gangIndex: func(object any) ([]string, error) {
		if key, ours := s.keyOf(object.(*corev1.Pod)); ours {
			return []string{key}, nil
		}
		return nil, nil
	}})
	if err != nil {
		return err
	}
	if _, err := pods.Informer().AddEventHandler(s.podEvents()); err != nil {
		return err
	}
	_, err = nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.wakeWaiting() },
		UpdateFunc: func(_, _ any) { s.wakeWaiting() },
	})
	return err
}

// Ready is closed when the scheduler knows the cluster and starts to place gangs.
func (s *Scheduler) Ready() <-chan struct{} { return s.ready }

// Run places gangs until the context ends, then finishes the gang it is at and returns.
func (s *Scheduler) Run(ctx context.Context) error {
	defer s.factory.Shutdown()
	s.factory.Start(ctx.Done())
	for kind, synced := range s.factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("stopped before the cluster's objects (%s) were read", kind)
		}
	}
	stop := context.AfterFunc(ctx, s.queue.ShutDown)
	defer stop()
	close(s.ready)
	s.log.WithFields(logrus.Fields{"scheduler": s.name, "globalreserve": s.server != nil}).Info(ReadyMessage)
	for {
		key, shutdown := s.queue.Get()
		if shutdown {
			return nil
		}
		s.handle(ctx, key)
		s.queue.Done(key)
	}
}

// outcome is how an attempt at a gang ended when nothing went wrong.
type outcome int

const (
	nothingToDo outcome = iota // bound already, or not complete: the next event of a pod decides
	placed
	noCapacity
)

func (s *Scheduler) handle(ctx context.Context, key string) {
	log := s.log.WithField("gang", key)
	// Before the attempt, so that capacity freed during it is not missed.
	s.setWaiting(key, true)
	result, err := s.attempt(ctx, key)
	s.setWaiting(key, err == nil && result == noCapacity)
	switch {
	case err != nil:
		log.WithError(err).Warn("gang not placed, trying again")
		s.queue.AddRateLimited(key)
		return
	case result == noCapacity:
		log.Debug("no capacity for the gang, waiting")
		s.queue.AddAfter(key, recheck)
	case result == placed:
		log.Info("gang placed")
	}
	s.queue.Forget(key)
}

// attempt tries to place what is not placed of a gang.
func (s *Scheduler) attempt(ctx context.Context, key string) (outcome, error) {
	nodeOf := s.knownNodes()
	members, err := s.members(key)
	if err != nil {
		return nothingToDo, err
	}
	g, err := collect(members, func(pod *corev1.Pod) bool { return nodeOf(pod) != "" })
	if err != nil || !g.complete() || len(g.waiting) == 0 {
		return nothingToDo, err
	}
	v, err := s.view(nodeOf)
	if err != nil {
		return nothingToDo, err
	}
	for range plansPerAttempt {
		plan, fits, err := v.plan(g.waiting)
		if err != nil || !fits {
			return noCapacity, err
		}
		granted, err := s.reserve(ctx, v, plan)
		if err != nil {
			return nothingToDo, err
		}
		if !granted {
			continue
		}
		if !s.allExist(plan) {
			s.giveBack(ctx, plan)
			return nothingToDo, errors.New("a pod of the gang was deleted while its capacity was reserved")
		}
		return placed, s.bindAll(ctx, plan)
	}
	return nothingToDo, fmt.Errorf("%d plans were refused, one after the other", plansPerAttempt)
}

// reserve asks for the capacity of a plan. A refusal corrects the view.
func (s *Scheduler) reserve(ctx context.Context, v *view, plan []placement) (bool, error) {
	if s.server == nil {
		return true, nil
	}
	request := s.request(plan)
	request.TTLSeconds = int64(reservationTTL / time.Second)
	// One ID per plan: it makes all tries of the request one to the server.
	request.RequestID = uuid.NewString()
	_, err := s.server.Reserve(ctx, request)
	var refused *reserver.RefusedError
	var unknown *reserver.UnknownOutcomeError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &refused) && len(refused.Answer.Rejections) > 0:
		s.learn(ctx, v, plan, refused.Answer)
		return false, nil
	case errors.As(err, &unknown):
		s.giveBack(ctx, plan) // the capacity may be held
	}
	return false, err
}

// learn brings what a refusal says into the view, for the next plan.
func (s *Scheduler) learn(ctx context.Context, v *view, plan []placement, answer *reserver.Answer) {
	refused := map[types.NamespacedName]bool{}
	for _, r := range answer.Rejections {
		s.log.WithFields(logrus.Fields{"node": r.Node, "reason": r.Reason}).Debug(r.Message)
		key := types.NamespacedName{Namespace: r.Namespace, Name: r.Pod}
		refused[key] = true
		switch home := v.homes[key]; {
		case home != "": // it is of no use any more
			delete(v.homes, key)
			s.giveBackAllocation(ctx, plan, r, home)
		case r.Reason == reasonClaimedElsewhere && v.nodes[r.AllocatedOn] != nil:
			// Left from an earlier attempt of ours whose end we did not see, or of a process before
			// this one. Nobody else can take it, so the pod goes there.
			v.homes[key] = r.AllocatedOn
			continue
		case r.Reason == reasonClaimedElsewhere:
			s.giveBackAllocation(ctx, plan, r, r.AllocatedOn)
			continue
		}
		column, _ := v.table.Lookup(corev1.ResourceName(r.Resource))
		v.correct(r, placedBefore(plan, r, column, refused))
	}
}

// giveBackAllocation returns the capacity that a refused pod of the plan holds on a node.
func (s *Scheduler) giveBackAllocation(ctx context.Context, plan []placement, r reserver.Rejection, node string) {
	for i := range plan {
		if plan[i].pod.Namespace == r.Namespace && plan[i].pod.Name == r.Pod {
			s.giveBack(ctx, []placement{{pod: plan[i].pod, node: node}})
		}
	}
}

func (s *Scheduler) view(nodeOf func(*corev1.Pod) string) (*view, error) {
	nodes, err := s.nodes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	pods, err := s.pods.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	return newView(nodes, pods, nodeOf), nil
}
