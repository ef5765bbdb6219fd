package reservations

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/fake"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

const (
	testNamespace = "ns"
	maxTTL        = 24 * time.Hour // that of the policy
	defaultTTL    = time.Minute
	finishedTTL   = time.Hour
)

// world is a controller between a ledger and an API server that is a fake. It runs in a synctest bubble.
type world struct {
	t       *testing.T
	client  *fake.Clientset
	ledger  *ledger.Ledger
	matcher *placement.Matcher
	c       *Controller
	served  atomic.Bool
	refused []refusedSlot // as OnRefused was called
	events  *recorder
	// cordoned is whether nodes are, when the server observes them.
	cordoned atomic.Bool
	ahead    atomic.Int64 // how far the controller's clock is ahead
	cost     atomic.Int64 // how far each look at it moves it on: once for each slot that a node is chosen for
	looks    atomic.Int64 // how often it was looked at
	stepped  atomic.Int64 // how far the wall clock is
	policy   *policy.Store
	former   atomic.Bool // another server decides now

	definitions *informer.Definitions
	cancel      context.CancelFunc
	running     sync.WaitGroup

	known  *informer.Latch // open when the server's watches may bring nodes and pods
	synced *informer.Latch // open when they have

	mu    sync.Mutex
	nodes map[string]*cluster.Node
	pods  map[string]*cluster.Pod
}

// refusedSlot is a slot that there was no capacity for.
type refusedSlot struct {
	slot string
	said *ledger.Rejection
	why  string
}

// newWorld has a controller that runs, and nodes of 4 CPUs.
func newWorld(t *testing.T, nodes ...string) *world {
	w := makeWorld(t)
	w.start()
	for _, name := range nodes {
		w.addNode(name)
	}
	return w
}

// makeWorld starts nothing.
func makeWorld(t *testing.T) *world {
	client := fake.NewSimpleClientset()
	w := &world{
		t: t, client: client, nodes: map[string]*cluster.Node{}, pods: map[string]*cluster.Pod{},
		events: &recorder{}, policy: policy.NewStore(policy.Default(), defaultTTL),
	}
	w.served.Store(true)
	client.Resources = []*metav1.APIResourceList{{
		GroupVersion: v1alpha1.SchemeGroupVersion.String(), APIResources: []metav1.APIResource{{Name: "reservations"}},
	}}
	client.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
		if w.served.Load() {
			return false, nil, nil
		}
		return true, nil, apierrors.NewNotFound(schema.GroupResource{}, "globalreserve.io")
	})
	w.newServer()
	return w
}

// newServer replaces the controller and the ledger by new ones that know nothing.
func (w *world) newServer() {
	log := logrus.New()
	log.SetOutput(io.Discard)
	w.ledger = ledger.New(ledger.Options{})
	w.known, w.synced = opened(), informer.NewLatch()
	w.matcher = &placement.Matcher{}
	w.definitions = informer.NewDefinitions(w.client.Discovery(), v1alpha1.SchemeGroupVersion, log)
	w.c = New(Options{
		Ledger: gates.NewGatedLedger(w.ledger, steady.New(w.wall, steady.Uptime), gates.New(w.policy), w.undecided),
		Client: w.client,
		Nodes:  cluster.NewNodes(), Pods: cluster.NewPods(), Matcher: w.matcher,
		Kind:        w.definitions.Kind("reservations"),
		StateSynced: w.synced,
		MayDecide:   opened().Wait,
		Term:        election.NewOwnTerm(3),
		Policy:      w.policy,
		OnRefused: func(asked *ledger.Slot, said *ledger.Rejection, why string) {
			w.refused = append(w.refused, refusedSlot{asked.Ref.String(), said, why})
		},
		FinishedTTL: finishedTTL, Recorder: w.events, Log: log,
	})
	w.c.now = func() time.Time {
		w.looks.Add(1)
		return time.Now().Add(time.Duration(w.ahead.Add(w.cost.Load())))
	}
}

func (w *world) undecided() string {
	if w.former.Load() {
		return "another server decides"
	}
	return ""
}

// wall is what the wall clock shows.
func (w *world) wall() time.Time { return time.Now().Add(time.Duration(w.stepped.Load())) }

func (w *world) start() {
	ctx, cancel := context.WithCancel(w.ctx())
	w.cancel = cancel
	w.t.Cleanup(w.stop)
	w.running.Go(func() { _ = Expire(ctx, w.ledger.Observer(), w.c.Ledger.Clock, w.c.Log) })
	w.running.Go(func() { _ = w.definitions.Run(ctx) })
	w.running.Go(func() { _ = w.c.Run(ctx) })
	w.running.Go(func() {
		if w.c.Listed.Wait(ctx) == nil && w.known.Wait(ctx) == nil {
			w.tellLedger()
			w.synced.Open()
		}
	})
	synctest.Wait()
}

