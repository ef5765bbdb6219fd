package rest

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// slot places a slot of a reservation made by hand.
func (f *fixture) slot(ref string, node string, milliCPU int64, change func(*ledger.Slot)) {
	f.t.Helper()
	part := strings.Split(ref, "/")
	h := ledger.Slot{
		Ref: ledger.SlotRef{Namespace: part[0], Name: part[1], Slot: part[2]}, Node: node, Policy: ledger.Once,
		Request: &resources.Request{Amounts: []resources.Amount{
			{Column: resources.CPU, Value: milliCPU},
			{Column: resources.Pods, Value: 1},
		}},
	}
	if change != nil {
		change(&h)
	}
	result := f.ledger.Reserve(ledger.Plan{Slots: []ledger.Slot{h}}, time.Now())
	require.Equal(f.t, 1, result.Granted, result.Rejections)
}

// use binds a pod with a slot.
func (f *fixture) use(pod *v1.Pod, node, ref string) {
	f.t.Helper()
	info, err := cluster.Reader{Table: f.ledger.Table()}.NewPod(pod)
	require.NoError(f.t, err)
	part := strings.Split(ref, "/")
	placement := info.Placement(node)
	placement.Slots = []ledger.SlotRef{{Namespace: part[0], Name: part[1], Slot: part[2]}}
	grant, rejection := f.ledger.StartBind(&placement, time.Now())
	require.Nil(f.t, rejection)
	require.Equal(f.t, placement.Slots[0], grant.Slot)
	require.True(f.t, f.ledger.Confirm(info.Ref, node))
}

