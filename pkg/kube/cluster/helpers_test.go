package cluster

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/leaks"
)

// aPod makes a pod in namespace "default" that asks for 100m CPU. Its UID is its
// name with the suffix "-uid" unless an option says otherwise.
func aPod(name string, version int, options ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name + "-uid"),
			ResourceVersion: strconv.Itoa(version),
		},
		Spec: v1.PodSpec{
			SchedulerName: "test-scheduler",
			Containers:    []v1.Container{{Name: "main", Resources: requests("100m")}},
		},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

func requests(cpu string) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}
}

func on(node string) func(*v1.Pod)         { return func(p *v1.Pod) { p.Spec.NodeName = node } }
func withUID(uid types.UID) func(*v1.Pod)  { return func(p *v1.Pod) { p.UID = uid } }
func inPhase(ph v1.PodPhase) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.Phase = ph } }
func asking(cpu string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Resources = requests(cpu) }
}

func terminating(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

// mirror stands for a static pod.
func mirror(p *v1.Pod) { p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "hash"} }

// uncounted asks for more memory than there is a number for.
func uncounted(p *v1.Pod) {
	p.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("9000P")
	p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0])
}

// aNode makes a node that offers CPU and capacity for 110 pods.
func aNode(name string, version int, cpu string, options ...func(*v1.Node)) *v1.Node {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid"), ResourceVersion: strconv.Itoa(version)},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(cpu), v1.ResourcePods: resource.MustParse("110"),
		}},
	}
	for _, option := range options {
		option(node)
	}
	return node
}

func nodeUID(uid types.UID) func(*v1.Node) { return func(n *v1.Node) { n.UID = uid } }
func cordoned(n *v1.Node)                  { n.Spec.Unschedulable = true }

// pass lets time pass in a synctest bubble, and what happens in it end.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// quiet is a logger that says nothing.
func quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// told records what others are told, in order.
type told struct {
	mu     sync.Mutex
	events []string
}

func (e *told) add(what string, who fmt.Stringer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, what+" "+who.String())
}

// options are those of a cache in tests: what it tells is kept.
func (e *told) options() Options {
	return Options{
		OnPodBound: func(p *Pod, bypassed bool) {
			e.add("bound", p.Ref)
			if bypassed {
				e.add("bypassed", p.Ref)
			}
		},
		OnPodGone: func(p ledger.PodRef) { e.add("gone", p) },
		Keep: func(*Pod) (slot ledger.Slot, told func(*ledger.Rejection),
			keep bool,
		) {
			return slot, nil, false
		},
		Devices:             func(*Pod) *ledger.DeviceRequest { return nil },
		OnDeviceAnnotations: func(*Pod) {},
		OnNodesChanged:      func() {},
		OnCatchUp:           func(uint64) {},
		OnNominated:         func(*Pod) {},
		Logger:              quiet(),
	}
}

// newCache returns a cache that nobody is told by.
func newCache() *Cache {
	return New(fake.NewClientset(), ledger.New(ledger.Options{FirstRevision: 7}).Observer(), (&told{}).options())
}

// take returns what was told since the last call.
func (e *told) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	events := e.events
	e.events = nil
	return events
}

// apiServer is a source of one kind of object that does exactly what a test
// tells it to: it streams lists or does not, is silent, breaks watches.
type apiServer struct {
	mu        sync.Mutex
	noStreams bool          // it does not support streaming lists
	down      error         // what it answers to everything, if not nil
	takes     time.Duration // by a list of everything
	kind      runtime.Object
	version   int
	objects   []runtime.Object // what a list shows
	watches   []chan watch.Event
	lists     []metav1.ListOptions // what it was asked for
}

func newAPIServer(kind runtime.Object, objects ...runtime.Object) *apiServer {
	return &apiServer{kind: kind, objects: objects, version: 1}
}

// IsWatchListSemanticsUnSupported is how client-go asks a fake about streaming.
func (s *apiServer) IsWatchListSemanticsUnSupported() bool { return s.noStreams }

// List shows everything, in pages of one object where a limit is asked for.
func (s *apiServer) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	s.lists = append(s.lists, o)
	takes := s.takes
	s.mu.Unlock()
	if takes > 0 && o.Limit != 1 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return nil, s.down
	}
	from, _ := strconv.Atoi(o.Continue)
	to := len(s.objects)
	meta := metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}
	if o.Limit > 0 && from+1 < to {
		to = from + 1
		meta.Continue = strconv.Itoa(to)
	}
	if _, pods := s.kind.(*v1.Pod); !pods {
		list := &v1.NodeList{ListMeta: meta}
		for _, o := range s.objects[from:to] {
			list.Items = append(list.Items, *o.(*v1.Node))
		}
		return list, nil
	}
	list := &v1.PodList{ListMeta: meta}
	for _, o := range s.objects[from:to] {
		list.Items = append(list.Items, *o.(*v1.Pod))
	}
	return list, nil
}

