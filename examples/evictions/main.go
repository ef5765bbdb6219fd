// Command evictions is a responder to Evictions (lifecycle.k8s.io/v1alpha1, KEP-4563), by pkg/drain: it evicts a pod
// once a place is kept for the one that is made for it. README.md says how to run it.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	lifecycle "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apply "k8s.io/client-go/applyconfigurations/lifecycle/v1alpha1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/drain"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
)

// heartbeat is how often a responder says that it is alive, at most as often as the API asks for. Once it has said
// nothing for 20 minutes the pod is evicted without it.
const heartbeat = 20 * time.Second

// responder responds to each Eviction by itself.
type responder struct {
	how   drain.Options // but for the pod
	name  string
	every time.Duration
	turns chan struct{} // of those that are evicting

	running sync.WaitGroup
	mu      sync.Mutex
	end     map[types.UID]context.CancelFunc // by Eviction
}

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "path of a kubeconfig; empty: in the cluster")
	url := flag.String("globalreserve-url", "http://127.0.0.1:23456", "where GlobalReserve serves")
	name := flag.String("responder", "example.com/place-first", "the name by which pods ask for it in evictionResponders")
	every := flag.Duration("every", 10*time.Second, "how often to look for Evictions, and to try again what failed")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		logrus.Fatalf("find the cluster: %v; give --kubeconfig", err)
	}
	config.QPS = -1 // the API server has limits of its own
	server, err := client.New(client.Options{URL: *url})
	if err != nil {
		logrus.Fatalf("--globalreserve-url: %v", err)
	}
	r := &responder{name: *name, every: *every, turns: make(chan struct{}, 10), end: map[types.UID]context.CancelFunc{}}
	r.how = drain.Options{
		Kube: kubernetes.NewForConfigOrDie(config), Reservations: versioned.NewForConfigOrDie(config), Server: server,
		Force: true, IgnoreDaemonSets: true, DeleteEmptyDirData: true, // this one pod is asked for
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	logrus.WithField("responder", r.name).Info("responding to Evictions")
	for ; ctx.Err() == nil; r.pause(ctx) {
		if err := r.look(ctx); err != nil && ctx.Err() == nil {
			logrus.WithError(err).Warn("the Evictions could not be listed")
		}
	}
	r.running.Wait()
}