func TestReservations(t *testing.T) {
	f := newFixture(t, Limits{})
	deadline := startTime.Add(time.Hour)
	f.slot("team-a/shared/s0", "node-1", 2000, func(h *ledger.Slot) {
		h.Policy, h.Scheduler, h.Priority, h.Preemptible, h.Deadline = ledger.Aligned, testScheduler, 7, true, deadline
		h.AvailableAt = startTime
	})
	f.slot("team-a/shared/s1", "node-2", 1000, func(h *ledger.Slot) {
		h.Policy, h.Scheduler, h.Priority, h.Preemptible, h.Deadline = ledger.Aligned, testScheduler, 7, true, deadline
	})
	f.slot("team-b/own/p", "node-1", 500, func(h *ledger.Slot) {
		h.Pod = ledger.PodRef{Namespace: "team-b", Name: "p", UID: "u"}
		h.Request.Ports = []resources.HostPort{{PortKey: resources.PortKey{Protocol: "TCP", Port: 80}, IP: "0.0.0.0"}}
	})
	f.use(aPod("c", "500m", "1Gi"), "node-1", "team-a/shared/s0")
	begun := time.Now()
	f.reserve(gangOf("node-3", aPod("k", "100m", "1Gi")))
	f.reserve(gangOf("node-3", aPod("l", "100m", "1Gi")))

	all := get[reserver.ReservationsAnswer](f, "/v1/reservations")
	assert.Equal(t, f.ledger.Revision(), all.Revision)
	require.Len(t, all.Reservations, 4)
	kept := all.Reservations[0]
	assertExpires(t, kept.ExpiresAt, begun)
	amounts := reserver.Amounts{"cpu": 100, "memory": gib, "pods": 1}
	assert.Equal(t, reserver.Reservation{
		Namespace: "team-a", Scheduler: testScheduler, Policy: "Once", ExpiresAt: kept.ExpiresAt,
		Slots: []reserver.Slot{{
			Node: "node-3", Requests: amounts, Free: amounts, ExpiresAt: kept.ExpiresAt, Pod: "k",
			UID: "uid-k",
		}},
	}, kept, "in memory")
	shared := all.Reservations[2]
	require.Len(t, shared.Slots, 2)
	assert.Equal(t, reserver.Slot{
		Name: "s0", Node: "node-1", Requests: reserver.Amounts{"cpu": 2000, "pods": 1}, Free: reserver.Amounts{"cpu": 1500},
		AvailableAt: startTime, ExpiresAt: deadline,
		Consumers: []reserver.Consumer{{Pod: "c", UID: "uid-c", State: "Bound"}},
	}, shared.Slots[0])
	shared.Slots = nil
	assert.Equal(t, reserver.Reservation{
		Namespace: "team-a", Name: "shared", Durable: true, Scheduler: testScheduler, Priority: 7, Preemptible: true,
		Policy: "Aligned", ExpiresAt: deadline,
	}, shared)
	assert.Equal(t, reserver.Reservation{
		Namespace: "team-b", Name: "own", Durable: true, Policy: "Once",
		Slots: []reserver.Slot{{
			Name: "p", Node: "node-1", Requests: reserver.Amounts{"cpu": 500, "pods": 1},
			Free:      reserver.Amounts{"cpu": 500, "pods": 1},
			HostPorts: []string{"TCP/0.0.0.0:80"}, Pod: "p", UID: "u",
		}},
	}, all.Reservations[3])

	filters := map[string][]string{
		"namespace=team-b":             {"own/p"},
		"name=shared":                  {"shared/s0", "shared/s1"},
		"node=node-2":                  {"shared/s1"},
		"scheduler=batch-scheduler":    {"/", "/", "shared/s0", "shared/s1"},
		"namespace=team-a&node=node-3": {"/", "/"},
		"pod=k":                        {"/"},
		"pod=c":                        {"shared/s0"},
		"pod=p":                        {"own/p"},
		"pod=p&node=node-2":            nil,
		"limit=2":                      {"/", "/"},
		"limit=1&continue=" + url.QueryEscape("//team-a/k/uid-k"): {"/"},
		"limit=1&continue=" + url.QueryEscape("//team-a/l/uid-l"): {"shared/s0", "shared/s1"},
		"limit=1&continue=team-a%2Fshared":                        {"own/p"},
	}
	for query, want := range filters {
		some := get[reserver.ReservationsAnswer](f, "/v1/reservations?"+query)
		var got []string
		for _, r := range some.Reservations {
			for _, s := range r.Slots {
				got = append(got, r.Name+"/"+s.Name)
			}
		}
		assert.Equal(t, want, got, query)
		next := map[string]string{
			"limit=2": "//team-a/l/uid-l", "limit=1&continue=" + url.QueryEscape("//team-a/k/uid-k"): "//team-a/l/uid-l",
			"limit=1&continue=" + url.QueryEscape("//team-a/l/uid-l"): "team-a/shared",
		}
		assert.Equal(t, next[query], some.Continue, query)
	}
}