func (w *world) stop() {
	w.cancel()
	w.running.Wait()
}

// comeBack starts another server after stop, which knows nothing.
func (w *world) comeBack() {
	w.newServer()
	w.start()
}

// tellLedger does what the watches of nodes and pods do at a start.
func (w *world) tellLedger() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		w.observeNode(n)
	}
	for _, p := range w.pods {
		w.c.Pods.Put(p)
		if p.Node != "" {
			o := p.Observation()
			o.ResourceVersion = 1
			if marks := p.Devices; marks != nil {
				o.Devices = claimRequest(marks.Claims[0], "")
				o.Devices.Given = marks.Given
			}
			w.ledger.ObservePod(o)
		}
	}
}

func (w *world) observeNode(n *cluster.Node) {
	w.c.Nodes.Put(n)
	w.ledger.ObserveNode(ledger.NodeObservation{
		Name: n.Name, UID: n.UID, Unschedulable: w.cordoned.Load(),
		Allocatable: []resources.Amount{
			{Column: resources.CPU, Value: 4000},
			{Column: resources.Memory, Value: 8 << 30},
			{Column: resources.Pods, Value: 100},
		},
	})
}

// addNode makes a node of 4 CPUs.
func (w *world) addNode(name string, change ...func(*cluster.Node)) {
	w.mu.Lock()
	n := &cluster.Node{Name: name, UID: types.UID("uid-of-" + name)}
	for _, f := range change {
		f(n)
	}
	w.nodes[name] = n
	w.observeNode(n)
	w.mu.Unlock()
	w.c.Retry()
	synctest.Wait()
}

func (w *world) removeNode(name string) {
	w.mu.Lock()
	delete(w.nodes, name)
	w.c.Nodes.Remove(name)
	w.ledger.RemoveNode(name)
	w.mu.Unlock()
	synctest.Wait()
}

// putPod has the API server have a pod, and the server know of it if it runs.
func (w *world) putPod(pod *cluster.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[pod.Ref.String()] = pod
	if w.synced.IsOpen() {
		w.c.Pods.Put(pod)
	}
}

// opened returns a latch that is open.
func opened() *informer.Latch {
	latch := informer.NewLatch()
	latch.Open()
	return latch
}

func request(milliCPU int64) *resources.Request {
	return &resources.Request{Amounts: []resources.Amount{
		{Column: resources.CPU, Value: milliCPU}, {Column: resources.Pods, Value: 1},
	}}
}

func podRef(name string) ledger.PodRef {
	return ledger.PodRef{Namespace: testNamespace, Name: name, UID: types.UID("uid-of-" + name)}
}

func slotRef(rsv, slot string) ledger.SlotRef {
	return ledger.SlotRef{Namespace: testNamespace, Name: rsv, Slot: slot}
}

// bind binds a pod of some milli-CPU, which may use a slot, and reports whether there was capacity.
func (w *world) bind(name, node string, milliCPU int64, kept ...ledger.SlotRef) bool {
	return w.bindPod(ledger.Placement{Pod: podRef(name), Node: node, Request: request(milliCPU), Slots: kept})
}

func (w *world) bindPod(p ledger.Placement) bool {
	grant, refused := w.ledger.StartBind(&p, time.Now())
	if refused != nil {
		return false
	}
	info := &cluster.Pod{Ref: p.Pod, Node: p.Node, Request: p.Request, Caller: grant.Caller, Priority: p.Priority}
	if grant.Slot.Name != "" {
		origin := w.matcher.Origin(grant.Slot.Namespace, grant.Slot.Name)
		info.Annotations = &cluster.Annotations{Matched: grant.Slot, MatchedUID: origin.UID}
	}
	w.putPod(info)
	w.ledger.Confirm(p.Pod, p.Node)
	synctest.Wait()
	return true
}

func (w *world) deletePod(name string) {
	w.mu.Lock()
	if p := w.pods[podRef(name).String()]; p != nil {
		w.c.Pods.Remove(p)
	}
	delete(w.pods, podRef(name).String())
	w.mu.Unlock()
	w.ledger.RemovePod(podRef(name), 2)
	synctest.Wait()
}

// slot is a slot of some milli-CPU.
func slot(name, node string, milliCPU int64) v1alpha1.Slot {
	return v1alpha1.Slot{
		Name: name, NodeName: node, Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(milliCPU,
			resource.DecimalSI)},
	}
}

