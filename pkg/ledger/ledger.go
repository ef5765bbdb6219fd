package ledger

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Options configures a Ledger. The zero value is usable.
type Options struct {
	// FirstRevision is where the revision counter starts. A server that starts it higher than any before (say, from the
	// wall clock) keeps revisions comparable across restarts.
	FirstRevision uint64
	// IgnoredResources are never counted, see resources.NewTable.
	IgnoredResources []v1.ResourceName
	// JournalSize is how many changes are kept for EventsSince; 0 means 32768.
	JournalSize int
	// TombstoneCount is how many UIDs of gone pods are remembered at least; 0 means 16384.
	TombstoneCount int
}

const (
	defaultJournalSize    = 1 << 15
	defaultTombstoneCount = 1 << 14
)

// Reader is the part of a ledger that decides nothing and observes nothing:
// questions, views and the journal. It is a small value; copy it.
type Reader struct{ *account }

// Observer is a Reader that also records facts in the ledger: what the API server
// says of nodes, pods and objects, and that time has passed.
type Observer struct{ Reader }

// observer is the Observer that a Ledger embeds, unexported so that other packages cannot make a Ledger of their own.
type observer = Observer

// Ledger is an Observer that also decides. Make one with New; hand out its Reader and its Observer.
type Ledger struct{ observer }

// Observer returns the part of the ledger that decides nothing.
func (l *Ledger) Observer() Observer { return l.observer }

// account is the state of a ledger.
type account struct {
	table *resources.Table

	// mu guards everything below. Exported methods lock; unexported ones assume the lock is held.
	mu sync.RWMutex

	revision uint64
	journal  journal

	nodeIndex map[string]int32 // name -> index into nodes, names, flags and rows of free
	nodes     []*node          // nil where an index is unused
	names     []string         // of nodes: a question about all of them need not touch each
	freeIndex []int32          // unused indexes
	flags     []uint8          // per node: nodeKnown, nodeCordoned
	// free holds allocatable-used for every node and column in rows of stride
	// numbers, so that checking a pod against all nodes walks memory in order.
	free []int64
	// used holds what is used, in rows as free.
	used   []int64
	stride int

	byUID map[types.UID]*entry // allocations
	// named has what goes by a pod's name, linked by sameName: slots for that pod alone, and allocations made for the
	// name or from a slot in memory, whose callers may know no more of the pod.
	named        map[nameKey]*entry
	slots        map[SlotRef]*entry // of reservations
	reservations map[nameKey][]*entry
	// deviceOwners are the owners of each claim of devices, by its name.
	deviceOwners map[nameKey][]deviceOwner
	pool         *entry // of those that ended, linked by sameName
	deadlines    deadlines
	gone         tombstones
	nominations  nominations
	before       map[int32][]int64 // what was free when an exchange began, where something is kept for nominated pods

	budgets [numBudgets]budgets

	stateCount    [numStates]int
	memoryCount   int // of slots in memory
	memoryExpired uint64
}

// New returns an empty ledger.
func New(o Options) *Ledger {
	if o.JournalSize <= 0 {
		o.JournalSize = defaultJournalSize
	}
	if o.TombstoneCount <= 0 {
		o.TombstoneCount = defaultTombstoneCount
	}
	return &Ledger{Observer{Reader{&account{
		table:     resources.NewTable(o.IgnoredResources...),
		revision:  o.FirstRevision,
		journal:   journal{ring: make([]Event, o.JournalSize), first: o.FirstRevision},
		nodeIndex: map[string]int32{},
		stride:    8,

		byUID:        map[types.UID]*entry{},
		named:        map[nameKey]*entry{},
		slots:        map[SlotRef]*entry{},
		reservations: map[nameKey][]*entry{},
		deviceOwners: map[nameKey][]deviceOwner{},

		budgets: [numBudgets]budgets{{byName: map[string]*budget{}}, {byName: map[string]*budget{}}},

		gone: newTombstones(o.TombstoneCount),
	}}}}
}

// Table returns the columns of the ledger's resources. Requests given to the ledger must be made with it.
func (l Reader) Table() *resources.Table { return l.table }

// Revision returns the counter that every change raises.
func (l Reader) Revision() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.revision
}
