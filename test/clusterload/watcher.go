package clusterload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// pauseLength is the time between two looks at what may have changed, and between attempts to reach an API server that
// does not answer.
const pauseLength = 100 * time.Millisecond

// Watcher follows every pod and node of a cluster from the API server and, after each single watch event, compares the
// requests of the pods bound to a node with the node's allocatable. Pod events come in the order in which etcd
// committed them, so no state between two binds is skipped, unless Gaps says so. It is safe for concurrent use.
type Watcher struct {
	client kubernetes.Interface
	look   []PodFunc
	stop   context.CancelFunc
	done   sync.WaitGroup

	mu         sync.Mutex // guards what follows
	account    *account
	violations []Violation
	peak       Peak
	gaps       int
	lastChange time.Time // of where pods are
	lastBind   time.Time
	podVersion string        // of the last event of a pod
	changed    chan struct{} // closed at the next change, and replaced
}

// PodFunc looks at a pod as an event has it, one event after another; gone is that of its deletion.
type PodFunc func(pod *corev1.Pod, gone bool)

// NewWatcher returns a Watcher that is not started yet, which shows every event of a pod to those who look.
func NewWatcher(client kubernetes.Interface, look ...PodFunc) *Watcher {
	return &Watcher{client: client, look: look, account: newAccount(), changed: make(chan struct{})}
}

// stream is one kind of objects to follow.
type stream struct {
	name   string
	list   func(context.Context) (runtime.Object, error)
	watch  func(context.Context, metav1.ListOptions) (watch.Interface, error)
	set    func(runtime.Object) []excess
	remove func(runtime.Object) []excess
	// prune forgets what a list did not name.
	prune func(listed map[types.UID]bool)
}

// Start reads all nodes and pods, and follows them until Stop.
func (w *Watcher) Start(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	for _, s := range []stream{w.nodes(), w.pods()} {
		version, err := w.relist(ctx, s)
		if err != nil {
			w.Stop()
			return err
		}
		w.done.Go(func() { w.follow(running, s, version) })
	}
	return nil
}

// Stop ends the watching and returns when it has ended. What was seen can still be asked for.
func (w *Watcher) Stop() {
	if w.stop != nil {
		w.stop()
	}
	w.done.Wait()
}

func (w *Watcher) nodes() stream {
	api := w.client.CoreV1().Nodes()
	return stream{
		name:  "nodes",
		list:  func(ctx context.Context) (runtime.Object, error) { return api.List(ctx, metav1.ListOptions{}) },
		watch: api.Watch,
		set:   func(object runtime.Object) []excess { return w.account.setNode(object.(*corev1.Node)) },
		remove: func(object runtime.Object) []excess {
			w.account.removeNode(object.(*corev1.Node).Name)
			return nil
		},
		prune: func(listed map[types.UID]bool) {
			for name, n := range w.account.nodes {
				if n.node != nil && !listed[n.node.UID] {
					w.account.removeNode(name)
				}
			}
		},
	}
}

func (w *Watcher) pods() stream {
	api := w.client.CoreV1().Pods(metav1.NamespaceAll)
	return stream{
		name:   "pods",
		list:   func(ctx context.Context) (runtime.Object, error) { return api.List(ctx, metav1.ListOptions{}) },
		watch:  api.Watch,
		set:    func(object runtime.Object) []excess { return w.account.setPod(w.show(object, false)) },
		remove: func(object runtime.Object) []excess { return w.account.removePod(w.show(object, true).UID) },
		prune: func(listed map[types.UID]bool) {
			for uid := range w.account.pods {
				if !listed[uid] {
					w.account.removePod(uid)
				}
			}
		},
	}
}

func (w *Watcher) show(object runtime.Object, gone bool) *corev1.Pod {
	pod := object.(*corev1.Pod)
	w.podVersion = pod.ResourceVersion
	for _, look := range w.look {
		look(pod, gone)
	}
	return pod
}