// slowDown lets lists of everything take some time from now on, and forgets those before.
func (s *apiServer) slowDown(takes time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes, s.lists = takes, nil
}

// Watch streams the objects first if it is asked to.
func (s *apiServer) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return nil, s.down
	}
	events := make(chan watch.Event, 100)
	s.watches = append(s.watches, events)
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		for _, object := range s.objects {
			events <- watch.Event{Type: watch.Added, Object: object}
		}
		events <- watch.Event{Type: watch.Bookmark, Object: s.bookmark()}
	}
	return watch.NewProxyWatcher(events), nil
}

// watched tells how many watches there have been.
func (s *apiServer) watched() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches)
}

func (s *apiServer) bookmark() runtime.Object {
	meta := metav1.ObjectMeta{
		ResourceVersion: strconv.Itoa(s.version),
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}
	if _, pods := s.kind.(*v1.Pod); pods {
		return &v1.Pod{ObjectMeta: meta}
	}
	return &v1.Node{ObjectMeta: meta}
}

// send puts an event into the newest watch.
func (s *apiServer) send(event watch.EventType, object runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[len(s.watches)-1] <- watch.Event{Type: event, Object: object}
}

// gap ends the newest watch as too old and lets the next list show objects.
func (s *apiServer) gap(version int, objects ...runtime.Object) {
	s.mu.Lock()
	s.version, s.objects = version, objects
	s.mu.Unlock()
	status := apierrors.NewResourceExpired("the watch is too old").Status()
	s.send(watch.Error, &status)
}

// fixture is a cache fed by two apiServers.
type fixture struct {
	*Cache
	decides               *ledger.Ledger // as the arbiter has it
	podServer, nodeServer *apiServer
	told                  *told
}

func newFixture(pods, nodes []runtime.Object) *fixture {
	f := &fixture{
		podServer: newAPIServer(&v1.Pod{}, pods...), nodeServer: newAPIServer(&v1.Node{}, nodes...),
		told: &told{},
	}
	f.decides = ledger.New(ledger.Options{})
	f.Cache = New(fake.NewClientset(), f.decides.Observer(), f.told.options())
	f.connect(false)
	return f
}

// connect puts the servers behind the cache, as ones that stream lists or do not.
func (f *fixture) connect(noStreams bool) {
	f.podServer.noStreams, f.nodeServer.noStreams = noStreams, noStreams
	f.podWatch.ListerWatcher = f.source(f.podServer, &f.podWatch.pulse, f.podServer.Watch, f.podServer.List)
	f.nodeWatch.ListerWatcher = f.source(f.nodeServer, &f.nodeWatch.pulse, f.nodeServer.Watch, f.nodeServer.List)
}

// enterBubble makes the channels anew that belong to the bubble they are made in.
func (f *fixture) enterBubble() {
	f.podWatch.synced, f.nodeWatch.synced = informer.NewLatch(), informer.NewLatch()
}

// allocation returns the ledger's allocation of a pod made by aPod.
func (c *Cache) claim(name string) *ledger.AllocationView {
	return allocationOf(c.ledger.Reader, ledger.PodRef{Namespace: "default", Name: name, UID: types.UID(name + "-uid")})
}

// shareOf says where a pod has its allocation, or a slot in memory: "" where it has none.
func (c *Cache) shareOf(name string) string {
	ref := ledger.PodRef{Namespace: "default", Name: name, UID: types.UID(name + "-uid")}
	if slot, ok := c.ledger.InMemory(ref); ok {
		return "Reserved " + slot.Node
	}
	if allocation, ok := c.ledger.Allocation(ref); ok {
		return allocation.State.String() + " " + allocation.Node
	}
	return ""
}

// placement asks for capacity for a pod.
func placement(c *Cache, pod *v1.Pod, node string) ledger.Placement {
	return c.reader.Compact(pod).Placement(node)
}

func TestMain(m *testing.M) {
	// One of client-go's error handlers limits their rate by the time of the
	// last error in the process, which in a synctest bubble lies years ahead.
	utilruntime.ErrorHandlers = nil
	leaks.Main(m)
}
