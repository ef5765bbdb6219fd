package extendeddevices

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/fake"
	typed "github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/typed/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

const gpu = "nvidia.com/gpu"

// world is a started Controller between a ledger and an API server that knows nothing but its own kinds.
type world struct {
	*testing.T
	controller  *Controller
	ledger      *ledger.Ledger
	client      *fake.Clientset
	recorder    *events.FakeRecorder
	served      atomic.Bool
	definitions *informer.Definitions
	pods        *cluster.Pods
	annotated   chan map[string]string // what was written to pods

	mu      sync.Mutex
	nodes   *cluster.Nodes
	changed []string
	cache   *cluster.Cache // of follow
}

// newWorld starts a Controller on nodes n1 and n2 and the objects given.
func newWorld(t *testing.T, objects ...runtime.Object) *world {
	w := makeWorld(t, objects...)
	w.served.Store(true)
	w.start()
	return w
}

func makeWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	log, _ := logrustest.NewNullLogger()
	w := &world{
		T: t, ledger: ledger.New(ledger.Options{FirstRevision: 100}), client: fake.NewSimpleClientset(objects...),
		recorder: events.NewFakeRecorder(1000), nodes: cluster.NewNodes(), annotated: make(chan map[string]string, 100),
		pods: cluster.NewPods(),
	}
	w.addNode("n1")
	w.addNode("n2")
	serve(w.client, &w.served)
	separate(w.client)
	w.definitions = informer.NewDefinitions(w.client.Discovery(), v1alpha1.SchemeGroupVersion, log)
	synced := informer.NewLatch()
	synced.Open()
	w.controller = New(Options{
		Ledger: w.ledger.Observer(), Client: w.client, Recorder: w.recorder, Log: log,
		Nodes: w.nodes, Pods: w.pods,
		Kind:         w.definitions.Kind("extendedresources", "extendedresourceclaims"),
		TemplateKind: w.definitions.Kind("extendedresourceclaimtemplates"),
		StateSynced:  synced,
		Term:         election.NewOwnTerm(3),
		Annotate: func(_ context.Context, _ ledger.PodRef, annotations map[string]string) error {
			w.annotated <- annotations
			return nil
		},
		OnAdopted: func() {
			if w.cache != nil {
				w.cache.ObserveDevices()
			}
		},
		OnClaimChanged: func(namespace, name string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.changed = append(w.changed, namespace+"/"+name)
			if w.cache != nil {
				w.cache.ObserveClaimants(namespace, name)
			}
		},
	})
	return w
}

// follow has the pods and nodes of an API server followed as the product follows them, and returns when they are in the
// ledger.
func (w *world) follow(objects ...runtime.Object) {
	w.Helper()
	for _, name := range []string{"n1", "n2"} {
		objects = append(objects, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{
			Allocatable: v1.ResourceList{v1.ResourcePods: resource.MustParse("110")},
		}})
	}
	log, _ := logrustest.NewNullLogger()
	cache := cluster.New(corefake.NewClientset(objects...), w.ledger.Observer(), cluster.Options{
		Devices: w.controller.Devices, Logger: log, OnPodBound: func(*cluster.Pod, bool) {},
		OnDeviceAnnotations: func(*cluster.Pod) {}, OnPodGone: func(ledger.PodRef) {},
		OnNodesChanged: func() {}, OnCatchUp: func(uint64) {}, OnNominated: func(*cluster.Pod) {},
		Keep: func(*cluster.Pod) (slot ledger.Slot, told func(*ledger.Rejection), keep bool) {
			return slot, nil, false
		},
	})
	w.mu.Lock()
	w.cache = cache
	w.mu.Unlock()
	running, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = cache.Run(running) })
	w.Cleanup(func() {
		stop()
		ended.Wait()
	})
	require.NoError(w, cache.WaitForSync(w.Context()))
	for _, object := range objects {
		if pod, ok := object.(*v1.Pod); ok {
			known, _ := cache.Pod(pod.Namespace, pod.Name)
			w.pods.Put(known)
		}
	}
}

// newWorldAtStart is a world whose server starts: it knows devices and claims, and not yet the pods that there are.
// podsKnown ends that, and what is written then rests on them.
func newWorldAtStart(t *testing.T, objects ...runtime.Object) (w *world, podsKnown func()) {
	w = makeWorld(t, objects...)
	podsKnown = w.startEarly()
	return w, podsKnown
}

