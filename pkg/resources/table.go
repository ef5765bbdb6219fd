package resources

import (
	"maps"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
)

// Column is the number a Table gave to a resource name.
type Column uint16

// The columns every Table starts with.
const (
	CPU              Column = iota // milli-CPU
	Memory                         // bytes
	EphemeralStorage               // bytes
	Pods                           // a count; every pod asks for one
)

// maxColumns bounds a Table: every node has a number for each column. Columns come from what nodes offer, so a cluster
// would need this many distinct resource names to reach it.
const maxColumns = 1024

// maxUseColumns bounds the columns of resources that only pods name. A user who may create a pod can set its node and
// invent resources; kubelets refuse such pods, but the pods exist.
const maxUseColumns = 128

// Table maps resource names to columns. A name keeps its column for the life of
// the Table. It is safe for concurrent use; lookups take no lock.
type Table struct {
	mu      sync.Mutex // serializes new columns; guards used
	used    int        // columns given to resources that only pods named
	ignored map[v1.ResourceName]bool
	current atomic.Pointer[columns]
}

// columns is never changed once published: a new column makes a copy.
type columns struct {
	names  []v1.ResourceName
	byName map[v1.ResourceName]Column
}

// NewTable returns a Table that knows cpu, memory, ephemeral-storage and pods. The resources named are never counted,
// even where offered or asked for, like the ignoredResources of NodeResourcesFit.
func NewTable(ignored ...v1.ResourceName) *Table {
	names := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods}
	c := &columns{names: names, byName: make(map[v1.ResourceName]Column, len(names))}
	for i, name := range names {
		c.byName[name] = Column(i)
	}
	t := &Table{ignored: make(map[v1.ResourceName]bool, len(ignored))}
	for _, name := range ignored {
		t.ignored[name] = true
	}
	t.current.Store(c)
	return t
}

// counts reports whether a resource of this name is counted at all.
func (t *Table) counts(name v1.ResourceName) bool {
	_, listed := t.Lookup(name)
	return listed || (!t.ignored[name] && isCounted(name))
}

// Lookup returns the column of name, and false for a name that has none.
func (t *Table) Lookup(name v1.ResourceName) (Column, bool) {
	c, ok := t.current.Load().byName[name]
	return c, ok
}

// Offer returns the column of a resource that nodes offer, and gives it one if it has none yet. It returns false where
// resources of the name are not counted, or the table is full.
//
// Decisions use Lookup, so that requests of clients cannot make the table grow.
func (t *Table) Offer(name v1.ResourceName) (Column, bool) { return t.intern(name, false) }

// Use is Offer for what bound pods use. It also returns false where pods have
// named too many resources that no node has ever offered: a pod's use of those counts for nothing, as no node could be
// short of them.
func (t *Table) Use(name v1.ResourceName) (Column, bool) { return t.intern(name, true) }

func (t *Table) intern(name v1.ResourceName, use bool) (Column, bool) {
	if c, ok := t.Lookup(name); ok || !t.counts(name) {
		return c, ok
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.current.Load()
	if c, ok := old.byName[name]; ok {
		return c, true
	}
	if len(old.names) >= maxColumns || (use && t.used >= maxUseColumns) {
		return 0, false
	}
	if use {
		t.used++
	}
	next := &columns{
		names:  append(old.names[:len(old.names):len(old.names)], name),
		byName: maps.Clone(old.byName),
	}
	col := Column(len(old.names)) //nolint:gosec // below maxColumns
	next.byName[name] = col
	t.current.Store(next)
	return col, true
}

// Name returns the resource name of a column the table gave out.
func (t *Table) Name(c Column) v1.ResourceName {
	return t.current.Load().names[c]
}

// Len returns how many columns the table has given out.
func (t *Table) Len() int {
	return len(t.current.Load().names)
}
