package schedulerplugin

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/decidetest"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// api is the API server, which binds unless it is to fail.
type api struct {
	*decidetest.API
	fail error
}

// Bind implements decide.API.
func (a *api) Bind(context.Context, *v1.Binding) error { return a.fail }

// devices is what the claims of a pod ask for.
func (f *fixture) devices(pod *cluster.Pod) *ledger.DeviceRequest {
	if pod.Devices == nil {
		return nil
	}
	r := &ledger.DeviceRequest{Err: pod.Devices.Err}
	for _, name := range pod.Devices.Claims {
		if !f.claims[name] {
			return &ledger.DeviceRequest{Err: "there is no claim " + name}
		}
		compiled, err := devices.Compile(nil, &v1alpha1.ExtendedResourceClaimSpec{ResourceName: "nvidia.com/gpu", Count: 1})
		if err != nil {
			panic(err)
		}
		r.Claims = append(r.Claims, ledger.DeviceClaimRef{Namespace: pod.Ref.Namespace, Name: name, UID: "1"})
		r.Requests = append(r.Requests, compiled)
	}
	return r
}

// fakeHandle has what the plugin uses of the framework's.
type fakeHandle struct {
	fwk.Handle
	profile   string
	informers informers.SharedInformerFactory
	activated chan string
}

func (h *fakeHandle) SharedInformerFactory() informers.SharedInformerFactory { return h.informers }
func (h *fakeHandle) SnapshotSharedLister() fwk.SharedLister                 { return fakeSnapshot{} }
func (h *fakeHandle) ProfileName() string                                    { return h.profile }
func (h *fakeHandle) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	for name := range pods {
		h.activated <- name
	}
}

type fakeSnapshot struct{ fwk.SharedLister }

func (fakeSnapshot) NodeInfos() fwk.NodeInfoLister { return nil }

// PodGroupManager has the groups "gang", which is one, and "basic", which is none.
func (h *fakeHandle) PodGroupManager() fwk.PodGroupManager { return fakeGroups{} }

type fakeGroups struct{ fwk.PodGroupManager }

func (fakeGroups) PodGroups() fwk.PodGroupLister { return fakeGroups{} }

func (fakeGroups) Get(_, name string) (*schedulingv1beta1.PodGroup, error) {
	group := &schedulingv1beta1.PodGroup{}
	if name == "gang" {
		group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}
	}
	return group, nil
}

// fakeState is a cycle's state.
type fakeState struct {
	fwk.CycleState
	data map[fwk.StateKey]fwk.StateData
	// placement is what pods share that are tried out together; nil in a cycle that is for real.
	placement *fakePlacement
}

// fakePlacement is the state of a pod group in one part of the cluster.
type fakePlacement struct {
	fwk.PlacementCycleState
	*fakeState
}

func newPlacement() *fakePlacement { return &fakePlacement{fakeState: newState()} }

func (p *fakePlacement) Read(key fwk.StateKey) (fwk.StateData, error) { return p.fakeState.Read(key) }

func (p *fakePlacement) Write(key fwk.StateKey, data fwk.StateData) { p.fakeState.Write(key, data) }
func (p *fakePlacement) Delete(fwk.StateKey)                        {}
func (p *fakePlacement) GetPodGroupSchedulingCycle() fwk.PodGroupCycleState {
	return nil
}

func newState() *fakeState { return &fakeState{data: map[fwk.StateKey]fwk.StateData{}} }

func (s *fakeState) Write(key fwk.StateKey, data fwk.StateData) { s.data[key] = data }
func (s *fakeState) IsPodGroupSchedulingCycle() bool            { return s.placement != nil }
func (s *fakeState) GetPlacementCycleState() fwk.PlacementCycleState {
	return s.placement
}

func (s *fakeState) Read(key fwk.StateKey) (fwk.StateData, error) {
	if d, ok := s.data[key]; ok {
		return d, nil
	}
	return nil, fwk.ErrNotFound
}

// clone is what preemption's dry run does.
func (s *fakeState) clone() *fakeState {
	c := newState()
	for key, data := range s.data {
		c.data[key] = data.Clone()
	}
	return c
}

type fakeNode struct {
	fwk.NodeInfo
	node *v1.Node
}

func (n fakeNode) Node() *v1.Node { return n.node }

func nodeInfo(name string) fwk.NodeInfo {
	return fakeNode{node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}
}

type fakePod struct {
	fwk.PodInfo
	pod *v1.Pod
}

func (p fakePod) GetPod() *v1.Pod { return p.pod }

