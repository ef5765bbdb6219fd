package mirror

import (
	"context"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/arbiter/arbitertest"
	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/identity"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/ledger/ledgertest"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/pkg/server/rest"
	"github.com/globalreserve/globalreserve/test/background"
)

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.steps": "80", "rapid.checks": "100", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// follow starts a mirror of a ledger that a server serves.
func follow(t testing.TB, l *ledger.Ledger) (m *Mirror, stop func()) {
	api, stopAPI := newAPI(t, l)
	watcher, err := api.Watch(context.Background(), reserver.WatchOptions{})
	require.NoError(t, err)
	m, ended := run(t, watcher)
	return m, func() {
		ended()
		stopAPI()
	}
}

// newAPI makes the API of a ledger's server.
func newAPI(t testing.TB, l *ledger.Ledger) (api *rest.API, stop func()) {
	done := make(chan struct{})
	w := arbitertest.NewWorld(l)
	asked := w.New(t, nil)
	api = rest.New(rest.Options{
		Arbiter: asked, Ledger: l.Reader, Clock: w.Clock, Metrics: w.Metrics, Done: done,
		Intake: httpjson.NewIntake(64<<20, func(*http.Request) string { return "" }),
	})
	return api, func() {
		close(done)
		api.Stop()
		require.NoError(t, asked.Stop(context.Background()))
	}
}

// run runs a mirror, which has nothing to complain about.
func run(t testing.TB, watcher *reserver.Watcher) (m *Mirror, stop func()) {
	log, hook := logtest.NewNullLogger()
	m = New(Options{Log: log})
	ended := background.Run(t, func(ctx context.Context) error { return m.Run(ctx, watcher) })
	return m, func() {
		ended()
		for _, e := range hook.AllEntries() {
			require.Greater(t, e.Level, logrus.WarnLevel, e.Message)
		}
	}
}

// serve serves a ledger over HTTP.
func serve(t testing.TB, l *ledger.Ledger) (url string, stop func()) {
	api, stopAPI := newAPI(t, l)
	router := httprouter.New()
	api.Register(router)
	server := httptest.NewServer(identity.Insecure(router))
	return server.URL, func() {
		server.CloseClientConnections()
		server.Close()
		stopAPI()
	}
}

// followHTTP starts a mirror of the ledger that is served at a URL.
func followHTTP(t testing.TB, url string) (m *Mirror, stop func()) {
	asks, err := client.New(client.Options{URL: url})
	require.NoError(t, err)
	watcher, err := asks.Watch(context.Background(), reserver.WatchOptions{})
	require.NoError(t, err)
	m, ended := run(t, watcher)
	return m, func() {
		ended()
		asks.Close()
	}
}

// Whatever happens to the ledger, the mirror has the same nodes, allocations and slots, and finds
// the same capacity.
func TestMirrorFollowsTheLedger(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// A short journal now and then lets the watch start anew, with a snapshot.
		l := ledger.New(ledger.Options{FirstRevision: 1000, JournalSize: rapid.SampledFrom([]int{4, 4096}).Draw(rt, "journal")})
		w := ledgertest.NewWorld(l.Table())
		w.Devices = rapid.Bool().Draw(rt, "devices")
		for range 3 {
			l.ObserveNode(w.NodeObservation(rt))
		}
		if w.Devices {
			l.ObserveDevices(w.Node(rt), w.NodeDevices(rt)) // before the watch begins
		}
		m, stop := follow(t, l)
		defer stop()
		steps := ledgertest.Steps(l, w)
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				require.NoError(rt, m.WaitFor(t.Context(), l.Revision()))
				compare(rt, l, m)
				compareFit(rt, l, m, w)
			},
			"burst": func(rt *rapid.T) {
				for range rapid.IntRange(1, 12).Draw(rt, "length") {
					rapid.SampledFrom(steps).Draw(rt, "step")(rt)
				}
			},
		})
	})
}

// So it is over HTTP, however many changes travel together.
func TestMirrorFollowsOverHTTP(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := ledger.New(ledger.Options{FirstRevision: 1000, JournalSize: 4096})
		w := ledgertest.NewWorld(l.Table())
		w.Devices = rapid.Bool().Draw(rt, "devices")
		steps := ledgertest.Steps(l, w)
		burst := func(name string) {
			for range rapid.IntRange(1, 100).Draw(rt, name) {
				rapid.SampledFrom(steps).Draw(rt, "step")(rt)
			}
		}
		burst("before")
		url, stopServer := serve(t, l)
		defer stopServer()
		m, stop := followHTTP(t, url)
		defer stop()
		for range 2 {
			require.NoError(t, m.WaitFor(t.Context(), l.Revision()))
			compare(rt, l, m)
			burst("then")
		}
		require.NoError(t, m.WaitFor(t.Context(), l.Revision()))
		compare(rt, l, m)
	})
}

