package placement

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Matcher finds reservations for pods. The zero value is ready for use. It is safe for concurrent use, and asking it
// costs next to nothing while no reservation has consumers.
type Matcher struct {
	count atomic.Int64 // of entries

	mu         sync.RWMutex // guards what follows
	namespaces map[string]*namespace
}

// namespace is what is known of the reservations of one namespace. Each list is in the order of preference.
type namespace struct {
	byName map[string]*entry
	byWay  map[way][]*entry
}

// way is what a reservation and its pods both name: byIndex, byController or byGang, with a kind and a name. A gang
// without a kind is of any. The zero value is of the reservations with a selector.
type way struct{ by, kind, name string }

const byIndex, byController, byGang = "index", "controller", "gang"

// entry is one reservation that pods may match. It is not changed once made.
type entry struct {
	name     string
	uid      types.UID
	created  metav1.Time
	way      way
	selector labels.Selector
	slots    []ledger.SlotRef // in the order of the slots
	godel    bool
}

// Set records a reservation, or its change. One that has ended, or that no pod can match, is removed. The error says
// why the consumers cannot be understood; no pod matches the reservation then.
func (m *Matcher) Set(rsv *v1alpha1.Reservation) error {
	e, err := newEntry(rsv)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(rsv.Namespace, rsv.Name)
	if e != nil {
		m.add(rsv.Namespace, e)
	}
	return err
}

// Remove forgets a reservation.
func (m *Matcher) Remove(namespace, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(namespace, name)
}

// Candidates returns the slots the pod may use, the preferred ones first: what names the pod's index, its gang or its
// controller comes before what a selector selects, and older reservations before younger ones. The result is shared and
// must not be changed; nil means none.
func (m *Matcher) Candidates(pod *cluster.Pod) []ledger.SlotRef {
	if m.count.Load() == 0 {
		return nil
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	ns := m.namespaces[pod.Ref.Namespace]
	if ns == nil {
		return nil
	}
	var found []*entry
	if index := pod.Index(); index != "" {
		found = append(found, ns.byWay[way{byIndex, "", index}]...)
	}
	if pod.Gang != nil {
		found = append(found, ns.byWay[way{byGang, pod.Gang.Kind, pod.Gang.Name}]...)
		found = append(found, ns.byWay[way{byGang, "", pod.Gang.Name}]...)
	}
	if c := pod.Controller; c != (cluster.Controller{}) {
		found = append(found, ns.byWay[way{byController, c.Kind, c.Name}]...)
	}
	for _, e := range ns.byWay[way{}] {
		if e.selector.Matches(labels.Set(pod.Labels)) {
			found = append(found, e)
		}
	}
	if len(found) == 1 {
		return slices.Clip(found[0].slots)
	}
	var slots []ledger.SlotRef
	for _, e := range found {
		slots = append(slots, e.slots...)
	}
	return slots
}

// Origin returns which object a reservation that pods may match is, and whether it was asked for in the words of the
// Gödel scheduler, whose users expect its annotation on the consumers.
func (m *Matcher) Origin(namespace, name string) cluster.Origin {
	if m.count.Load() == 0 {
		return cluster.Origin{}
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	ns := m.namespaces[namespace]
	if ns == nil || ns.byName[name] == nil {
		return cluster.Origin{}
	}
	e := ns.byName[name]
	return cluster.Origin{UID: e.uid, Godel: e.godel}
}

// newEntry returns nil for a reservation that no pod can match.
func newEntry(rsv *v1alpha1.Reservation) (*entry, error) {
	consumers := rsv.Spec.Consumers
	if consumers == nil || rsv.Status.Phase.IsFinal() || rsv.DeletionTimestamp != nil {
		return nil, nil
	}
	e := &entry{name: rsv.Name, uid: rsv.UID, created: rsv.CreationTimestamp, slots: openSlots(rsv)}
	if marks := cluster.ReadAnnotations(rsv.Namespace, rsv.Annotations); marks != nil {
		e.godel = marks.Godel
	}
	switch c := consumers; { // the API server takes one way alone
	case c.Index != "":
		e.way = way{byIndex, "", c.Index}
	case c.Selector != nil:
		var err error
		if e.selector, err = metav1.LabelSelectorAsSelector(c.Selector); err != nil {
			return nil, fmt.Errorf("spec.consumers.selector of reservation %s/%s: %w", rsv.Namespace, rsv.Name, err)
		}
	case c.Gang != nil:
		e.way = way{byGang, c.Gang.Kind, c.Gang.Name}
	case c.Controller != nil:
		e.way = way{byController, c.Controller.Kind, c.Controller.Name}
	default:
		return nil, nil
	}
	if len(e.slots) == 0 {
		return nil, nil
	}
	return e, nil
}

// openSlots returns the slots that more pods may use, as far as the object says.
func openSlots(rsv *v1alpha1.Reservation) []ledger.SlotRef {
	closed := map[string]bool{}
	once := rsv.Spec.AllocatePolicy == v1alpha1.AllocateOnce || rsv.Spec.AllocatePolicy == ""
	for i := range rsv.Status.Slots {
		s := &rsv.Status.Slots[i]
		if s.State == v1alpha1.SlotReleased || (s.State == v1alpha1.SlotConsumed && once) {
			closed[s.Name] = true
		}
	}
	slots := make([]ledger.SlotRef, 0, len(rsv.Spec.Slots))
	for i := range rsv.Spec.Slots {
		s := &rsv.Spec.Slots[i]
		if s.Pod == nil && !closed[s.Name] {
			slots = append(slots, ledger.SlotRef{Namespace: rsv.Namespace, Name: rsv.Name, Slot: s.Name})
		}
	}
	return slots
}

func (m *Matcher) add(namespaceName string, e *entry) {
	ns := m.namespaces[namespaceName]
	if ns == nil {
		ns = &namespace{byName: map[string]*entry{}, byWay: map[way][]*entry{}}
		if m.namespaces == nil {
			m.namespaces = map[string]*namespace{}
		}
		m.namespaces[namespaceName] = ns
	}
	ns.byName[e.name] = e
	ns.byWay[e.way] = insert(ns.byWay[e.way], e)
	m.count.Add(1)
}

func (m *Matcher) remove(namespaceName, name string) {
	ns := m.namespaces[namespaceName]
	if ns == nil || ns.byName[name] == nil {
		return
	}
	e := ns.byName[name]
	delete(ns.byName, name)
	rest := ns.byWay[e.way]
	at := slices.Index(rest, e)
	if rest = slices.Delete(rest, at, at+1); len(rest) > 0 {
		ns.byWay[e.way] = rest
	} else {
		delete(ns.byWay, e.way)
	}
	if len(ns.byName) == 0 {
		delete(m.namespaces, namespaceName)
	}
	m.count.Add(-1)
}

// insert puts an entry in its place in a list: by age, then by name.
func insert(list []*entry, e *entry) []*entry {
	at, _ := slices.BinarySearchFunc(list, e, func(a, b *entry) int {
		return cmp.Or(a.created.Compare(b.created.Time), cmp.Compare(a.name, b.name))
	})
	return slices.Insert(list, at, e)
}
