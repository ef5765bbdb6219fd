package schedulerplugin

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/decide/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

func TestFilter(t *testing.T) {
	cases := map[string]struct {
		before func(f *fixture)
		cpu    string
		node   string
		want   fwk.Code
		reason string
	}{
		"spare":               {nil, "4", "a", fwk.Success, ""},
		"too little capacity": {nil, "5", "a", fwk.Unschedulable, "GlobalReserve: not enough capacity left on the node"},
		"taken by a pod": {
			func(f *fixture) { f.bound(newPod("other", "1"), "a") }, "4", "a", fwk.Unschedulable,
			"GlobalReserve: not enough capacity left on the node",
		},
		"no such node": {nil, "1", "c", fwk.UnschedulableAndUnresolvable, "GlobalReserve: the node is not in the ledger"},
		"cordoned": {
			func(f *fixture) { f.ledger.ObserveNode(ledger.NodeObservation{Name: "a", Unschedulable: true}) },
			"1", "a", fwk.UnschedulableAndUnresolvable, "GlobalReserve: the node is cordoned",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if tc.before != nil {
				tc.before(f)
			}
			pod := newPod("p", tc.cpu)
			status := f.filter(f.begin(pod), pod, tc.node)
			assert.Equal(t, tc.want, status.Code())
			assert.Equal(t, tc.reason, status.Message())
			if tc.node == "c" {
				return // where the numbers of nodes are the same it is Reserve that notices
			}
			status = f.filter(f.begin(pod, "a", "b"), pod, tc.node)
			assert.Equal(t, tc.want, status.Code(), "all nodes looked at before")
			assert.Equal(t, tc.reason, status.Message())
		})
	}
}

// All nodes are looked at once, before the first is asked for: what changes then is for Reserve to find.
func TestFilterIsOfOneMoment(t *testing.T) {
	f := newFixture(t)
	pod := newPod("p", "4")
	once, each := f.begin(pod, "a", "b"), f.begin(pod, "a", "b", "new")
	f.bound(newPod("other", "1"), "a")
	assert.True(t, f.filter(once, pod, "a").IsSuccess())
	assert.False(t, f.filter(each, pod, "a").IsSuccess(), "the scheduler has a node that the ledger does not know yet")
	assert.False(t, f.filter(each, pod, "new").IsSuccess())
	assert.False(t, f.Reserve(t.Context(), once, pod, "a").IsSuccess())
	dry := once.clone()
	f.RemovePod(t.Context(), dry, pod, fakePod{pod: newPod("other", "1")}, nodeInfo("a"))
	assert.True(t, f.filter(dry, pod, "a").IsSuccess())
	f.AddPod(t.Context(), dry, pod, fakePod{pod: newPod("nominated", "1")}, nodeInfo("b"))
	assert.False(t, f.filter(dry, pod, "b").IsSuccess(), "what is imagined counts")
}

func TestUncountablePod(t *testing.T) {
	f := newFixture(t)
	_, status := f.PreFilter(t.Context(), newState(), newPod("p", "-1"), nil)
	assert.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code())
	assert.Equal(t, placement.Uncountable, status.Message())
}

// A pod that has capacity on a node already is looked at there alone.
func TestPodIsKeptToItsNode(t *testing.T) {
	f := newFixture(t)
	pod := newPod("p", "1")
	f.bound(newPod("p", "1"), "b") // as an allocation of another scheduler would be
	result, status := f.PreFilter(t.Context(), newState(), pod, nil)
	require.True(t, status.IsSuccess())
	assert.Equal(t, sets.New("b"), result.NodeNames)
	_, status = f.SignPod(t.Context(), pod)
	assert.Equal(t, fwk.Unschedulable, status.Code(), "it is like no other pod")
}

