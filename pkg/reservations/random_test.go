package reservations

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

// TestRandomLives does what users, schedulers, nodes and time may do, in any
// order, restarts included, and checks after each step that objects and ledger
// say the same.
func TestRandomLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			w := newWorld(t, newClient())
			w.start()
			defer func() { w.stop() }()
			live(w, t)
		})
	})
}

func live(w *world, t *rapid.T) {
	l := &lives{world: w, t: t, ended: map[types.UID]v1alpha1.ReservationPhase{}, binding: map[string]ledger.Placement{}}
	for _, node := range l.nodeNames() {
		w.addNode(node)
	}
	for range rapid.IntRange(1, 25).Draw(t, "deeds") {
		deed := rapid.SampledFrom(l.deeds()).Draw(t, "deed")
		deed.do()
		w.settle()
		l.check(deed.name)
	}
}

type lives struct {
	*world
	t       *rapid.T
	made    int
	binding map[string]ledger.Placement // binds in flight, by pod
	ended   map[types.UID]v1alpha1.ReservationPhase
}

type deed struct {
	name string
	do   func()
}

func (d deed) String() string { return d.name }

func (l *lives) deeds() []deed {
	return []deed{
		{"create", l.createAny},
		{"create made by server", l.createMade},
		{"delete", l.deleteAny},
		{"extend", l.extendAny},
		{"bind", l.bindAny},
		{"start bind", l.startBind},
		{"end bind", l.endBind},
		{"preempt", l.preemptAny},
		{"delete pod", l.deletePodAny},
		{"pass", l.passAny},
		{"node", l.changeNode},
		{"restart", l.restart},
	}
}

func (*lives) nodeNames() []string { return []string{"n0", "n1", "n2"} }

func (l *lives) number(label string, low, high int) int {
	return rapid.IntRange(low, high).Draw(l.t, label)
}

func (l *lives) any() *rapid.Generator[bool] { return rapid.Bool() }

func (l *lives) randomObject() *v1alpha1.Reservation {
	l.made++
	rsv := newReservation(fmt.Sprintf("r%d", l.number("name", 0, 4)), time.Duration(l.number("ttl", 0, 60))*time.Second)
	rsv.UID = types.UID(fmt.Sprintf("%s-%d", rsv.Name, l.made))
	rsv.Spec.AllocatePolicy = rapid.SampledFrom([]v1alpha1.AllocatePolicy{
		v1alpha1.AllocateOnce, v1alpha1.AllocateAligned, v1alpha1.AllocateRestricted,
	}).Draw(l.t, "policy")
	rsv.Spec.Preemptible = l.any().Draw(l.t, "preemptible")
	rsv.Spec.Consumers = &v1alpha1.ConsumerSpec{Selector: &metav1.LabelSelector{}}
	for i := range l.number("slots", 1, 3) {
		node := rapid.SampledFrom(append(l.nodeNames(), "", "n9")).Draw(l.t, "node")
		s := slot(fmt.Sprintf("s%d", i), node, int64(l.number("cpu", 0, 4500)))
		if l.any().Draw(l.t, "for a pod") {
			s.Pod = &v1alpha1.PodReference{Name: fmt.Sprintf("p%d", l.number("pod", 0, 9))}
			if l.any().Draw(l.t, "by uid") {
				s.Pod.UID = podRef(s.Pod.Name).UID
			}
		}
		rsv.Spec.Slots = append(rsv.Spec.Slots, s)
	}
	return rsv
}

func (l *lives) createAny() {
	if rsv := l.randomObject(); l.get(rsv.Name) == nil {
		l.create(rsv)
	}
}

// createMade places the slots first, as the server does.
func (l *lives) createMade() {
	rsv := madeBy(l.randomObject(), convert.MadeByDeletedPod)
	for i := range rsv.Spec.Slots {
		if rsv.Spec.Slots[i].NodeName == "" {
			rsv.Spec.Slots[i].NodeName = "n0"
		}
	}
	if l.get(rsv.Name) != nil {
		return
	}
	kept, err := convert.Slots(l.ledger.Table(), rsv)
	require.NoError(l.t, err)
	result := l.ledger.Reserve(ledger.Plan{Slots: kept}, time.Now())
	if result.Granted == len(kept) && len(result.Existing) == 0 {
		l.create(rsv)
	} else if result.Granted > 0 {
		l.ledger.ReleaseSlots(rsv.Namespace, rsv.Name)
	}
}

