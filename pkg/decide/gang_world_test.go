package decide

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/dra"
	"github.com/globalreserve/globalreserve/pkg/gangs"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/requeue/requeuetest"
	"github.com/globalreserve/globalreserve/test/background"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// gangWorld is what decides about gangs, on a ledger, with the pods that the watch has brought. It runs in a synctest
// bubble.
type gangWorld struct {
	*gangKeeper
	t      testing.TB
	ledger *ledger.Ledger
	reader cluster.Reader
	nodes  *cluster.Nodes
	writes *requeuetest.Writes // to pods
	hosted *requeuetest.Writes // wake-ups
	log    *logtest.Hook
	events []string // about gangs: the object and the note
	// telling guards events.
	telling sync.Mutex
	api     *fakeAPI
	// setMinimum writes the object of a gang, see tasksTest.
	setMinimum func(minimum int)
}

// newGangWorld has so many nodes of some CPUs.
func newGangWorld(t testing.TB, nodes, cpus int) *gangWorld {
	t.Helper()
	log, hook := logtest.NewNullLogger()
	w := &gangWorld{t: t, ledger: ledger.New(ledger.Options{}), nodes: cluster.NewNodes(), api: newFakeAPI()}
	kind := kinds.Default()[0]
	// not installed
	kind.Object = &kinds.Object{Group: "example.com", Versions: []string{"v1"}, Resource: "gangs", Minimum: ".spec.size"}
	table, err := kinds.New([]kinds.Kind{kind})
	require.NoError(t, err)
	w.reader = cluster.Reader{Table: w.ledger.Table(), Gangs: table}
	pods := cluster.NewPods()
	question := &placement.Builder{
		Reader: w.reader, Matcher: &placement.Matcher{},
		Devices: func(*cluster.Pod) *ledger.DeviceRequest { return nil },
	}
	w.log = hook
	w.gangKeeper = New(Options{
		Ledger: gatestest.Ledger(w.ledger),
		Pods:   pods, Policy: policy.NewStore(policy.Default(), time.Minute), Log: log,
		Question:       question,
		ResourceClaims: dra.New(dra.Options{Client: fake.NewClientset(), Log: log}),
		Gangs: gangs.New(gangs.Options{
			Pods: pods, Kinds: table, Client: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()),
			OnChanged: func(kinds.Key) {}, Log: log,
		}),
		Waiting:        w.waits(question, pods),
		Nodes:          w.nodes,
		Metrics:        metrics.New(),
		GangEvents:     informer.NewEvents(w, 1000, 1000),
		RedirectEvents: informer.NewEvents(w, 1000, 1000),
		API:            w.api,
		Term:           election.NewOwnTerm(0),
		BindTimeout:    bindTimeout,
	}).gangs
	w.rule(kinds.RedirectNever)
	t.Cleanup(func() { require.NoError(t, w.gangKeeper.arbiter.Stop(context.Background())) })
	for k := range nodes + 1 { // one more may come later
		w.label(fmt.Sprintf("n%d", k), "")
	}
	for k := range nodes {
		w.resize(fmt.Sprintf("n%d", k), int64(cpus))
	}
	return w
}

// Eventf implements events.EventRecorder.
func (w *gangWorld) Eventf(on, _ runtime.Object, _, reason, _, note string, args ...any) {
	require.Contains(w.t, []string{"GangShort", "BoundForItsGang", "BindingRedirected"}, reason)
	w.telling.Lock()
	defer w.telling.Unlock()
	w.events = append(w.events, on.(*v1.ObjectReference).Name+": "+fmt.Sprintf(note, args...))
}

// short returns what the log says of gangs that have started and are not whole, in order.
func (w *gangWorld) short() (told []string) {
	for _, entry := range w.log.AllEntries() {
		if missing, ok := entry.Data["missing"]; ok {
			told = append(told, fmt.Sprintf("%s lacks %d", entry.Data["gang"], missing))
		}
	}
	return told
}

// rule says whether the server chooses nodes for members.
func (w *gangWorld) rule(rule kinds.Redirect) {
	p := *w.o.Policy.Current()
	p.Gangs.Redirect = rule
	w.o.Policy.Set(&p)
}

// label puts a label on a node.
func (w *gangWorld) label(node, disk string) {
	w.nodes.Put(&cluster.Node{Name: node, Labels: map[string]string{v1.LabelHostname: node, "disk": disk}})
}

// waits returns the pods that wait. They are woken in the process of their scheduler, and their nominations are not
// written.
func (w *gangWorld) waits(question *placement.Builder, pods *cluster.Pods) *requeue.Pods {
	all, writes := requeuetest.New(gatestest.Ledger(w.ledger), question, pods, w.nodes)
	own, hosted := requeuetest.Hosted(gatestest.Ledger(w.ledger), question)
	all.Host("s", own)
	background.Run(w.t, own.Run)
	w.writes, w.hosted = writes, hosted
	return all
}

