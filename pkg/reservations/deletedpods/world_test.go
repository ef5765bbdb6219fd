package deletedpods

import (
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/decide/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/reservations/store/storetest"
	"github.com/globalreserve/globalreserve/pkg/steady"
	"github.com/globalreserve/globalreserve/test/background"
	"github.com/globalreserve/globalreserve/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// world is a Keeper that runs, with a ledger of one node of four CPUs.
type world struct {
	*Keeper
	Stop     func()
	t        *testing.T
	ledger   *ledger.Ledger
	matcher  *placement.Matcher
	api      *storetest.Server
	metadata *metadatafake.FakeMetadataClient
	recorder *events.FakeRecorder
	taken    map[string]bool
	serving  bool
	rules    *policy.Store
	told     []string // the candidates at the times Matched was called
}

func deployment(name string, annotations map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, Annotations: annotations,
			Labels: map[string]string{"much": "else"},
		},
	}
}

func going(d *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	d.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	return d
}

func newWorld(t *testing.T, deployments ...runtime.Object) *world {
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	log, _ := logtest.NewNullLogger()
	w := &world{
		t: t, ledger: ledger.New(ledger.Options{}), matcher: &placement.Matcher{}, serving: true, taken: map[string]bool{},
		recorder: events.NewFakeRecorder(10),
		metadata: metadatafake.NewSimpleMetadataClient(scheme, deployments...),
	}
	placementtest.Nodes(w.ledger, 4000, "n")
	w.api = storetest.New(w.ledger)
	w.rules = policy.NewStore(gatestest.Limited("limited"), time.Minute)
	w.Keeper = New(Options{
		Ledger: gates.NewGatedLedger(w.ledger, steady.New(time.Now, steady.Uptime),
			gates.New(w.rules), func() string { return "not ready" }),
		Store: w.api.Store(t), Matcher: w.matcher, Matched: func(string) { w.told = append(w.told, w.candidates()...) },
		Deployments: NewDeployments(w.metadata, log), Recorder: w.recorder, Log: log,
		Policy:  w.rules,
		Serving: func() bool { return w.serving },
		Taken:   func(_, name string) bool { return w.taken[name] },
	})
	require.Zero(t, w.TakeOver(t.Context(), time.Time{}))
	w.Stop = background.Run(t, w.Run)
	return w
}

// switchOff has the policy keep the capacity of no deleted pod.
func (w *world) switchOff() {
	p := *w.rules.Current()
	p.DeletedPods.Enabled = false
	w.rules.Set(&p)
}

// pod is a pod that asks for its capacity to be kept, for pods of index i.
func pod(name string, change func(*cluster.Pod)) *cluster.Pod {
	p := &cluster.Pod{
		Ref:  ledger.PodRef{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name)},
		Node: "n", Scheduler: "s", Priority: 7, Annotations: &cluster.Annotations{Keep: cluster.KeepYes, Index: "i"},
		Request: placementtest.Request(2000),
	}
	if change != nil {
		change(p)
	}
	return p
}

// ofDeployment makes a pod one of Deployment web that says nothing by itself.
func ofDeployment(p *cluster.Pod) {
	p.Annotations, p.Controller = nil, cluster.Controller{Kind: "Deployment", Name: "web"}
}

// remove is the delete event of a pod that was bound.
func (w *world) remove(p *cluster.Pod) {
	w.t.Helper()
	w.ledger.ObservePod(ledger.PodObservation{Pod: p.Ref, Node: p.Node, Request: p.Request, Scheduler: p.Scheduler})
	slot, told, keep := w.Keep(p)
	if !keep {
		w.ledger.RemovePod(p.Ref, 0)
		return
	}
	made, refused := w.ledger.RemovePodHolding(p.Ref, 0, slot)
	require.NotEqual(w.t, made, refused != nil)
	told(refused)
}

// object returns an object, nil where there is none; names are those of all there are.
func (w *world) object(name string) *v1alpha1.Reservation { return w.api.Object("ns", name) }

func (w *world) names() []string {
	names := []string{}
	for _, object := range w.api.All() {
		names = append(names, object.Name)
	}
	return names
}

// write puts somebody else's object there.
func (w *world) write(name string) {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: name}
	w.api.Objects[types.NamespacedName{Namespace: "ns", Name: name}] = &v1alpha1.Reservation{ObjectMeta: meta}
}

// candidates are the slots a pod of index i may use.
func (w *world) candidates() []string {
	var names []string
	for _, ref := range w.matcher.Candidates(&cluster.Pod{
		Ref:         ledger.PodRef{Namespace: "ns"},
		Annotations: &cluster.Annotations{Index: "i"},
	}) {
		names = append(names, ref.String())
	}
	return names
}

func (w *world) slots() []string {
	views, _ := w.ledger.Slots()
	names := []string{}
	for _, v := range views {
		names = append(names, v.Ref.String())
	}
	return names
}

func (w *world) events() []string {
	var list []string
	for {
		select {
		case e := <-w.recorder.Events:
			list = append(list, e)
		default:
			return list
		}
	}
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