// Objects that wait for capacity are listed beside those that have some, in the same order and pages.
func TestPendingReservations(t *testing.T) {
	f := newFixture(t, Limits{})
	f.slot("team-a/c/s", "node-1", 100, nil)
	f.slot("team-b/a/s", "node-1", 100, nil)
	f.reserve(gangOf("node-3", aPod("k", "100m", "1Gi")))
	for _, name := range []string{"team-a/b", "team-a/c", "team-a/d", "team-b/b"} {
		namespace, name, _ := strings.Cut(name, "/")
		f.waiting = append(f.waiting, reservations.Pending{
			Reservation: &v1alpha1.Reservation{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(startTime)},
				Spec: v1alpha1.ReservationSpec{SchedulerName: testScheduler, Slots: []v1alpha1.Slot{
					{Name: "s0", Pod: &v1alpha1.PodReference{Name: "of-" + name}}, {Name: "s1", NodeName: "on-" + name},
				}},
			},
			Priority: 3, Reason: "NoNodeFits", Message: "no node fits", Slot: "s0",
			Lacks: []ledger.Lack{{Resource: "cpu", Requested: 5000, Largest: 3900, Node: "node-2"}},
		})
	}
	f.waiting[0].Reason = ""
	names := func(query string) (list []string) {
		answer := get[reserver.ReservationsAnswer](f, "/v1/reservations?"+query)
		for _, r := range answer.Reservations {
			list = append(list, r.Namespace+"/"+r.Name)
			assert.Equal(t, r.Pending == nil, len(r.Slots) > 0, "team-a/c has its capacity by now")
		}
		return append(list, answer.Continue)
	}
	all := []string{"team-a/", "team-a/b", "team-a/c", "team-a/d", "team-b/a", "team-b/b"}
	assert.Equal(t, append(all, ""), names(""))
	assert.Equal(t, all, allPages(t, func(next string) ([]string, string) {
		page := names("limit=2&continue=" + next)
		return page[:len(page)-1], page[len(page)-1]
	}))
	assert.Equal(t, []string{"team-a/d", ""}, names("name=d"))
	assert.Equal(t, []string{"team-b/b", ""}, names("namespace=team-b&scheduler="+testScheduler))
	assert.Equal(t, []string{"team-a/d", ""}, names("pod=of-d"))
	assert.Equal(t, []string{"team-a/d", ""}, names("node=on-d"))
	f.reads = map[string]bool{"team-b": true}
	reply := f.getAs("/v1/reservations", &reserver.ReservationsAnswer{})
	assert.NotContains(t, reply, "team-a")
	assert.Contains(t, reply, "team-b")
	f.reads = nil

	answer := get[reserver.ReservationsAnswer](f, "/v1/reservations?namespace=team-a")
	assert.Equal(t, "NotTried", answer.Reservations[1].Pending.Reason)
	assert.Equal(t, reserver.Reservation{
		Namespace: "team-a", Name: "d", Durable: true, Scheduler: testScheduler, Priority: 3, Policy: "Once",
		Slots: []reserver.Slot{},
		Pending: &reserver.PendingReservation{
			Since: startTime, Reason: "NoNodeFits", Message: "no node fits", SlotCount: 2, Slot: "s0",
			Lacks: []reserver.SlotLacks{{Resource: "cpu", Requested: 5000, Largest: 3900, Node: "node-2"}},
		},
	}, answer.Reservations[3])
}

// What reservations keep counts as reserved, and their pods do not count twice.
func TestNodesWithReservations(t *testing.T) {
	f := newFixture(t, Limits{})
	f.slot("team-a/shared/s0", "node-1", 2000, func(h *ledger.Slot) { h.Policy = ledger.Aligned })
	f.use(aPod("c", "500m", "1Gi"), "node-1", "team-a/shared/s0")
	answer := get[reserver.NodeAnswer](f, "/v1/nodes/node-1")
	assert.Equal(t, reserver.NodeAmount{Allocatable: 4000, Bound: 500, Reserved: 1500, Free: 2000},
		answer.Node.Resources["cpu"])
	require.Len(t, answer.Slots, 1)
	assert.Equal(t, "shared", answer.Slots[0].Reservation)
	assert.Equal(t, "s0", answer.Slots[0].Slot.Name)
	require.Len(t, answer.Allocations, 1)
	assert.Equal(t, "team-a/shared/s0", answer.Allocations[0].Reservation)
	answer = get[reserver.NodeAnswer](f, "/v1/nodes/node-2")
	assert.Empty(t, answer.Slots)
	assert.NotNil(t, answer.Slots)
}