// existing returns one of the objects, nil where there are none.
func (l *lives) existing() *v1alpha1.Reservation {
	list, err := l.client.GlobalreserveV1alpha1().Reservations(testNamespace).List(l.ctx(), metav1.ListOptions{})
	require.NoError(l.t, err)
	if len(list.Items) == 0 {
		return nil
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.Reservation) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return &list.Items[l.number("object", 0, len(list.Items)-1)]
}

func (l *lives) deleteAny() {
	if rsv := l.existing(); rsv != nil {
		l.delete(rsv.Name)
	}
}

func (l *lives) extendAny() {
	if rsv := l.existing(); rsv != nil {
		l.change(rsv.Name, func(rsv *v1alpha1.Reservation) {
			if rsv.Spec.TTL.Duration > 0 {
				rsv.Spec.TTL.Duration += time.Duration(l.number("more", 0, 60)) * time.Second
			}
		})
	}
}

// placement is a random pod that may use every slot, as the matcher would say.
func (l *lives) placement() ledger.Placement {
	name := fmt.Sprintf("p%d", l.number("pod", 0, 9))
	p := ledger.Placement{
		Pod: podRef(name), Node: rapid.SampledFrom(l.nodeNames()).Draw(l.t, "node"),
		Request: request(int64(l.number("cpu", 0, 4000))),
		Slots:   l.matcher.Candidates(podInfo(name)),
	}
	return p
}

func (l *lives) bindAny() {
	p := l.placement()
	if _, busy := l.binding[p.Pod.Name]; !busy {
		l.bindPod(p)
	}
}

func (l *lives) preemptAny() {
	p := l.placement()
	p.Preempt, p.Priority = true, 10
	if _, busy := l.binding[p.Pod.Name]; !busy {
		l.bindPod(p)
	}
}

func (l *lives) startBind() {
	p := l.placement()
	if _, bound := l.c.Pods.Pod(testNamespace, p.Pod.Name); bound {
		return
	}
	if grant, refused := l.ledger.StartBind(&p, time.Now()); refused == nil && grant.Before == ledger.NoAllocation {
		l.binding[p.Pod.Name] = p
	}
}

func (l *lives) endBind() {
	if len(l.binding) == 0 {
		return
	}
	name := slices.Min(slices.Collect(maps.Keys(l.binding)))
	p := l.binding[name]
	delete(l.binding, name)
	if l.any().Draw(l.t, "bound") {
		l.bindPod(p)
	} else {
		l.ledger.BindFailed(p.Pod, p.Node)
	}
}

func (l *lives) deletePodAny() {
	name := fmt.Sprintf("p%d", l.number("pod", 0, 9))
	if _, bound := l.c.Pods.Pod(testNamespace, name); bound {
		l.deletePod(name)
	}
}

func (l *lives) passAny() { l.pass(time.Duration(l.number("seconds", 1, 90)) * time.Second) }

func (l *lives) changeNode() {
	name := rapid.SampledFrom(l.nodeNames()).Draw(l.t, "node")
	if _, ok := l.c.Nodes.Node(name); ok {
		l.removeNode(name)
		return
	}
	l.addNode(name, func(n *cluster.Node) { n.UID = types.UID(fmt.Sprintf("%s-%d", name, l.made)) })
}

// restart ends binds in flight with the server: none of them reached the API.
func (l *lives) restart() {
	clear(l.binding)
	l.kill()
	if l.any().Draw(l.t, "later") {
		l.pass(30 * time.Second)
	}
	l.comeBack()
}