// Preemption asks whether a pod would fit without some victims, and spares those it does not need.
func TestPreemptionsDryRun(t *testing.T) {
	f := newFixture(t)
	small, large, pod := newPod("small", "1"), newPod("large", "3"), newPod("p", "3")
	f.bound(small, "a")
	f.bound(large, "a")
	state := f.begin(pod)
	assert.Equal(t, fwk.Unschedulable, f.filter(state, pod, "a").Code())
	dry := state.clone()
	remove := func(victim *v1.Pod) { f.RemovePod(t.Context(), dry, pod, fakePod{pod: victim}, nodeInfo("a")) }
	add := func(victim *v1.Pod) { f.AddPod(t.Context(), dry, pod, fakePod{pod: victim}, nodeInfo("a")) }
	remove(small)
	remove(large)
	assert.True(t, f.filter(dry, pod, "a").IsSuccess())
	add(large)
	assert.False(t, f.filter(dry, pod, "a").IsSuccess(), "the large one is in the way")
	remove(large)
	add(small)
	assert.True(t, f.filter(dry, pod, "a").IsSuccess(), "the small one is not")
	assert.False(t, f.filter(state, pod, "a").IsSuccess(), "the cycle itself imagines nothing")
	assert.Equal(t, cycleOf(state).revision, f.ledger.Revision(), "nothing was asked for")
}

// Preemption looks at many nodes at once, each with a copy of its own.
func TestDryRunsAreApart(t *testing.T) {
	f := newFixture(t)
	small, large, pod := newPod("small", "1"), newPod("large", "3"), newPod("p", "4")
	f.bound(small, "a")
	f.bound(large, "a")
	state := f.begin(pod)
	for _, victim := range []*v1.Pod{small, large} {
		f.RemovePod(t.Context(), state, pod, fakePod{pod: victim}, nodeInfo("a"))
	}
	one, other := state.clone(), state.clone()
	f.AddPod(t.Context(), one, pod, fakePod{pod: small}, nodeInfo("a"))
	assert.False(t, f.filter(one, pod, "a").IsSuccess())
	assert.True(t, f.filter(other, pod, "a").IsSuccess())
	f.AddPod(t.Context(), one, pod, fakePod{pod: newPod("nominated", "4")}, nodeInfo("b"))
	f.AddPod(t.Context(), other, pod, fakePod{pod: newPod("another", "1")}, nodeInfo("a"))
	assert.False(t, f.filter(one, pod, "b").IsSuccess())
	assert.True(t, f.filter(other, pod, "b").IsSuccess())
}

// A nominated pod that has capacity kept for it there takes no more than that.
func TestNominatedPodWithCapacityOfItsOwn(t *testing.T) {
	f := newFixture(t)
	f.match(f.slot("r", "a", "2"), "nominated")
	pod := newPod("p", "2")
	state := f.begin(pod)
	require.True(t, f.filter(state, pod, "a").IsSuccess())
	f.AddPod(t.Context(), state, pod, fakePod{pod: newPod("nominated", "2")}, nodeInfo("a"))
	assert.True(t, f.filter(state, pod, "a").IsSuccess(), "what is kept for it is not counted twice")
}

// Only what Reserve has made is given back, and once.
func TestUnreserve(t *testing.T) {
	f := newFixture(t)
	pod := newPod("p", "1")
	state := f.begin(pod)
	byOthers := ledger.NewPlan([]ledger.Placement{*cycleOf(state).on("a")}, ledger.AllOrNothing,
		time.Now().Add(time.Hour))
	f.ledger.Reserve(byOthers, time.Now())
	f.Unreserve(t.Context(), state, pod, "a")
	assert.Equal(t, "a", f.on(pod), "Reserve was not called")
	f.ledger.Unreserve([]ledger.Placement{*cycleOf(state).on("a")})
	require.True(t, f.Reserve(t.Context(), state, pod, "a").IsSuccess())
	f.Unreserve(t.Context(), state, pod, "a")
	assert.Equal(t, "-", f.on(pod))
	f.ledger.Reserve(byOthers, time.Now())
	f.Unreserve(t.Context(), state, pod, "a")
	assert.Equal(t, "a", f.on(pod), "it was given back already")

	f.bound(newPod("q", "1"), "a")
	other := newPod("q", "1")
	state = f.begin(other)
	require.True(t, f.Reserve(t.Context(), state, other, "a").IsSuccess())
	f.Unreserve(t.Context(), state, other, "a")
	assert.Equal(t, "a", f.on(other), "the allocation was somebody else's")
	f.Unreserve(t.Context(), newState(), pod, "a") // without PreFilter: nothing to do

	late := newPod("late", "1")
	require.True(t, f.Reserve(t.Context(), f.begin(late), late, "b").IsSuccess())
	f.ledger.Observer().Expire(time.Now().Add(f.server.ttl - time.Minute))
	assert.Equal(t, "b", f.on(late))
	f.ledger.Observer().Expire(time.Now().Add(f.server.ttl + time.Minute))
	assert.Equal(t, "-", f.on(late), "a scheduler that dies leaves nothing behind")
}