// A movable slot keeps its pod from no node in the mirror either: by the snapshot that a watch begins with, by a change,
// and after it was kept for its node alone.
func TestMovableSlot(t *testing.T) {
	l := ledger.New(ledger.Options{FirstRevision: 1000})
	cpu := func(milli int64) []resources.Amount { return []resources.Amount{{Column: resources.CPU, Value: milli}} }
	for _, name := range []string{"n1", "n2"} {
		l.ObserveNode(ledger.NodeObservation{Name: name, Allocatable: append(cpu(1000), resources.Amount{Column: resources.Pods, Value: 9})})
	}
	first := ledger.Placement{Pod: ledger.PodRef{Namespace: "ns", Name: "first", UID: "u1"}, Node: "n1", Request: &resources.Request{Amounts: cpu(400)}}
	second := first
	second.Pod = ledger.PodRef{Namespace: "ns", Name: "second", UID: "u2"}
	keep := func(p ledger.Placement, movable bool) {
		plan := ledger.NewPlan([]ledger.Placement{p}, ledger.AllOrNothing, time.Time{})
		plan.Slots[0].Movable = movable
		require.Empty(t, l.Reserve(plan, time.Now()).Rejections)
	}
	keep(first, true)
	m, stop := follow(t, l)
	defer stop()
	keep(second, true)
	agree := func(elsewhere ledger.Reason) {
		require.NoError(t, m.WaitFor(t.Context(), l.Revision()))
		for _, p := range []ledger.Placement{first, second} {
			for _, reader := range []ledger.Reader{l.Reader, m.Ledger()} {
				verdicts := reader.AppendFit(nil, &p, []string{"n1", "n2"})
				assert.Equal(t, ledger.Fits.String(), verdicts[0].Reason.String(), p.Pod.Name)
				assert.Equal(t, elsewhere.String(), verdicts[1].Reason.String(), p.Pod.Name)
			}
		}
	}
	agree(ledger.Fits)
	keep(first, false)
	keep(second, false)
	agree(ledger.AllocatedElsewhere)
}

// seen is a snapshot in words that mean the same in both ledgers.
type seen struct {
	Nodes       map[string]node
	Allocations map[ledger.PodRef]allocated // what is kept for pods in memory, too
	Slots       map[ledger.SlotRef]held
}

type node struct {
	Exists, Unschedulable bool
	Labels                map[string]string
	Amounts               map[string]ledger.AmountView
	Devices               []ledger.DeviceView
}

type allocated struct {
	Node, Scheduler string
	State           ledger.State
	Priority        int32
	Slot            ledger.SlotRef
	Amounts         map[string]int64
	Ports           int
	Given           []ledger.GivenDevices
	Movable         bool
}

type held struct {
	Node      string
	Overdue   bool
	Policy    ledger.AllocatePolicy
	Pod       string // without the namespace: a pod of another one may not use the slot anyhow
	Amounts   map[string]int64
	Rest      map[string]int64
	Consumers int
	Given     []ledger.GivenDevices
}

func words(l ledger.Reader) seen {
	s := seen{map[string]node{}, map[ledger.PodRef]allocated{}, map[ledger.SlotRef]held{}}
	snapshot := l.Snapshot()
	for i := range snapshot.Nodes {
		n := &snapshot.Nodes[i]
		amounts := map[string]ledger.AmountView{}
		for _, a := range n.Amounts {
			if a.Allocatable != 0 || a.Bound != 0 || a.Reserved != 0 {
				amounts[string(a.Resource)] = a
			}
		}
		s.Nodes[n.Name] = node{n.Exists, n.Unschedulable, n.Labels, amounts, n.Devices}
	}
	for i := range snapshot.Allocations {
		c := &snapshot.Allocations[i]
		s.Allocations[c.Pod] = allocated{c.Node, c.Scheduler, c.State, c.Priority, c.Slot, named(l, c.Request), len(c.Request.Ports), something(c.Given), false}
	}
	for i := range snapshot.Slots {
		h := &snapshot.Slots[i]
		if h.InMemory() {
			s.Allocations[h.Pod] = allocated{h.Node, h.Scheduler, ledger.NoAllocation, h.Priority, h.Within, named(l, h.Request), len(h.Request.Ports), something(h.Given), h.Movable}
			continue
		}
		s.Slots[h.Ref] = held{h.Node, h.Overdue, h.Policy, h.Pod.Name, named(l, h.Request), named(l, h.Rest), len(h.Consumers), something(h.Given)}
	}
	return s
}

// something makes no difference between no devices and an empty list.
func something(given []ledger.GivenDevices) []ledger.GivenDevices {
	if len(given) == 0 {
		return nil
	}
	return given
}

func named(l ledger.Reader, r *resources.Request) map[string]int64 {
	amounts := map[string]int64{}
	for _, a := range r.Amounts {
		amounts[string(l.Table().Name(a.Column))] = a.Value
	}
	return amounts
}

func compare(t *rapid.T, l *ledger.Ledger, m *Mirror) {
	require.Equal(t, words(l.Reader), words(m.Ledger()))
	require.NoError(t, ledgertest.CheckInvariants(m.Ledger()))
}

// compareFit asks both whether a pod fits. The mirror's table has other columns, so the request is
// made anew from its names.
func compareFit(t *rapid.T, l *ledger.Ledger, m *Mirror, w *ledgertest.World) {
	p := w.Placement(t)
	// A scheduler asks for pods that exist. Which allocations of those a pod without a UID could be is not
	// told.
	if len(p.Request.Unlisted) > 0 || p.Pod.UID == "" {
		return
	}
	if slot, ok := l.InMemory(p.Pod); ok && (len(slot.Given) > 0 || p.Devices != nil) {
		return // nor is what a slot was given its devices for: whether the pod asks for the same
	}
	translated := p
	translated.Request = &resources.Request{Ports: p.Request.Ports, ToleratesUnschedulable: p.Request.ToleratesUnschedulable}
	wire := reserver.Amounts{}
	for name, value := range named(l.Reader, p.Request) {
		wire[name] = value
	}
	translated.Request.Amounts = amounts(wire, m.Ledger().Table().InternUse)
	nodes := []string{"n1", "n2", "n3", "nowhere"}
	want := l.AppendFit(nil, &p, nodes)
	got := m.Ledger().AppendFit(nil, &translated, nodes)
	for i := range nodes {
		if want[i].Reason == ledger.PodGone {
			continue // no event tells of a pod that has gone without an allocation
		}
		require.Equal(t, want[i].Reason == ledger.Fits, got[i].Reason == ledger.Fits, "%s: %+v, mirror %+v", nodes[i], want[i], got[i])
	}
}