// look begins with the Evictions whose turn it is at this responder, and ends what is done for the others.
func (r *responder) look(ctx context.Context) error {
	list, err := r.how.Kube.LifecycleV1alpha1().Evictions(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	active := map[types.UID]bool{}
	for i := range list.Items {
		e := &list.Items[i]
		if !r.isActive(e) {
			continue
		}
		if active[e.UID] = true; r.end[e.UID] == nil {
			wanted, end := context.WithCancel(ctx)
			r.end[e.UID] = end
			r.running.Go(func() { r.respond(ctx, wanted, e) })
		}
	}
	for uid, end := range r.end {
		if !active[uid] {
			end()
		}
	}
	return nil
}

// isActive reports whether an Eviction is this responder's for now.
func (r *responder) isActive(e *lifecycle.Eviction) bool {
	return e.Spec.Target.Pod != nil &&
		slices.ContainsFunc(e.Status.TargetResponders, func(t lifecycle.TargetResponder) bool {
			return t.Name == r.name && t.State == lifecycle.ResponderStateActive
		}) &&
		!slices.ContainsFunc(e.Status.Responders, func(s lifecycle.ResponderStatus) bool {
			return s.Name == r.name && s.CompletionTime != nil
		})
}

// respond has the pod evicted, and reports on it, until it is gone or the Eviction is not this responder's any more. If
// the process is stopped it leaves everything as it is: the next one goes on.
func (r *responder) respond(ctx, wanted context.Context, e *lifecycle.Eviction) {
	defer r.forget(e)
	t := &task{responder: r, eviction: e}
	pod, err := t.pod(wanted)
	if err != nil {
		return // the next look begins again
	}
	if pod == nil || pod.Spec.NodeName == "" {
		_ = t.report(wanted, "the pod is on no node", true) // else the next look does
		return
	}
	how := r.how
	how.Nodes, how.Pods, how.Out, how.ErrOut = []string{pod.Spec.NodeName}, []string{string(pod.UID)}, &t.said, &t.said
	how.TTL = time.Hour // between two turns nobody puts it off
	t.drain = drain.New(how)
	for !t.evict(wanted) {
		if r.pause(wanted); wanted.Err() != nil {
			break
		}
	}
	if ctx.Err() != nil || wanted.Err() == nil {
		return
	}
	for range 10 { // then by its TTL
		if err = t.end(ctx); err == nil || ctx.Err() != nil {
			return
		}
		logrus.WithError(err).WithField("pod", e.Spec.Target.Pod.Name).Warn("what was kept is not given back yet")
		r.pause(ctx)
	}
}

// task is one Eviction.
type task struct {
	*responder
	eviction *lifecycle.Eviction
	drain    *drain.Drain
	said     bytes.Buffer
	reported string
	at       time.Time
}

// evict goes on for a minute at most once it has its turn, and says whether the pod is gone and that is reported.
func (t *task) evict(wanted context.Context) bool {
	for taken := false; !taken; {
		select {
		case t.turns <- struct{}{}:
			taken = true
		case <-time.After(heartbeat):
			_ = t.report(wanted, "waiting for its turn", false) // the next one does
		case <-wanted.Done():
			return false
		}
	}
	ctx, cancel := context.WithTimeout(wanted, time.Minute)
	defer cancel()
	err := t.drain.Run(ctx)
	<-t.turns
	text := strings.TrimSpace(t.said.String())
	t.said.Reset()
	var unplaced *drain.UnplacedError
	switch {
	case errors.As(err, &unplaced):
		text = "there is no place: " + unplaced.Plan.Go[0].Why
	case text != "":
	case err != nil:
		text = err.Error()
	default:
		text = cmp.Or(t.reported, "no other pod is made for it elsewhere")
	}
	text = text[:min(len(text), 4000)] // the API takes no more
	return wanted.Err() == nil && t.report(wanted, text, err == nil) == nil && err == nil
}

// end ends what was begun for an Eviction that is over. Where the pod is gone, its place is for the one that is made.
func (t *task) end(ctx context.Context) error {
	pod, err := t.pod(ctx)
	switch {
	case err != nil:
		return err
	case pod == nil || pod.DeletionTimestamp != nil:
		return t.drain.Run(ctx)
	default:
		return t.drain.Undo(ctx)
	}
}

// pod reads the pod; it is nil where it is gone.
func (t *task) pod(ctx context.Context) (*v1.Pod, error) {
	target := t.eviction.Spec.Target.Pod
	pod, err := t.how.Kube.CoreV1().Pods(t.eviction.Namespace).Get(ctx, target.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && pod.UID != target.UID {
		return nil, nil
	}
	return pod, err
}

// report writes into the Eviction how far the responder is.
func (t *task) report(ctx context.Context, text string, done bool) error {
	now := metav1.Now()
	if !done && text == t.reported && now.Sub(t.at) < heartbeat {
		return nil
	}
	e, status := t.eviction, apply.ResponderStatus().WithName(t.name).WithHeartbeatTime(now).WithMessage(text)
	if done {
		status.WithCompletionTime(now)
	}
	_, err := t.how.Kube.LifecycleV1alpha1().Evictions(e.Namespace).ApplyStatus(ctx,
		apply.Eviction(e.Name, e.Namespace).WithUID(e.UID).WithStatus(apply.EvictionStatus().WithResponders(status)),
		metav1.ApplyOptions{FieldManager: t.name, Force: true})
	if err == nil {
		t.reported, t.at = text, now.Time
	}
	logrus.WithError(err).WithFields(logrus.Fields{"namespace": e.Namespace, "pod": e.Spec.Target.Pod.Name}).Info(text)
	return err
}

func (r *responder) forget(e *lifecycle.Eviction) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end[e.UID]()
	delete(r.end, e.UID)
}

func (r *responder) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(r.every):
	}
}
