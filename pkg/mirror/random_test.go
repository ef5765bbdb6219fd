package mirror

import (
	"context"
	"flag"
	"net/http"
	"os"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/arbiter/arbitertest"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/ledger/ledgertest"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/pkg/server/rest"
	"github.com/globalreserve/globalreserve/test/background"
)

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.steps": "80", "rapid.checks": "30", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// follow starts a mirror of a ledger that a server serves.
func follow(t testing.TB, l *ledger.Ledger) (m *Mirror, stop func()) {
	log, hook := logtest.NewNullLogger()
	done := make(chan struct{})
	w := arbitertest.NewWorld(l)
	asked := w.New(t, nil)
	api := rest.New(rest.Options{
		Arbiter: asked, Ledger: l.Reader, Clock: w.Clock, Metrics: w.Metrics, Done: done,
		Intake: httpjson.NewIntake(64<<20, func(*http.Request) string { return "" }),
	})
	watcher, err := api.Watch(t.Context(), reserver.WatchOptions{})
	require.NoError(t, err)
	m = New(Options{Log: log})
	ended := background.Run(t, func(ctx context.Context) error { return m.Run(ctx, watcher) })
	return m, func() {
		ended()
		close(done)
		api.Stop()
		require.NoError(t, asked.Stop(context.Background()))
		for _, e := range hook.AllEntries() {
			require.Greater(t, e.Level, logrus.WarnLevel, e.Message)
		}
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
		steps := operations(l, w)
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

func operations(l *ledger.Ledger, w *ledgertest.World) []func(*rapid.T) {
	reserve := func(t *rapid.T) { l.Reserve(w.Plan(t), w.Now) }
	bind := func(t *rapid.T) { at := w.Placement(t); _, _ = l.StartBind(&at, w.Now) }
	steps := []func(*rapid.T){
		reserve, reserve, bind, bind,
		func(t *rapid.T) { l.Confirm(w.Pod(t), w.Node(t)) },
		func(t *rapid.T) { l.BindFailed(w.Pod(t), w.Node(t)) },
		func(t *rapid.T) { l.Unreserve(w.Placements(t)) },
		func(t *rapid.T) { w.Pass(t); l.Expire(w.Now) },
		func(t *rapid.T) { l.ObserveNode(w.NodeObservation(t)) },
		func(t *rapid.T) { l.RemoveNode(w.Node(t)) },
		func(t *rapid.T) { l.ObservePod(w.PodObservation(t, l)) },
		func(t *rapid.T) { l.ObserveUnbound(w.Pod(t), w.Scheduler(t)) },
		func(t *rapid.T) { l.RemovePod(w.Pod(t), w.Version(t)) },
		func(t *rapid.T) { w.Recreate(t) },
		func(t *rapid.T) { l.Reserve(w.SlotPlan(t), w.Now) },
		func(t *rapid.T) { l.ObserveSlot(w.Slot(t, true)) },
		func(t *rapid.T) { l.ReleaseSlots("ns", w.SlotRef(t).Name) },
	}
	if w.Devices {
		steps = append(steps, func(t *rapid.T) { l.ObserveDevices(w.Node(t), w.NodeDevices(t)) })
	}
	return steps
}

// seen is a snapshot in words that mean the same in both ledgers.
type seen struct {
	Nodes       map[string]node
	Allocations map[ledger.PodRef]allocated // what is kept for pods in memory, too
	Slots       map[ledger.SlotRef]held
}

type node struct {
	Exists, Unschedulable bool
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
		s.Nodes[n.Name] = node{n.Exists, n.Unschedulable, amounts, n.Devices}
	}
	for i := range snapshot.Allocations {
		c := &snapshot.Allocations[i]
		s.Allocations[c.Pod] = allocated{c.Node, c.Scheduler, c.State, c.Priority, c.Slot, named(l, c.Request), len(c.Request.Ports), something(c.Given)}
	}
	for i := range snapshot.Slots {
		h := &snapshot.Slots[i]
		if h.InMemory() {
			s.Allocations[h.Pod] = allocated{h.Node, h.Scheduler, ledger.NoAllocation, h.Priority, h.Within, named(l, h.Request), len(h.Request.Ports), something(h.Given)}
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