// fixture is a plugin on a server with a ledger of two nodes of 4 CPUs, a and b.
type fixture struct {
	*Plugin
	t       *testing.T
	world   *decidetest.World
	ledger  *ledger.Ledger
	api     *api
	claims  map[string]bool // of devices: those that exist, each for one GPU
	unready atomic.Bool
	handle  *fakeHandle
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	l := ledger.New(ledger.Options{})
	for _, name := range []string{"a", "b"} {
		allocatable := resources.Allocatable(l.Table(), &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("4"), v1.ResourcePods: resource.MustParse("10"),
		}}})
		l.ObserveNode(ledger.NodeObservation{Name: name, UID: types.UID(name), Allocatable: allocatable})
	}
	f := &fixture{
		t: t, world: decidetest.NewWorld(l), ledger: l, handle: &fakeHandle{
			informers: informers.NewSharedInformerFactory(fake.NewClientset(), 0), activated: make(chan string, 100),
		},
	}
	f.api = &api{API: f.world.API}
	f.world.Question.Devices = f.devices
	f.world.Undecided = func() string {
		if f.unready.Load() {
			return "another server decides"
		}
		return ""
	}
	for _, name := range []string{"a", "b"} {
		f.world.Nodes.Put(&cluster.Node{Name: name})
	}
	decider := f.world.New(t, func(o *decide.Options) { o.API = f.api })
	t.Cleanup(func() { assert.NoError(t, decider.Stop(context.Background())) })
	stopped := make(chan struct{})
	close(stopped)
	f.Plugin = &Plugin{handle: f.handle, log: f.world.Log, server: &server{
		ledger: l.Reader, gates: gates.New(f.world.Policy), question: f.world.Question, arbiter: decider,
		waiting: f.world.Waiting, deciding: func() bool { return !f.unready.Load() }, ttl: time.Hour,
		stopped: stopped,
	}}
	f.waker = newWaker(t.Context(), f.server, f.handle, f.world.Log)
	f.waker.start()
	t.Cleanup(f.waker.stop)
	return f
}

// known makes the scheduler and the server know a pod.
func (f *fixture) known(pod *v1.Pod) {
	f.t.Helper()
	require.NoError(f.t, f.handle.informers.Core().V1().Pods().Informer().GetStore().Add(pod))
	f.api.Put(pod)
	f.world.Bring(pod)
}

// plugins has the plugins of a scheduler made from no args, on the server of the fixture.
func (f *fixture) plugins(ctx context.Context) *Plugins {
	f.t.Helper()
	args, err := ReadArgs(&runtime.Unknown{Raw: []byte(`{}`)})
	require.NoError(f.t, err)
	plugins := NewPlugins(Options{Log: f.world.Log})
	plugins.use(ctx, newWaker(ctx, f.server, f.handle, f.world.Log), args)
	return plugins
}

// refusals is how many the server remembers.
func (f *fixture) refusals() []*requeue.Refusal {
	list, _ := f.world.Waiting.RefusalsAfter(0)
	return list
}

// on is the node where the ledger has capacity for a pod, "-" for none.
func (f *fixture) on(pod *v1.Pod) string {
	if node, ok := f.ledger.HomeOf(f.ref(pod)); ok {
		return node
	}
	return "-"
}

func newPod(name, cpu string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1",
			Labels: map[string]string{"name": name},
		},
		Spec: v1.PodSpec{SchedulerName: "profile", Containers: []v1.Container{{
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}},
		}}},
	}
}

// match has a reservation of one slot match the pods of a name.
func (f *fixture) match(slot ledger.SlotRef, pod string) {
	f.t.Helper()
	require.NoError(f.t, f.server.question.Matcher.Set(&v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: slot.Namespace, Name: slot.Name},
		Spec: v1alpha1.ReservationSpec{
			Slots:     []v1alpha1.Slot{{Name: slot.Slot}},
			Consumers: &v1alpha1.ConsumerSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": pod}}},
		},
	}))
}

// bound puts a pod on a node in the ledger, which gives it the first device where it has claims.
func (f *fixture) bound(pod *v1.Pod, node string) {
	f.t.Helper()
	info, err := cluster.Reader{Table: f.ledger.Table()}.NewPod(pod)
	require.NoError(f.t, err)
	observation := info.Observation()
	observation.Node = node
	if observation.Devices = f.devices(info); observation.Devices != nil {
		observation.Devices.Given = "gpu-0"
	}
	f.ledger.ObservePod(observation)
}

// ref is how the ledger names a pod.
func (f *fixture) ref(pod *v1.Pod) ledger.PodRef {
	return ledger.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// begin runs PreFilter; with nodes all of them are looked at then.
func (f *fixture) begin(pod *v1.Pod, nodes ...string) *fakeState {
	f.t.Helper()
	var infos []fwk.NodeInfo
	for _, name := range nodes {
		infos = append(infos, nodeInfo(name))
	}
	state := newState()
	_, status := f.PreFilter(f.t.Context(), state, pod, infos)
	require.True(f.t, status.IsSuccess(), status.Message())
	return state
}

func (f *fixture) filter(state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	return f.Filter(f.t.Context(), state, pod, nodeInfo(node))
}