// What the framework has chosen of DRA may take of the node's own resources: Reserve is the first that sees it.
func TestReserveCountsWhatClaimsTake(t *testing.T) {
	f := newFixture(t)
	pod := newPod("p", "1")
	f.known(pod)
	state := f.begin(pod)
	require.True(t, f.filter(state, pod, "a").IsSuccess())
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = "a"
	takes := func(cpus string) {
		assumed.Status.NodeAllocatableResourceClaimStatuses = []v1.NodeAllocatableResourceClaimStatus{{
			Mapping: []v1.NodeAllocatableMappedResources{{Name: v1.ResourceCPU, Quantity: ptr.To(resource.MustParse(cpus))}},
		}}
	}
	takes("4")
	status := f.Reserve(t.Context(), state, assumed, "a")
	assert.Equal(t, "GlobalReserve: not enough capacity left on the node", status.Message())
	takes("2")
	require.True(t, f.Reserve(t.Context(), state, assumed, "a").IsSuccess())
	view, ok := f.ledger.InMemory(f.ref(pod))
	require.True(t, ok)
	assert.EqualValues(t, 3000, view.Request.Value(resources.CPU))
}

// A pod that lost a race for a node is tried again at once.
func TestReserveLosesARace(t *testing.T) {
	f := newFixture(t)
	pod := newPod("p", "3")
	f.known(pod)
	state := f.begin(pod)
	require.True(t, f.filter(state, pod, "a").IsSuccess())
	f.bound(newPod("other", "2"), "a")
	status := f.Reserve(t.Context(), state, pod, "a")
	assert.Equal(t, fwk.Unschedulable, status.Code())
	assert.Equal(t, "GlobalReserve: not enough capacity left on the node", status.Message())
	assert.Equal(t, "ns/p", f.woken())
	status = f.notReserved(cycleOf(state), &gates.Error{Outcome: gates.Refused, Why: "a gate is closed"}, 0)
	assert.Equal(t, fwk.Unschedulable, status.Code(), "whatever the reason")
	assert.Equal(t, otherwise, status.Message(), "a constant text")
}

// What Bind refuses after Reserve has granted it, as of a gang, would be refused at once again.
func TestBindIsRefused(t *testing.T) {
	f := newFixture(t)
	pod, rest := f.member("p"), f.member("rest")
	rest.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("4")
	f.known(rest)
	state := f.begin(pod)
	require.True(t, f.Reserve(t.Context(), state, pod, "a").IsSuccess())
	f.bound(newPod("faster", "1"), "b")
	status := f.Bind(t.Context(), state, pod, "a")
	assert.Equal(t, fwk.Unschedulable, status.Code())
	assert.Equal(t, "GlobalReserve: there is no capacity for the rest of the pod's gang", status.Message())
	assert.False(t, f.waker.lost(pod.UID))
	assert.Len(t, f.waker.holds.held, 1, "its gang is held")
}