// A caller that may see a reservation gets its name where it is why a pod is refused. The message, which others read,
// too, does not name what is of another namespace.
func TestReservationsAsHolders(t *testing.T) {
	f := newFixture(t, Limits{})
	for i := 1; i <= 3; i++ {
		f.slot(fmt.Sprintf("team-b/job/w-%d", i), fmt.Sprintf("node-%d", i), 3000,
			func(h *ledger.Slot) { h.Scheduler = "theirs" })
	}
	refused := f.reserve(gangOf("node-1", aPod("a", "2", "1Gi")))
	require.Len(t, refused.Rejections, 1)
	want := []reserver.Holder{{
		Namespace: "team-b", Reservation: "team-b/job/w-1", Scheduler: "theirs", State: "Reserved",
		Amount: 3000,
	}}
	assert.Equal(t, want, refused.Rejections[0].Holders)
	assert.Contains(t, refused.Error, "largest holder of another namespace (3 CPU, Reserved)")

	f.Bring(aPod("a", "2", "1Gi"))
	pending := get[reserver.ExplainAnswer](f, "/v1/explain?namespace=team-a&pod=a")
	require.NotNil(t, pending.Closest)
	assert.Equal(t, want, pending.Closest.Holders)
	assert.Contains(t, pending.Message, "largest holder of another namespace (3 CPU, Reserved)")

	f.AddNode("node-4", "1", "1Gi")
	f.slot("team-a/mine/w", "node-4", 1000, func(h *ledger.Slot) { h.Scheduler = "ours" })
	refused = f.reserve(gangOf("node-4", aPod("b", "1", "1Gi")))
	assert.Contains(t, refused.Error, "largest holder reservation team-a/mine/w (1 CPU, Reserved by ours)")
}

func TestExplainReservedPod(t *testing.T) {
	f := newFixture(t, Limits{})
	deadline := startTime.Add(time.Hour)
	f.slot("team-a/job/a", "node-2", 1000, func(h *ledger.Slot) {
		h.Pod, h.Deadline, h.Scheduler = ledger.PodRef{Namespace: "team-a", Name: "a"}, deadline, testScheduler
	})
	for _, known := range []bool{false, true} {
		if known {
			f.Bring(aPod("a", "1", "1Gi"))
		}
		answer := get[reserver.ExplainAnswer](f, "/v1/explain?namespace=team-a&pod=a")
		assert.Equal(t, "Reserved", answer.State)
		assert.Equal(t, "node-2", answer.Node)
		assert.Equal(t, "team-a/job/a", answer.Reservation)
		assert.Equal(t, deadline, answer.ExpiresAt)
		assert.Contains(t, answer.Message, `reservation team-a/job/a keeps capacity for the pod on node "node-2"`)
	}
	finished := aPod("a", "1", "1Gi")
	finished.Status.Phase = v1.PodSucceeded
	f.Bring(finished)
	answer := get[reserver.ExplainAnswer](f, "/v1/explain?namespace=team-a&pod=a")
	assert.Equal(t, "Finished", answer.State)
}

// A what-if request knows what is kept, and for whom.
func TestWhatIfWithReservations(t *testing.T) {
	f := newFixture(t, Limits{})
	for i := 1; i <= 3; i++ {
		f.slot(fmt.Sprintf("team-a/job/w-%d", i), fmt.Sprintf("node-%d", i), 3000, func(h *ledger.Slot) {
			h.Pod = ledger.PodRef{Namespace: "team-a", Name: fmt.Sprint("w-", i)}
		})
	}
	before := f.ledger.Revision()
	ask := func(nodes []string, pods ...*v1.Pod) (answer reserver.WhatIfAnswer) {
		f.post("/v1/whatif", body{SchedulerName: testScheduler, Pods: pods, Nodes: nodes}, &answer)
		return answer
	}
	answer := ask(nil, aPod("w-2", "3", "1Gi"), aPod("z", "3", "1Gi"))
	assert.Equal(t, "node-2", answer.Placements[0].Node, "where its capacity is")
	assert.True(t, answer.Placements[0].Fits)
	assert.False(t, answer.Placements[1].Fits)
	assert.Equal(t, []string{"z"}, answer.FailedPods)
	elsewhere := ask([]string{"node-1"}, aPod("w-2", "1", "1Gi"))
	assert.Equal(t, "AllocatedElsewhere", elsewhere.Rejections[0].Reason)
	assert.Equal(t, before, f.ledger.Revision())
}