// newReservation is an object as the API server would hand it out.
func newReservation(name string, ttl time.Duration, slots ...v1alpha1.Slot) *v1alpha1.Reservation {
	return &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: testNamespace, Name: name, UID: types.UID("uid-of-" + name), Generation: 1,
			CreationTimestamp: metav1.Time{Time: time.Now().Truncate(time.Second)},
		},
		Spec: v1alpha1.ReservationSpec{TTL: &metav1.Duration{Duration: ttl}, Slots: slots},
	}
}

// forPod has the first slot kept for pod p alone.
func forPod(rsv *v1alpha1.Reservation, uid types.UID) *v1alpha1.Reservation {
	rsv.Spec.Slots[0].Pod = &v1alpha1.PodReference{Name: "p", UID: uid}
	return rsv
}

func madeBy(rsv *v1alpha1.Reservation, who string) *v1alpha1.Reservation {
	rsv.Labels = map[string]string{convert.MadeByLabel: who}
	return rsv
}

func (w *world) create(rsv *v1alpha1.Reservation) {
	w.t.Helper()
	_, err := w.client.GlobalreserveV1alpha1().Reservations(rsv.Namespace).Create(w.ctx(), rsv, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.settle()
}

func (w *world) ctx() context.Context { return context.Background() }

// settle lets everything happen that is due now, the pauses between placements included.
func (w *world) settle() {
	synctest.Wait()
	w.pass(2 * passPause)
}

// pass lets time pass, in the bubble.
func (*world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// get returns an object, nil where there is none.
func (w *world) get(name string) *v1alpha1.Reservation {
	w.t.Helper()
	rsv, err := w.client.GlobalreserveV1alpha1().Reservations(testNamespace).Get(w.ctx(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w.t, err)
	return rsv
}

func (w *world) change(name string, f func(*v1alpha1.Reservation)) {
	w.t.Helper()
	rsv := w.get(name).DeepCopy()
	f(rsv)
	_, err := w.client.GlobalreserveV1alpha1().Reservations(testNamespace).Update(w.ctx(), rsv, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	w.settle()
}

func (w *world) delete(name string) {
	w.t.Helper()
	require.NoError(w.t, w.client.GlobalreserveV1alpha1().Reservations(testNamespace).
		Delete(w.ctx(), name, metav1.DeleteOptions{}))
	w.settle()
}

// held lists the slots of a reservation as slot@node.
func (w *world) held(name string) []string {
	list := []string{}
	for _, h := range w.ledger.ReservationSlots(testNamespace, name) {
		list = append(list, h.Ref.Slot+"@"+h.Node)
	}
	return list
}

// shown puts an object in a line: phase, reason, nodes, consumed, and every slot with its node, state and pods.
func (w *world) shown(name string) string {
	w.t.Helper()
	rsv := w.get(name)
	if rsv == nil {
		return "deleted"
	}
	s := rsv.Status
	reason := ""
	for _, c := range s.Conditions {
		if c.Type == v1alpha1.ConditionAvailable {
			reason = c.Reason
		}
	}
	parts := []string{string(s.Phase), reason, s.NodeName, s.Consumed}
	for _, slot := range s.Slots {
		text := slot.Name + "@" + slot.NodeName + "=" + string(slot.State)
		for _, p := range slot.Pods {
			text += ":" + p.Name
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

// assertShown checks what an object shows, and that its slots are held that it shows as reserved, or held, if those are
// others.
func (w *world) assertShown(name, want string, held []string) {
	w.t.Helper()
	assert.Equal(w.t, want, w.shown(name))
	if held == nil {
		held = reservedIn(want)
	}
	assert.Equal(w.t, held, w.held(name))
}

// reservedIn lists the slots that are shown as reserved.
func reservedIn(shown string) []string {
	slots := []string{}
	for part := range strings.FieldsSeq(shown) {
		if slot, ok := strings.CutSuffix(part, "="+string(v1alpha1.SlotReserved)); ok {
			slots = append(slots, slot)
		}
	}
	return slots
}

// recorder keeps the Events.
type recorder struct {
	mu   sync.Mutex
	list []string
}

var _ events.EventRecorder = (*recorder)(nil)

func (r *recorder) Eventf(regarding, _ runtime.Object, eventType, reason, _, _ string, _ ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ref := regarding.(*v1.ObjectReference)
	r.list = append(r.list, fmt.Sprintf("%s %s %s", ref.Name, eventType, reason))
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.list...)
}

// inWorld runs a test in a bubble, with a controller that runs and node n1 of 4 CPUs.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, "n1")) })
}

func podInfo(name string) *cluster.Pod {
	return &cluster.Pod{Ref: podRef(name), Request: request(1000)}
}