// relist takes in the whole state and returns the version to watch from.
func (w *Watcher) relist(ctx context.Context, s stream) (version string, err error) {
	list, err := s.list(ctx)
	if err != nil {
		return "", fmt.Errorf("list the %s: %w", s.name, err)
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return "", err
	}
	listMeta, err := meta.ListAccessor(list)
	if err != nil {
		return "", err
	}
	listed := make(map[types.UID]bool, len(objects))
	for _, object := range objects {
		listed[metaOf(object).GetUID()] = true
	}
	w.mu.Lock()
	s.prune(listed)
	w.mu.Unlock()
	for _, object := range objects {
		w.take(object, s.set)
	}
	return listMeta.GetResourceVersion(), nil
}

// follow watches, again and again, from where the last watch ended.
func (w *Watcher) follow(ctx context.Context, s stream, version string) {
	for ctx.Err() == nil {
		next, err := w.watchOnce(ctx, s, version)
		version = next
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			if next, err = w.relist(ctx, s); err == nil {
				version = next
				w.mu.Lock()
				w.gaps++
				w.mu.Unlock()
			}
		}
		if err != nil {
			pause(ctx)
		}
	}
}

// watchOnce takes in events until the watch ends, and returns the version of the last one.
func (w *Watcher) watchOnce(ctx context.Context, s stream, version string) (string, error) {
	events, err := s.watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
	if err != nil {
		return version, err
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return version, ctx.Err()
		case event, open := <-events.ResultChan():
			if !open {
				return version, errors.New("the watch ended")
			}
			switch event.Type {
			case watch.Error:
				return version, apierrors.FromObject(event.Object)
			case watch.Added, watch.Modified:
				w.take(event.Object, s.set)
			case watch.Deleted:
				w.take(event.Object, s.remove)
			}
			version = metaOf(event.Object).GetResourceVersion()
		}
	}
}

// take brings one change into the account and records what it finds.
func (w *Watcher) take(object runtime.Object, change func(runtime.Object) []excess) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	binds, moves := w.account.binds, w.account.moves
	for _, e := range change(object) {
		w.violations = append(w.violations, Violation{
			At: now, ResourceVersion: metaOf(object).GetResourceVersion(), Node: e.node, Resource: e.resource,
			Used: e.used, Allocatable: e.allocatable,
		})
	}
	if w.account.binds != binds {
		w.lastBind = now
	}
	if w.account.moves != moves {
		w.lastChange = now
	}
	w.peak.raise(w.account)
	close(w.changed)
	w.changed = make(chan struct{})
}

// CatchUp returns when everything the API server knows at the time of the call has been taken in.
func (w *Watcher) CatchUp(ctx context.Context) error {
	for {
		list, err := w.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list the pods: %w", err)
		}
		changed := w.Changed()
		if w.hasSeen(list) {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(pauseLength):
		case <-ctx.Done():
			return fmt.Errorf("wait for the watch of the pods to catch up: %w", ctx.Err())
		}
	}
}

// hasSeen tells whether the watch is at least as far as a list. The list's version may be that of
// any other object, later than the last event of a pod; then the pods are compared one by one.
func (w *Watcher) hasSeen(list *corev1.PodList) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	order, err := resourceversion.CompareResourceVersion(w.podVersion, list.ResourceVersion)
	if err == nil && order >= 0 {
		return true
	}
	if len(list.Items) != len(w.account.pods) {
		return false
	}
	for i := range list.Items {
		known, ok := w.account.pods[list.Items[i].UID]
		if !ok || known.pod.ResourceVersion != list.Items[i].ResourceVersion {
			return false
		}
	}
	return true
}

// Changed returns a channel that is closed at the next change of a pod or node. Take it before
// looking at the state, or the change in between is missed.
func (w *Watcher) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

func metaOf(object runtime.Object) metav1.Object {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return &metav1.ObjectMeta{}
	}
	return accessor
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(pauseLength):
	}
}