func (w *world) startEarly() (podsKnown func()) {
	t := w.T
	w.served.Store(true)
	w.controller.StateSynced = informer.NewLatch()
	w.run()
	require.NoError(t, w.controller.Adopted.Wait(t.Context()))
	return func() {
		w.controller.StateSynced.Open()
		require.NoError(t, w.controller.Ready.Wait(t.Context()))
	}
}

// startAround has the server of a world start, and follow pods: before it knows devices and claims, as one that has
// stood by may have, or after.
func (w *world) startAround(standby bool, pods ...runtime.Object) {
	if standby {
		w.follow(pods...)
	}
	podsKnown := w.startEarly()
	if !standby {
		w.follow(pods...)
	}
	podsKnown()
}

func (w *world) start() {
	w.run()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	require.NoError(w, w.controller.Ready.Wait(ctx))
}

func (w *world) run() {
	running, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = w.definitions.Run(running) })
	ended.Go(func() { _ = w.controller.Run(running) })
	w.Cleanup(func() {
		stop()
		ended.Wait()
	})
}

// separate has a fake API server do as a real one does with kinds that have a subresource for their status: who writes
// that writes nothing else, and all others leave it. The fake would let a write that is behind take back what others
// wrote meanwhile.
func separate(client *fake.Clientset) {
	client.PrependReactor("update", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		written := action.(clienttesting.UpdateAction).GetObject()
		resource, namespace := action.GetResource(), action.GetNamespace()
		object, err := meta.Accessor(written)
		if err != nil {
			return false, nil, err
		}
		known, err := client.Tracker().Get(resource, namespace, object.GetName())
		if err != nil {
			return true, nil, err
		}
		head, tail := written.DeepCopyObject(), known
		if action.GetSubresource() == "status" {
			head, tail = known.DeepCopyObject(), written
		}
		switch head := head.(type) {
		case *v1alpha1.ExtendedResource:
			head.Status = *tail.(*v1alpha1.ExtendedResource).Status.DeepCopy()
		case *v1alpha1.ExtendedResourceClaim:
			head.Status = *tail.(*v1alpha1.ExtendedResourceClaim).Status.DeepCopy()
		}
		return true, head, client.Tracker().Update(resource, head, namespace)
	})
}

// noticed is how soon it has to be noticed that the definitions came or went.
const noticed = 30 * time.Second

// serve makes a fake API server know the kinds while served is true.
func serve(client *fake.Clientset, served *atomic.Bool) {
	client.Resources = []*metav1.APIResourceList{{
		GroupVersion: v1alpha1.SchemeGroupVersion.String(),
		APIResources: []metav1.APIResource{
			{Name: "extendedresources"},
			{Name: "extendedresourceclaims"},
			{Name: "extendedresourceclaimtemplates"},
		},
	}}
	client.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
		if served.Load() {
			return false, nil, nil
		}
		return true, nil, apierrors.NewNotFound(schema.GroupResource{}, "globalreserve.io")
	})
}

func (w *world) addNode(name string) {
	w.nodes.Put(&cluster.Node{Name: name})
	w.ledger.ObserveNode(ledger.NodeObservation{Name: name, Allocatable: []resources.Amount{{
		Column: resources.Pods,
		Value:  110,
	}}})
}

func (w *world) removeNode(name string) {
	w.nodes.Remove(name)
	w.ledger.RemoveNode(name)
}

// device is an object of a GPU; its ID is GPU- and its name.
func device(name, node, model string) *v1alpha1.ExtendedResource {
	return &v1alpha1.ExtendedResource{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1},
		Spec: v1alpha1.ExtendedResourceSpec{
			NodeName: node, ResourceName: gpu, DeviceID: "GPU-" + name, Properties: map[string]string{"model": model},
		},
	}
}

// claimFor is an object of a claim, by its spec in YAML.
func claimFor(t *testing.T, name, spec string) *v1alpha1.ExtendedResourceClaim {
	t.Helper()
	c := &v1alpha1.ExtendedResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Generation: 1},
		Spec:       v1alpha1.ExtendedResourceClaimSpec{ResourceName: gpu, Count: 1},
	}
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &c.Spec))
	return c
}

func (w *world) devices() typed.ExtendedResourceInterface {
	return w.client.GlobalreserveV1alpha1().ExtendedResources()
}

func (w *world) claims() typed.ExtendedResourceClaimInterface {
	return w.client.GlobalreserveV1alpha1().ExtendedResourceClaims("default")
}