// A pod that Filter keeps offering what Reserve refuses does not keep the scheduler busy.
func TestRacesLostInARow(t *testing.T) {
	const short = ledger.InsufficientResource
	assert.Zero(t, pauseAfter(short, 1))
	assert.Equal(t, 100*time.Millisecond, pauseAfter(short, 2))
	assert.Equal(t, 400*time.Millisecond, pauseAfter(short, 4))
	assert.Equal(t, 10*time.Second, pauseAfter(short, 1000))
	assert.Equal(t, 10*time.Second, pauseAfter(ledger.QuotaExceeded, 1), "no race: it is still so in a moment")

	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		pod := newPod("p", "1")
		f.known(pod)
		f.bound(newPod("other", "4"), "a")
		began := time.Now()
		for range 4 {
			f.Reserve(t.Context(), f.begin(pod), pod, "a")
			f.woken()
		}
		assert.GreaterOrEqual(t, time.Since(began), 700*time.Millisecond)
		f.ledger.RemovePod(f.ref(newPod("other", "4")), 0)
		require.True(t, f.Reserve(t.Context(), f.begin(pod), pod, "a").IsSuccess())
		assert.Empty(t, f.waker.races)
	})
}

// woken returns the next pod that is activated.
func (f *fixture) woken() string {
	f.t.Helper()
	select {
	case name := <-f.handle.activated:
		return name
	case <-time.After(time.Minute):
		f.t.Fatal("no pod was woken")
		return ""
	}
}

// A pod that is refused while it becomes known that it may use what is held is tried again.
func TestReservationIsHeardOfWithinTheCycle(t *testing.T) {
	f := newFixture(t)
	slot := f.slot("r", "a", "4")
	f.bound(newPod("other", "4"), "b")
	pod := newPod("p", "3")
	f.known(pod)
	state := f.begin(pod)
	f.match(slot, "p")
	f.waker.waiting.Matched("ns")
	require.False(t, f.filter(state, pod, "a").IsSuccess())
	assert.Equal(t, "ns/p", f.woken())
}

func TestScore(t *testing.T) {
	f := newFixture(t)
	pod := newPod("p", "1")
	assert.True(t, f.PreScore(t.Context(), f.begin(pod), pod, nil).IsSkip(), "no capacity is kept for it")
	f.match(f.slot("r", "b", "2"), "p")
	f.match(f.slot("s", "a", "2"), "p")
	state := f.begin(pod)
	require.True(t, f.PreScore(t.Context(), state, pod, nil).IsSuccess())
	best, _ := f.Score(t.Context(), state, pod, nodeInfo("b"))
	second, _ := f.Score(t.Context(), state, pod, nodeInfo("a"))
	none, _ := f.Score(t.Context(), state, pod, nodeInfo("c"))
	assert.Equal(t, fwk.MaxScore, best)
	assert.Greater(t, best, second)
	assert.Greater(t, second, none)
	assert.Equal(t, fwk.MinScore, none)
	_, status := f.SignPod(t.Context(), pod)
	assert.Equal(t, fwk.Unschedulable, status.Code())

	// What is kept for a member of a gang within a slot.
	info, err := f.server.question.Reader.NewPod(pod)
	require.NoError(t, err)
	placement := f.server.question.For(info, "a")
	kept := placement.Slot(time.Now().Add(time.Hour))
	kept.Movable = true
	require.Empty(t, f.ledger.Reserve(ledger.Plan{Slots: []ledger.Slot{kept}, Mode: ledger.AllOrNothing}, time.Now()).
		Rejections)
	state = f.begin(pod)
	require.True(t, f.PreScore(t.Context(), state, pod, nil).IsSuccess())
	best, _ = f.Score(t.Context(), state, pod, nodeInfo("a"))
	assert.Equal(t, fwk.MaxScore, best)
	none, _ = f.Score(t.Context(), state, pod, nodeInfo("b"))
	assert.Equal(t, fwk.MinScore, none, "the slot there is another member's")
	result, status := f.PreFilter(t.Context(), newState(), pod, []fwk.NodeInfo{nodeInfo("a"), nodeInfo("b")})
	require.True(t, status.IsSuccess())
	assert.Equal(t, sets.New("a"), result.NodeNames, "among thousands it would hardly be looked at")
}