// woken are the pods that were woken.
func (w *gangWorld) woken() []string {
	synctest.Wait()
	return w.hosted.Woken()
}

// told returns the Events on refused pods.
func (w *gangWorld) told() []string { return w.writes.Told() }

// pod makes a pod of a gang be there, of one CPU unless change says otherwise.
func (w *gangWorld) pod(gang, name string, minimum int, change func(*v1.Pod)) *cluster.Pod {
	w.t.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("u-" + name), ResourceVersion: "1",
			Annotations: map[string]string{v1alpha1.GangAnnotation: gang, v1alpha1.GangMinAnnotation: fmt.Sprint(minimum)},
		},
		Spec: v1.PodSpec{SchedulerName: "s", Containers: []v1.Container{{Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{"cpu": resource.MustParse("1")},
		}}}},
	}
	if change != nil {
		change(pod)
	}
	r, err := w.reader.NewPod(pod)
	require.NoError(w.t, err)
	w.o.Pods.Put(r)
	w.api.put(pod)
	return r
}

// gang makes the pods of a gang be there: a-0, a-1 ...
func (w *gangWorld) gang(name string, size, minimum int, change func(*v1.Pod)) (pods []*cluster.Pod) {
	for k := range size {
		pods = append(pods, w.pod(name, fmt.Sprintf("%s-%d", name, k), minimum, change))
	}
	return pods
}

// pass lets time pass, in which the gangs are looked after.
func (w *gangWorld) pass(d time.Duration) {
	for range d / time.Second {
		w.lapse(time.Second)
		w.watch()
		synctest.Wait()
	}
}

// lapse lets time pass in which nobody looks after the gangs.
func (w *gangWorld) lapse(d time.Duration) {
	<-time.After(d)
	w.o.Ledger.Expire(w.o.Ledger.Clock.Now())
}

// begin starts a bind that is granted.
func (w *gangWorld) begin(pod *cluster.Pod, node string) {
	w.t.Helper()
	p := w.o.Question.For(pod, node)
	_, err := w.startBind(pod, &p, nowhere)
	require.NoError(w.t, err)
}

// succeed has the next server take over, which knows what the watch has brought.
func (w *gangWorld) succeed() {
	w.t.Helper()
	for _, s := range w.of {
		w.giveUp(s, len(s.kept))
	}
	clear(w.of)
	require.Zero(w.t, w.kept())
	require.Equal(w.t, 1, w.takeOver())
}

// bind starts a bind, and confirms it where that is granted.
func (w *gangWorld) bind(pod *cluster.Pod, node string) error {
	p := w.o.Question.For(pod, node)
	_, err := w.startBind(pod, &p, nowhere)
	if err == nil {
		require.True(w.t, w.o.Ledger.Confirm(pod.Ref, node))
		w.seen(pod, node)
	}
	return err
}

// bindAll binds pods to n0.
func (w *gangWorld) bindAll(pods []*cluster.Pod) {
	w.t.Helper()
	for _, pod := range pods {
		require.NoError(w.t, w.bind(pod, "n0"))
	}
}

// starting is gang for the pods of a, of which the first is bound to n0.
func (w *gangWorld) starting(size, minimum int, change func(*v1.Pod)) []*cluster.Pod {
	w.t.Helper()
	pods := w.gang("a", size, minimum, change)
	w.bindAll(pods[:1])
	return pods
}

// seen has the watch bring a pod bound.
func (w *gangWorld) seen(pod *cluster.Pod, node string) {
	bound := *pod
	bound.Node = node
	w.o.Pods.Put(&bound)
}

func withoutGang(pod *v1.Pod) { pod.Annotations = nil }

// undo takes back all binds of a gang that have started, and what is kept for it.
func (w *gangWorld) undo(pods []*cluster.Pod) {
	for _, pod := range pods {
		if home, ok := w.ledger.HomeOf(pod.Ref); ok {
			w.o.Ledger.BindFailed(pod.Ref, home)
		}
	}
	if s := w.of[pods[0].Gang.Key("ns")]; s != nil {
		w.forget(s)
	}
}

// kept returns how many slots in memory there are.
func (w *gangWorld) kept() int { return w.ledger.Stats().InMemory }

func (w *gangWorld) refusedAs(err error, reason ledger.Reason) {
	w.t.Helper()
	require.Error(w.t, err)
	assert.Equal(w.t, reason.String(), reasonOf(err).String(), "%v", err)
}

// eachGang is gangTest for the cases of a table.
func eachGang[T any](t *testing.T, nodes, cpus int, cases map[string]T, test func(*testing.T, *gangWorld, T)) {
	t.Helper()
	bubble.Each(t, cases, func(t *testing.T, tc T) { test(t, newGangWorld(t, nodes, cpus), tc) })
}

// gangTest runs a test in a bubble.
func gangTest(t *testing.T, nodes, cpus int, test func(w *gangWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newGangWorld(t, nodes, cpus)) })
}
