package schedulerplugin

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/pkg/waiting"
)

// fakeBackend is a ledger, and remembers what was asked of it.
type fakeBackend struct {
	hosted   map[string]*waiting.Pods // by profile
	ledger   *ledger.Ledger
	question *placement.Builder
	unready  atomic.Bool
	fail     error           // of Reserve and Bind
	claims   map[string]bool // of devices: those that exist, each for one GPU
	advice   ledger.Reason   // of gangs
	calls    []string
}

func (b *fakeBackend) Ledger() ledger.Reader { return b.ledger.Reader }

func (b *fakeBackend) Question() *placement.Builder { return b.question }

// devices is what the claims of a pod ask for.
func (b *fakeBackend) devices(pod *cluster.Pod) *ledger.DeviceRequest {
	if pod.Devices == nil {
		return nil
	}
	r := &ledger.DeviceRequest{Err: pod.Devices.Err}
	for _, name := range pod.Devices.Claims {
		if !b.claims[name] {
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

func (b *fakeBackend) Ready() bool { return !b.unready.Load() }
func (b *fakeBackend) Wait() error { return nil }

func (b *fakeBackend) Reserve(p *ledger.Placement) (bool, error) {
	b.calls = append(b.calls, fmt.Sprintf("reserve %s on %s", p.Pod.Name, p.Node))
	if b.fail != nil {
		return false, b.fail
	}
	_, had := b.ledger.HomeOf(p.Pod)
	result := b.ledger.Reserve(ledger.NewPlan([]ledger.Placement{*p}, ledger.AllOrNothing, time.Now().Add(time.Hour)),
		time.Now())
	if len(result.Rejections) > 0 {
		return false, &RefusedError{Reason: result.Rejections[0].Reason, Revision: result.Revision}
	}
	return !had, nil
}

func (b *fakeBackend) ReserveAll(gang []ledger.Placement) (made []bool, err error) {
	call := "reserve all:"
	for i := range gang {
		call += fmt.Sprintf(" %s on %s", gang[i].Pod.Name, gang[i].Node)
		_, had := b.ledger.HomeOf(gang[i].Pod)
		made = append(made, !had)
	}
	b.calls = append(b.calls, call)
	if b.fail != nil {
		return nil, b.fail
	}
	result := b.ledger.Reserve(ledger.NewPlan(gang, ledger.AllOrNothing, time.Now().Add(time.Hour)), time.Now())
	if len(result.Rejections) > 0 {
		return nil, &RefusedError{Reason: result.Rejections[0].Reason, Revision: result.Revision}
	}
	return made, nil
}

func (b *fakeBackend) Advise(pod *cluster.Pod) ledger.Reason {
	b.calls = append(b.calls, "advise "+pod.Ref.Name)
	return b.advice
}

func (b *fakeBackend) Refused(pod *cluster.Pod, nodes []string) {
	slices.Sort(nodes)
	b.calls = append(b.calls, fmt.Sprintf("refused %s %v", pod.Ref.Name, nodes))
}

func (b *fakeBackend) Release(p *ledger.Placement) {
	b.calls = append(b.calls, fmt.Sprintf("unreserve %s on %s", p.Pod.Name, p.Node))
	b.ledger.Unreserve([]ledger.Placement{*p})
}

func (b *fakeBackend) Host(profile string, w *waiting.Pods) { b.hosted[profile] = w }

func (b *fakeBackend) Bind(_ context.Context, pod *cluster.Pod, node string) error {
	b.calls = append(b.calls, fmt.Sprintf("bind %s to %s", pod.Ref.Name, node))
	return b.fail
}

// fakeHandle has what the plugin uses of the framework's.
type fakeHandle struct {
	fwk.Handle
	informers informers.SharedInformerFactory
	activated chan string
}

func (h *fakeHandle) SharedInformerFactory() informers.SharedInformerFactory { return h.informers }
func (h *fakeHandle) SnapshotSharedLister() fwk.SharedLister                 { return fakeSnapshot{} }
func (h *fakeHandle) ProfileName() string                                    { return "profile" }
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

// fixture is a plugin on a ledger of two nodes of 4 CPUs, a and b.
type fixture struct {
	*Plugin
	t       *testing.T
	backend *fakeBackend
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
	gangs, err := kinds.New(kinds.Default())
	require.NoError(t, err)
	backend := &fakeBackend{ledger: l, hosted: map[string]*waiting.Pods{}}
	backend.question = &placement.Builder{
		Reader:  cluster.Reader{Table: l.Table(), Gangs: gangs},
		Matcher: &placement.Matcher{}, Devices: backend.devices,
	}
	client := fake.NewClientset()
	f := &fixture{
		t: t, backend: backend,
		handle: &fakeHandle{informers: informers.NewSharedInformerFactory(client, 0), activated: make(chan string, 100)},
	}
	log, _ := logtest.NewNullLogger()
	f.Plugin = &Plugin{args: &Args{}, backend: f.backend, handle: f.handle, log: log}
	f.waker = newWaker(t.Context(), f.Plugin, klog.Background())
	f.waker.start()
	t.Cleanup(f.waker.stop)
	return f
}

// known makes the scheduler's informer know a pod.
func (f *fixture) known(pod *v1.Pod) {
	f.t.Helper()
	require.NoError(f.t, f.handle.informers.Core().V1().Pods().Informer().GetStore().Add(pod))
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
	require.NoError(f.t, f.backend.question.Matcher.Set(&v1alpha1.Reservation{
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
	info, err := cluster.Reader{Table: f.backend.ledger.Table()}.NewPod(pod)
	require.NoError(f.t, err)
	observation := info.Observation()
	observation.Node = node
	if observation.Devices = f.backend.devices(info); observation.Devices != nil {
		observation.Devices.Given = "gpu-0"
	}
	f.backend.ledger.ObservePod(observation)
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