func TestWatchSlots(t *testing.T) {
	f := newFixture(t, Limits{})
	f.slot("team-a/old/s", "node-1", 500, nil)
	w := f.watch("")
	snapshot := w.next().Snapshot
	require.Len(t, snapshot.Slots, 1)
	assert.Equal(t, "old", snapshot.Slots[0].Reservation)
	w.caughtUp()

	deadline := startTime.Add(time.Hour)
	f.slot("team-a/new/s", "node-2", 1000, func(h *ledger.Slot) {
		h.AvailableAt, h.Deadline, h.Priority = startTime, deadline, 3
		h.Pod = ledger.PodRef{Namespace: "team-a", Name: "p"}
	})
	change, _ := w.change()
	assert.Equal(t, &reserver.WatchSlot{
		Revision: f.ledger.Revision(), Type: "SlotPlaced",
		Slot: reserver.NodeSlot{Namespace: "team-a", Reservation: "new", Priority: 3, Policy: "Once", Slot: reserver.Slot{
			Name: "s", Node: "node-2", Requests: reserver.Amounts{"cpu": 1000, "pods": 1},
			Free:        reserver.Amounts{"cpu": 1000, "pods": 1},
			AvailableAt: startTime, ExpiresAt: deadline, Pod: "p",
		}},
	}, change.Slot)

	f.use(aPod("c", "500m", "1Gi"), "node-1", "team-a/old/s")
	change, _ = w.change()
	allocation := change.Allocation
	assert.Equal(t, "AllocationBinding", allocation.Type)
	assert.Equal(t, "team-a/old/s", allocation.Allocation.Reservation)
	change, _ = w.change()
	assert.NotNil(t, change.Allocation)
	change, _ = w.change()
	assert.Equal(t, "SlotConsumed", change.Slot.Type)
	assert.Equal(t, &reserver.PodName{Namespace: "team-a", Pod: "c", UID: "uid-c"}, change.Slot.By)
	f.ledger.Expire(deadline)
	change, _ = w.change()
	assert.Equal(t, "SlotExpired", change.Slot.Type)
	assert.Nil(t, change.Slot.By)
}

// The explanation of a pending pod names capacity that is kept for pods like it.
func TestExplainPodWithAMatch(t *testing.T) {
	f := newFixture(t, Limits{})
	for i := 1; i <= 3; i++ {
		f.slot(fmt.Sprintf("team-a/buffer/s-%d", i), fmt.Sprintf("node-%d", i), 3000, nil)
	}
	f.Bring(aPod("a", "2", "1Gi"))
	answer := get[reserver.ExplainAnswer](f, "/v1/explain?namespace=team-a&pod=a")
	assert.Zero(t, answer.FitCount)
	assert.Empty(t, answer.Reservation)

	require.NoError(t, f.Matcher.Set(&v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "buffer"},
		Spec: v1alpha1.ReservationSpec{
			Consumers: &v1alpha1.ConsumerSpec{Selector: &metav1.LabelSelector{}},
			Slots:     []v1alpha1.Slot{{Name: "gone"}, {Name: "s-2"}},
		},
	}))
	answer = get[reserver.ExplainAnswer](f, "/v1/explain?namespace=team-a&pod=a")
	assert.Equal(t, 1, answer.FitCount)
	assert.Equal(t, []string{"node-2"}, answer.FitExamples)
	assert.Equal(t, "team-a/buffer/s-2", answer.Reservation)
	assert.Contains(t, answer.Message,
		`reservation team-a/buffer/s-2 keeps capacity that the pod may use on node "node-2"`)
	assert.Nil(t, answer.Closest)

	f.Bring(aPod("a", "5", "1Gi")) // more than the node has
	answer = get[reserver.ExplainAnswer](f, "/v1/explain?namespace=team-a&pod=a")
	assert.Zero(t, answer.FitCount)
	assert.Empty(t, answer.Reservation)
}
