package account

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"
	"unique"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Device is the key of a device in a cluster.
type Device struct{ Driver, Pool, Name string }

func (d Device) String() string { return d.Driver + "/" + d.Pool + "/" + d.Name }

func (d Device) compare(other Device) int {
	return cmp.Or(cmp.Compare(d.Driver, other.Driver), cmp.Compare(d.Pool, other.Pool), cmp.Compare(d.Name, other.Name))
}

// Owner is a ResourceClaim that has devices.
type Owner struct {
	Namespace, Name string
	UID             types.UID
}

func (o Owner) String() string { return o.Namespace + "/" + o.Name }

func (o Owner) compare(other Owner) int {
	return cmp.Or(cmp.Compare(o.Namespace, other.Namespace), cmp.Compare(o.Name, other.Name),
		cmp.Compare(o.UID, other.UID))
}

// Account records which claim has which device. It is safe for concurrent use.
type Account struct {
	mu sync.RWMutex // guards everything below

	pools  map[poolKey]*pool
	slices map[string]*pool // by the name of the ResourceSlice
	claims map[types.UID]*claim
	stale  bool // some pools may be

	scratch []holding // of the call that holds mu
}

// New makes an empty account.
func New() *Account {
	return &Account{
		pools:  map[poolKey]*pool{},
		slices: map[string]*pool{},
		claims: map[types.UID]*claim{},
	}
}

// Version returns a resourceVersion as a number, 0 where it is none.
func Version(resourceVersion string) int64 {
	version, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil || version < 0 {
		return 0
	}
	return version
}

// claim is what is known of one ResourceClaim. Of the allocations that it may have, one is true at most.
type claim struct {
	namespace unique.Handle[string]
	name      string
	uid       types.UID

	version   int64     // of the last state that was observed; 0 where there was none
	allocated []holding // by that state
	grants    []grant   // by base, the oldest first
}

// grant is an allocation that was allowed, and not seen yet.
type grant struct {
	holdings []holding
	base     int64 // the resourceVersion that the write is made on
	at       time.Time
}

// holding is what one allocation has of one device.
type holding struct {
	device   *device
	whole    bool
	shares   int
	consumed amounts // by the shares
}

func (c *claim) owner() Owner {
	return Owner{Namespace: c.namespace.Value(), Name: c.name, UID: c.uid}
}

func newClaim(of *resourcev1.ResourceClaim) *claim {
	return &claim{namespace: unique.Make(of.Namespace), name: of.Name, uid: of.UID}
}

// allocations yields all that the claim may have.
func (c *claim) allocations(yield func([]holding) bool) {
	if !yield(c.allocated) {
		return
	}
	for i := range c.grants {
		if !yield(c.grants[i].holdings) {
			return
		}
	}
}

func equal(a, b []holding) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(h holding) bool { return !h.equal(b) })
}

// equal says whether others have the same of the device. Holdings of one allocation are of different devices.
func (h *holding) equal(others []holding) bool {
	return slices.ContainsFunc(others, func(o holding) bool {
		return o.device == h.device && o.whole == h.whole && o.shares == h.shares && o.consumed.equal(h.consumed)
	})
}
