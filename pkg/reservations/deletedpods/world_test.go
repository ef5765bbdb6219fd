package deletedpods

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/arbiter/matcher"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var kind = schema.GroupResource{Group: "globalreserve.io", Resource: "reservations"}

// api keeps Reservations; answer says what becomes of the n-th try to create
// one, counted from 0: whether it is written, and the answer.
type api struct {
	mu      sync.Mutex
	objects map[string]*v1alpha1.Reservation
	tries   int
	answer  func(n int, rsv *v1alpha1.Reservation) (written bool, err error)
}

func (a *api) Create(_ context.Context, rsv *v1alpha1.Reservation) (*v1alpha1.Reservation, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	written, err := true, error(nil)
	if a.answer != nil {
		written, err = a.answer(a.tries, rsv)
	}
	a.tries++
	if written && a.objects[rsv.Name] != nil {
		return nil, apierrors.NewAlreadyExists(kind, rsv.Name)
	}
	if written {
		a.objects[rsv.Name] = rsv.DeepCopy()
	}
	return rsv, err
}

func (a *api) Get(_ context.Context, _, name string) (*v1alpha1.Reservation, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if rsv := a.objects[name]; rsv != nil {
		return rsv, nil
	}
	return nil, apierrors.NewNotFound(kind, name)
}

func (a *api) names() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := []string{}
	for name := range a.objects {
		names = append(names, name)
	}
	return names
}

// world is a Keeper that runs, with a ledger of one node of four CPUs.
type world struct {
	*Keeper
	Stop     func()
	t        *testing.T
	ledger   *ledger.Ledger
	matcher  *matcher.Matcher
	api      *api
	metadata *metadatafake.FakeMetadataClient
	recorder *events.FakeRecorder
	taken    map[string]bool
	enabled  bool
	told     []string // the candidates at the time somebody was told of a match
}

func deployment(name string, annotations map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: annotations, Labels: map[string]string{"much": "else"}},
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
		t: t, ledger: ledger.New(ledger.Options{}), matcher: &matcher.Matcher{}, enabled: true, taken: map[string]bool{},
		api: &api{objects: map[string]*v1alpha1.Reservation{}}, recorder: events.NewFakeRecorder(10),
		metadata: metadatafake.NewSimpleMetadataClient(scheme, deployments...),
	}
	w.ledger.ObserveNode(ledger.NodeObservation{Name: "n", Allocatable: []resources.Amount{
		{Column: resources.CPU, Value: 4000}, {Column: resources.Pods, Value: 110},
	}})
	w.Keeper = New(Options{
		Ledger: w.ledger.Observer, Store: w.api, Matcher: w.matcher, Matched: func(string) { w.told = append(w.told, w.candidates()...) },
		Deployments: NewDeployments(w.metadata, log), Recorder: w.recorder, Log: log,
		Enabled: func() bool { return w.enabled },
		Taken:   func(_, name string) bool { return w.taken[name] },
		TTL: func(_ string, asked time.Duration) (time.Duration, error) {
			if asked == 0 {
				return time.Minute, nil
			}
			return asked, nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	w.Stop = func() {
		cancel()
		running.Wait()
	}
	return w
}

// pod is a pod that asks for its room to be kept, for pods of index i.
func pod(name string, change func(*cluster.Pod)) *cluster.Pod {
	p := &cluster.Pod{
		Ref:  ledger.PodRef{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name)},
		Node: "n", Scheduler: "s", Priority: 7, Annotations: &cluster.Annotations{Keep: cluster.KeepYes, Index: "i"},
		Request: &resources.Request{Amounts: []resources.Amount{{Column: resources.CPU, Value: 2000}, {Column: resources.Pods, Value: 1}}},
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
	hold, kept, keep := w.Keep(p)
	if !keep {
		w.ledger.RemovePod(p.Ref, 0)
		return
	}
	require.True(w.t, w.ledger.RemovePodHolding(p.Ref, 0, hold))
	kept()
}

// candidates are the holds a pod of index i may use.
func (w *world) candidates() []string {
	var names []string
	for _, ref := range w.matcher.Candidates(&cluster.Pod{Ref: ledger.PodRef{Namespace: "ns"}, Annotations: &cluster.Annotations{Index: "i"}}) {
		names = append(names, ref.String())
	}
	return names
}

func (w *world) holds() []string {
	views, _ := w.ledger.Holds()
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

func run(t *testing.T, test func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) { test(t) })
}