// Above 100 nodes the scheduler looks at some of them only, so a pod that may use a slot is kept to the slots' nodes,
// until that has failed.
func TestPodIsKeptToWhatIsReserved(t *testing.T) {
	prefilter := func(f *fixture, pod *v1.Pod, nodes ...fwk.NodeInfo) []string {
		result, status := f.PreFilter(t.Context(), newState(), pod, append(nodes, nodeInfo("a"), nodeInfo("other")))
		require.True(t, status.IsSuccess(), status.Message())
		if result.AllNodes() {
			return nil
		}
		return sets.List(result.NodeNames)
	}
	f := newFixture(t)
	pod, anyone := newPod("p", "1"), newPod("q", "1")
	f.known(pod)
	f.match(f.slot("r", "b", "2"), "p")
	assert.Equal(t, []string{"b"}, prefilter(f, pod, nodeInfo("b")))
	assert.Equal(t, "ns/p", f.woken(), "it is tried again")
	assert.Empty(t, prefilter(f, pod, nodeInfo("b")), "and has its choice, because it was not placed")
	f.waker.settled(pod.UID)
	assert.Equal(t, []string{"b"}, prefilter(f, pod, nodeInfo("b")))
	f.waker.settled(pod.UID)
	assert.Empty(t, prefilter(f, anyone, nodeInfo("b")), "nothing is kept for it")

	tainted := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "b"},
		Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}},
	}
	assert.Empty(t, prefilter(f, pod, fakeNode{node: tainted}), "it does not tolerate the node")
	assert.Empty(t, prefilter(f, pod), "the scheduler does not know the node")
	volume := newPod("p", "1")
	volume.Spec.Volumes = []v1.Volume{{
		Name:         "v",
		VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}},
	}}
	assert.Empty(t, prefilter(f, volume, nodeInfo("b")), "its volume decides")
	big := newPod("p", "5")
	assert.Empty(t, prefilter(f, big, nodeInfo("b")), "the node is too small for it")
}

func TestSignature(t *testing.T) {
	f := newFixture(t)
	sign := func(pod *v1.Pod) []fwk.SignFragment {
		fragments, status := f.SignPod(t.Context(), pod)
		require.True(t, status.IsSuccess())
		return fragments
	}
	one := newPod("one", "1")
	assert.Equal(t, sign(one), sign(newPod("two", "1")), "alike but for the name")
	assert.NotEqual(t, sign(one), sign(newPod("two", "2")))
	ports := newPod("ports", "1")
	ports.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80, HostIP: "10.0.0.1"}}
	assert.NotEqual(t, sign(one), sign(ports))
	elsewhere := ports.DeepCopy()
	elsewhere.Spec.Containers[0].Ports[0].HostIP = "10.0.0.2"
	assert.NotEqual(t, sign(ports), sign(elsewhere))
	tolerant := newPod("tolerant", "1")
	tolerant.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	assert.NotEqual(t, sign(one), sign(tolerant))
	f.unready.Store(true)
	assert.NotEqual(t, sign(one), func() []fwk.SignFragment { f.unready.Store(false); return sign(one) }())
}

// Pods of every profile are woken in the scheduler's queue, which is one.
func TestProfilesShareAServer(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	plugins := f.plugins(ctx)
	args := func(json string) runtime.Object { return &runtime.Unknown{Raw: []byte(json)} }
	for _, profile := range []string{"one", "two"} {
		handle := &fakeHandle{profile: profile, informers: f.handle.informers, activated: f.handle.activated}
		made, err := plugins.New(ctx, args(`{}`), handle)
		require.NoError(t, err)
		assert.Same(t, f.server, made.(*Plugin).server)
		pod := newPod(profile, "1")
		pod.Spec.SchedulerName = profile
		f.known(pod)
		info, err := made.(*Plugin).read(pod)
		require.NoError(t, err)
		f.server.waiting.Wake(info)
		assert.Equal(t, "ns/"+profile, f.woken())
	}
	_, err := plugins.New(ctx, args(`{"reservationTTL":"5s"}`), f.handle)
	assert.ErrorContains(t, err, "give all of them the same")
	cancel()
	require.NoError(t, plugins.Wait())
}

