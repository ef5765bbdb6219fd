package gangs

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// world is Gangs that run in a synctest bubble, between pods and a fake API server.
type world struct {
	*testing.T
	gangs  *Gangs
	pods   *cluster.Pods
	reader cluster.Reader
	client *dynamicfake.FakeDynamicClient
	log    *logrustest.Hook

	failure atomic.Pointer[error] // of lists
	away    atomic.Bool           // discovery does not answer

	mu      sync.Mutex
	served  map[schema.GroupVersion]bool
	changed map[kinds.Key]int
}

var (
	volcano     = schema.GroupVersionResource{Group: "scheduling.volcano.sh", Version: "v1beta1", Resource: "podgroups"}
	kubernetes  = schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1beta1", Resource: "podgroups"}
	kubernetes3 = schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1alpha3", Resource: "podgroups"}
	kubernetes2 = schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1alpha2", Resource: "podgroups"}
	koordinator = schema.GroupVersionResource{Group: "scheduling.sigs.k8s.io", Version: "v1alpha1", Resource: "podgroups"}
)

// run has a test go on in a world whose API server has some kinds and objects.
func run(t *testing.T, installed []schema.GroupVersionResource, objects []*unstructured.Unstructured,
	test func(t *testing.T, w *world), before ...func(w *world),
) {
	t.Helper()
	// client-go's own error handlers sleep by the time at which the process started, which is another clock than that
	// of the bubble.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	defer func() { utilruntime.ErrorHandlers = handlers }()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, installed, objects)
		for _, change := range before {
			change(w)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = w.gangs.Run(ctx) })
		defer running.Wait()
		defer stop()
		test(t, w)
	})
}

func newWorld(t *testing.T, installed []schema.GroupVersionResource, objects []*unstructured.Unstructured) *world {
	t.Helper()
	table, err := kinds.New(kinds.Default())
	require.NoError(t, err)
	lists := map[schema.GroupVersionResource]string{}
	for _, k := range table.Kinds() {
		if k.Object != nil {
			for _, version := range k.Object.Versions {
				lists[schema.GroupVersionResource{
					Group: k.Object.Group, Version: version,
					Resource: k.Object.Resource,
				}] = "PodGroupList"
			}
		}
	}
	initial := make([]runtime.Object, len(objects))
	for i := range objects {
		initial[i] = objects[i]
	}
	log, hook := logrustest.NewNullLogger()
	w := &world{
		T: t, pods: cluster.NewPods(), reader: cluster.Reader{Table: resources.NewTable(), Gangs: table}, log: hook,
		client: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, initial...),
		served: map[schema.GroupVersion]bool{}, changed: map[kinds.Key]int{},
	}
	w.client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		if failure := w.failure.Load(); failure != nil {
			return true, nil, *failure
		}
		return false, nil, nil
	})
	w.install(installed...)
	w.gangs = New(Options{
		Pods: w.pods, Kinds: table, Client: w.client, Discovery: discovered{world: w}, Log: log,
		OnChanged: func(key kinds.Key) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.changed[key]++
		},
	})
	return w
}

// install has the API server serve exactly these.
func (w *world) install(served ...schema.GroupVersionResource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.served)
	for _, gvr := range served {
		w.served[gvr.GroupVersion()] = true
	}
}

// discovered answers which kinds there are.
type discovered struct {
	discovery.DiscoveryInterfaceWithContext

	world *world
}

func (d discovered) ServerResourcesForGroupVersionWithContext(_ context.Context,
	groupVersion string,
) (*metav1.APIResourceList, error) {
	d.world.mu.Lock()
	defer d.world.mu.Unlock()
	if d.world.away.Load() {
		return nil, apierrors.NewServiceUnavailable("the server is currently unable to handle the request")
	}
	gv, err := schema.ParseGroupVersion(groupVersion)
	if err == nil && !d.world.served[gv] {
		err = apierrors.NewNotFound(schema.GroupResource{Group: gv.Group}, "")
	}
	return &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "podgroups"}}}, err
}

// settle waits until the calls of OnChanged that are under way are over, and returns their gangs.
func (w *world) settle() []kinds.Key {
	w.Helper()
	informer.Pause(w.Context(), 30*time.Second) // of the bubble's clock
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	told := slices.Collect(maps.Keys(w.changed))
	clear(w.changed)
	return told
}

// group is a PodGroup.
func group(of schema.GroupVersionResource, name string, minimum any, path ...string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion(of.GroupVersion().String())
	u.SetKind("PodGroup")
	u.SetNamespace("ns")
	u.SetName(name)
	u.SetUID(types.UID(name))
	u.SetCreationTimestamp(metav1.Unix(1000, 0))
	if len(path) == 0 {
		path = []string{"minMember"}
	}
	if minimum != nil {
		if err := unstructured.SetNestedField(u.Object, minimum, append([]string{"spec"}, path...)...); err != nil {
			panic(err)
		}
	}
	return u
}

func (w *world) pod(name string, change func(*v1.Pod)) *cluster.Pod {
	w.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name),
		Annotations: map[string]string{}, Labels: map[string]string{},
	}}
	change(pod)
	info, err := w.reader.NewPod(pod)
	require.NoError(w, err)
	return info
}

func ofVolcano(gang string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations["scheduling.k8s.io/group-name"] = gang }
}

func ofKubernetes(gang string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &gang} }
}

func ofOurs(gang, minimum string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Annotations[v1alpha1.GangAnnotation] = gang
		if minimum != "" {
			p.Annotations[v1alpha1.GangMinAnnotation] = minimum
		}
	}
}

// on gives a pod a node.
func on(node string, change func(*v1.Pod)) func(*v1.Pod) {
	return func(p *v1.Pod) {
		change(p)
		p.Spec.NodeName = node
	}
}

// createdLater makes a pod newer than others.
func createdLater(change func(*v1.Pod)) func(*v1.Pod) {
	return func(p *v1.Pod) {
		change(p)
		p.CreationTimestamp = metav1.Unix(1000, 0)
	}
}

func keyOf(kind, name string) kinds.Key { return kinds.Key{Kind: kind, Namespace: "ns", Name: name} }

var errForbidden = apierrors.NewForbidden(volcano.GroupResource(), "", nil)