// check compares every object with the ledger.
func (l *lives) check(after string) {
	list, err := l.client.GlobalreserveV1alpha1().Reservations(testNamespace).List(l.ctx(), metav1.ListOptions{})
	require.NoError(l.t, err)
	total := 0
	for i := range list.Items {
		total += l.checkObject(&list.Items[i], after)
	}
	require.Equal(l.t, total, l.ledger.Stats().Slots, "after %s: slots of no object", after)
}

// checkObject returns how many slots the object has.
func (l *lives) checkObject(rsv *v1alpha1.Reservation, after string) int {
	t, s := l.t, &rsv.Status
	about := fmt.Sprintf("after %s: %s", after, l.shown(rsv.Name))
	if before, ended := l.ended[rsv.UID]; ended {
		require.Equal(t, before, s.Phase, about)
	}
	require.NotEmpty(t, s.Phase, about)
	require.Len(t, s.Conditions, 2, about)
	var want []string
	switch s.Phase {
	case v1alpha1.ReservationAvailable:
		require.Len(t, s.Slots, len(rsv.Spec.Slots), about)
		for i := range s.Slots {
			slot := &s.Slots[i]
			shared := rsv.Spec.AllocatePolicy != v1alpha1.AllocateOnce && !l.lapsed(rsv, slot.Name)
			if slot.State == v1alpha1.SlotReserved || (shared && slot.State == v1alpha1.SlotConsumed) {
				want = append(want, slot.Name+"@"+slot.NodeName)
			}
		}
		require.NotEmpty(t, want, about)
	case v1alpha1.ReservationPending:
		l.checkPending(rsv, about)
	default:
		l.ended[rsv.UID] = s.Phase
	}
	got := l.held(rsv.Name)
	require.ElementsMatch(t, want, got, about)
	for _, h := range l.ledger.ReservationSlots(rsv.Namespace, rsv.Name) {
		l.checkSlot(rsv, &h, about)
	}
	return len(got)
}

// lapsed reports whether a slot has ended by its deadline, while another one keeps the object
// Available because a bind is in flight that uses it.
func (l *lives) lapsed(rsv *v1alpha1.Reservation, slot string) bool {
	if rsv.Status.ExpiresAt == nil || rsv.Status.ExpiresAt.After(time.Now()) {
		return false
	}
	return !slices.ContainsFunc(l.ledger.ReservationSlots(rsv.Namespace, rsv.Name), func(h ledger.SlotView) bool {
		return h.Ref.Slot == slot && h.Overdue
	})
}

func (l *lives) checkSlot(rsv *v1alpha1.Reservation, h *ledger.SlotView, about string) {
	t, s := l.t, &rsv.Status
	if s.ExpiresAt == nil {
		require.Zero(t, h.Deadline, about)
	} else {
		require.True(t, s.ExpiresAt.Time.Equal(h.Deadline), "%s: %s in the object, %s in the ledger", about, s.ExpiresAt,
			h.Deadline)
	}
	i := slices.IndexFunc(s.Slots, func(slot v1alpha1.SlotStatus) bool { return slot.Name == h.Ref.Slot })
	node, ok := l.c.Nodes.Node(h.Node)
	require.True(t, ok, "%s: held on a node that is gone", about)
	require.Equal(t, node.UID, s.Slots[i].NodeUID, about)
	var pods []v1alpha1.PodReference
	for _, c := range h.Consumers {
		if c.State == ledger.Bound {
			pods = append(pods, convert.PodOf(c.Pod))
		}
	}
	require.Equal(t, pods, s.Slots[i].Pods, about)
}

// checkPending makes sure that a reservation does not wait for nothing.
func (l *lives) checkPending(rsv *v1alpha1.Reservation, about string) {
	kept, err := convert.Slots(l.ledger.Table(), rsv)
	require.NoError(l.t, err, about)
	for i := range kept {
		if kept[i].Node == "" {
			return
		}
	}
	var result ledger.Result
	l.ledger.Try(func(t *ledger.Trial) { result = t.Reserve(ledger.Plan{Slots: kept}) })
	for i, ref := range result.Existing {
		if ref != kept[i].Ref {
			return // a pod of it has its capacity elsewhere
		}
	}
	require.NotEmpty(l.t, result.Rejections, about)
}