// A server that sees devices of DRA for what a pod was refused for wakes the pod.
func TestWhatDRABeginsToGiveIsHeardOf(t *testing.T) {
	const gpu = "example.com/gpu"
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	plugins := f.plugins(ctx)
	made, err := plugins.New(ctx, &runtime.Unknown{Raw: []byte(`{}`)}, f.handle)
	require.NoError(t, err)
	g := &fixture{Plugin: made.(*Plugin), t: t, world: f.world, ledger: f.ledger, api: f.api, handle: f.handle}
	pod := newPod("p", "1")
	pod.Spec.Containers[0].Resources.Requests[gpu] = resource.MustParse("1")
	g.known(pod)
	require.False(t, g.filter(g.begin(pod), pod, "a").IsSuccess())
	placementtest.DRA(f.ledger, 4000, gpu, "a")
	assert.Equal(t, "ns/p", g.woken())
	require.True(t, g.filter(g.begin(pod), pod, "a").IsSuccess())
	cancel()
	require.NoError(t, plugins.Wait())
}

// slot keeps CPU on a node.
func (f *fixture) slot(name, node, cpu string) ledger.SlotRef {
	f.t.Helper()
	info, err := f.read(newPod("hold-"+name, cpu))
	require.NoError(f.t, err)
	ref := ledger.SlotRef{Namespace: "ns", Name: name, Slot: "s"}
	spec := ledger.Slot{
		Ref: ref, Node: node, Policy: ledger.Once,
		Request: &resources.Request{Amounts: info.Request.Amounts},
	}
	require.Equal(f.t, 1, f.ledger.Reserve(ledger.Plan{Slots: []ledger.Slot{spec}}, time.Now()).Granted)
	return ref
}

// A pod that a gate refuses is refused before anything else is tried, and tried again when the gate opens.
func TestGateRefuses(t *testing.T) {
	f := newFixture(t)
	pod := newPod("p", "1")
	f.known(pod)
	info, err := f.read(pod)
	require.NoError(t, err)
	f.last.Store(&read{pod, info.WithCaller("batch")}) // the plugin's own caller may do everything
	f.world.Policy.Set(gatestest.Limited("profile"))
	_, status := f.PreFilter(t.Context(), newState(), pod, nil)
	assert.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code(), "nobody is evicted for it")
	assert.Equal(t, otherwise, status.Message())
	require.Len(t, f.refusals(), 1)
	asked := info.WithCaller("batch").Placement("a")
	_, _, err = f.server.arbiter.KeepAll([]ledger.Placement{asked}, time.Minute)
	reason, refused := refusal(err)
	require.True(t, refused)
	assert.Equal(t, ledger.Fits, reason, "a gate's")
	f.world.Policy.Set(gatestest.Limited("profile", "batch"))
	f.waker.waiting.LimitsChanged()
	assert.Equal(t, "ns/p", f.woken())
}

// A pod that was refused for a limit is tried again when the limit is raised, also where that was between the verdict
// and the moment in which it is known that the pod waits.
func TestRaisedLimitIsHeardOf(t *testing.T) {
	f := newFixture(t)
	limit := func(cpu int64) {
		f.ledger.Observer().SetLimits(ledger.OfNamespace, map[string]*ledger.Limits{
			"ns": {Use: []resources.Amount{{Column: resources.CPU, Value: cpu}}},
		})
	}
	limit(500)
	pod := newPod("p", "1")
	f.known(pod)
	state := f.begin(pod)
	c := cycleOf(state)
	reason := fits(f.ledger.Reader, &c.placement, "a")
	require.Equal(t, ledger.QuotaExceeded, reason)
	limit(1000)
	f.refused(c, reason)
	assert.Equal(t, "ns/p", f.woken())
}