// pod is a pod that names claims; node and given are empty until it is bound.
func (w *world) pod(name, claims, node, given string) *cluster.Pod {
	w.Helper()
	info, err := cluster.Reader{Table: w.ledger.Table()}.NewPod(podObject(name, claims, node, given))
	require.NoError(w, err)
	return info
}

// podObject is pod as the API server has it.
func podObject(name, claims, node, given string) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name),
			Annotations: map[string]string{v1alpha1.ExtendedResourceClaimsAnnotation: claims},
		},
		Spec: v1.PodSpec{NodeName: node},
	}
	if given != "" {
		pod.Annotations[v1alpha1.ExtendedResourcesAnnotation] = given
	}
	return pod
}

// fits returns why the ledger would not take a pod on a node, or that it would.
func (w *world) fits(pod *cluster.Pod, node string) ledger.Reason {
	p := pod.Placement(node)
	p.Devices = w.controller.Devices(pod)
	return w.ledger.AppendFit(nil, &p, []string{node})[0].Reason
}

// bind does what the binder does for a pod and returns what the pod is given.
func (w *world) bind(name, claims, node string) string {
	w.Helper()
	pod := w.pod(name, claims, "", "")
	p := pod.Placement(node)
	p.Devices = w.controller.Devices(pod)
	grant, rejection := w.ledger.StartBind(&p, time.Now())
	require.Nil(w, rejection)
	given := pod.Given(nil, grant.Devices)[v1alpha1.ExtendedResourcesAnnotation]
	w.observe(w.pod(name, claims, node, given))
	return given
}

// observe does what the cache does for a pod found bound.
func (w *world) observe(bound *cluster.Pod) {
	o := bound.Observation()
	o.Devices = w.controller.Devices(bound)
	w.ledger.ObservePod(o)
}

func (w *world) remove(name string) {
	w.ledger.RemovePod(ledger.PodRef{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}, 0)
}

// eventually polls until the condition holds.
func (w *world) eventually(condition func(t *assert.CollectT)) {
	w.Helper()
	require.EventuallyWithT(w, condition, time.Minute, 5*time.Millisecond)
}

// awaitClaimThat waits until something holds of a claim.
func (w *world) awaitClaimThat(name string, holds func(t *assert.CollectT, claim *v1alpha1.ExtendedResourceClaim)) {
	w.Helper()
	w.eventually(func(t *assert.CollectT) {
		claim, err := w.claims().Get(w.Context(), name, metav1.GetOptions{})
		if assert.NoError(t, err) {
			holds(t, claim)
		}
	})
}

// awaitClaim waits until a claim is in a phase and returns its status.
func (w *world) awaitClaim(name string,
	phase v1alpha1.ExtendedResourceClaimPhase,
) (status v1alpha1.ExtendedResourceClaimStatus) {
	w.Helper()
	w.awaitClaimThat(name, func(t *assert.CollectT, claim *v1alpha1.ExtendedResourceClaim) {
		status = claim.Status
		assert.Equal(t, phase, status.Phase, "%+v", status)
	})
	return status
}

// changeClaim changes a claim as people do.
func (w *world) changeClaim(name string, change func(claim *v1alpha1.ExtendedResourceClaim)) {
	w.Helper()
	claim, err := w.claims().Get(w.Context(), name, metav1.GetOptions{})
	require.NoError(w, err)
	change(claim)
	_, err = w.claims().Update(w.Context(), claim, metav1.UpdateOptions{})
	require.NoError(w, err)
}

// awaitDevice waits until a device is in a phase and returns its status.
func (w *world) awaitDevice(name string,
	phase v1alpha1.ExtendedResourcePhase,
) (status v1alpha1.ExtendedResourceStatus) {
	w.Helper()
	w.eventually(func(t *assert.CollectT) {
		d, err := w.devices().Get(w.Context(), name, metav1.GetOptions{})
		if assert.NoError(t, err) {
			status = d.Status
			assert.Equal(t, phase, status.Phase, "%+v", status)
		}
	})
	return status
}

// awaitEvent waits for an Event that contains a text.
func (w *world) awaitEvent(text string) {
	w.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case event := <-w.recorder.Events:
			if strings.Contains(event, text) {
				return
			}
		case <-timeout:
			require.Fail(w, "the event did not come", text)
		}
	}
}

// assertTrouble checks what Trouble says of a pod's claims when it is refused all nodes.
func (w *world) assertTrouble(pod *cluster.Pod, want ledger.Reason, note string) {
	reason, said := w.controller.Trouble(pod)
	assert.Equal(w, want, reason, said)
	assert.Contains(w, said, note)
}
