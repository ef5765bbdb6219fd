package account

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Reason is why a device is not given, or what is wrong with a device.
type Reason string

// The reasons. Each has a message of its own.
const (
	// DeviceInUse: another claim has the device.
	DeviceInUse Reason = "DeviceInUse"
	// Doubled: more claims have the device than may. It is given to no claim until the last of them has lost it.
	Doubled Reason = "Doubled"
	// SharedCapacityExceeded: the shares of the device would be more than the device.
	SharedCapacityExceeded Reason = "SharedCapacityExceeded"
	// CountersExceeded: the devices that share the counter would use more of it than there is.
	CountersExceeded Reason = "CountersExceeded"
	// NotShareable: a share of a device is asked for that does not allow multiple allocations.
	NotShareable Reason = "NotShareable"
	// NotKnown: what the device has, or takes, can only be said from a slice that is not there, or not seen yet.
	NotKnown Reason = "NotKnown"
	// PoolIncomplete: some slices of a pool with shared counters are not there, or contradict each other, or somebody
	// has a device of it that is in none of them.
	PoolIncomplete Reason = "PoolIncomplete"
	// Outdated: the claim has changed since the state that the write is made on.
	Outdated Reason = "Outdated"
	// Malformed: the claim takes a device whole and something else of it too, or a negative amount.
	Malformed Reason = "Malformed"
	// TooLarge: the claim is larger than MaxClaimSize.
	TooLarge Reason = "TooLarge"
)

// Refusal says why devices are not given to a claim.
type Refusal struct {
	Device Device // the first that cannot be given
	Reason Reason
	Owners []Owner // the claims that have it, or the claim itself where that is what is wrong

	// Of SharedCapacityExceeded and CountersExceeded.
	Resource           string // the name of the capacity, or set/counter
	Used, Asked, Limit resource.Quantity
}

// In returns the refusal as a namespace may see it: schedulers copy it into the conditions of pods there. Claims of
// others are not named.
func (r *Refusal) In(namespace string) *Refusal {
	told := *r
	told.Owners = NamedIn(namespace, r.Owners)
	return &told
}

// NamedIn returns the owners, with only those named that are of a namespace.
func NamedIn(namespace string, owners []Owner) []Owner {
	owners = slices.Clone(owners)
	for i := range owners {
		if owners[i].Namespace != namespace {
			owners[i] = Owner{}
		}
	}
	return owners
}

// Message is for the user whose claim it is, and for the one who looks why pods wait.
func (r *Refusal) Message() string {
	switch r.Reason {
	case DeviceInUse:
		return fmt.Sprintf("device %s is allocated to ResourceClaim %s", r.Device, list(r.Owners))
	case Doubled:
		return fmt.Sprintf("device %s is allocated to more ResourceClaims than it may be, and is not given to another "+
			"until all of them are gone: %s",
			r.Device, list(r.Owners))
	case SharedCapacityExceeded:
		return fmt.Sprintf("device %s has %s of %s, of which %s are used; %s more were asked for. It is shared by "+
			"ResourceClaim %s",
			r.Device, r.Limit.String(), r.Resource, r.Used.String(), r.Asked.String(), list(r.Owners))
	case CountersExceeded:
		return fmt.Sprintf("device %s takes %s of counter %s, which has %s, of which %s are used by the devices of "+
			"ResourceClaim %s",
			r.Device, r.Asked.String(), r.Resource, r.Limit.String(), r.Used.String(), list(r.Owners))
	case NotShareable:
		return fmt.Sprintf(
			"device %s does not allow multiple allocations by its ResourceSlice; allocate it without a shareID", r.Device,
		)
	case NotKnown:
		return fmt.Sprintf("device %s, or the capacity that is asked for, is in no ResourceSlice that counts now; ask "+
			"again when the driver has published it", r.Device)
	case PoolIncomplete:
		if len(r.Owners) > 0 {
			return fmt.Sprintf("device %s takes shared counters of pool %s of driver %s, and nobody knows how much of them "+
				"the devices take that ResourceClaim %s has: no ResourceSlice names these any more; ask again when the pods "+
				"of the claim are gone, or the driver has published its devices again",
				r.Device, r.Device.Pool, r.Device.Driver, list(r.Owners))
		}
		return fmt.Sprintf("device %s takes shared counters, and not all ResourceSlices of pool %s of driver %s are "+
			"there; ask again when the driver has published them",
			r.Device, r.Device.Pool, r.Device.Driver)
	case Outdated:
		return fmt.Sprintf("ResourceClaim %s has changed since; ask again for its newest resourceVersion", list(r.Owners))
	case Malformed:
		return fmt.Sprintf("ResourceClaim %s takes device %s twice, or a negative amount of it", list(r.Owners), r.Device)
	case TooLarge:
		return fmt.Sprintf("ResourceClaim %s has more than %d bytes in JSON, by its labels, annotations, managedFields, "+
			"selectors or parameters; make it smaller", list(r.Owners), MaxClaimSize)
	}
	return string(r.Reason)
}

// shown is how many owners a message names.
const shown = 3

func list(owners []Owner) string {
	if len(owners) == 0 {
		return "(none)"
	}
	var b strings.Builder
	for i, o := range owners[:min(shown, len(owners))] {
		if i > 0 {
			b.WriteString(", ")
		}
		if o == (Owner{}) {
			b.WriteString("(of another namespace)")
		} else {
			b.WriteString(o.String())
		}
	}
	if more := len(owners) - shown; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

func (d *device) refuse(why Reason) *Refusal {
	return &Refusal{Device: d.key(), Reason: why, Owners: d.ownerList(false)}
}

// inUse refuses a device that others have.
func (d *device) inUse() *Refusal {
	if d.doubled() {
		return d.refuse(Doubled)
	}
	return d.refuse(DeviceInUse)
}

func (d *device) exceeded(why Reason, name string, owners []Owner, used, asked, limit resource.Quantity) *Refusal {
	return &Refusal{
		Device: d.key(), Reason: why, Owners: owners,
		Resource: name, Used: used.DeepCopy(), Asked: asked.DeepCopy(), Limit: limit.DeepCopy(),
	}
}

// ownerList returns the owners of a device by name, or only those to whom it is allocated.
func (d *device) ownerList(allocated bool) []Owner {
	owners := make([]Owner, 0, len(d.owners))
	for i := range d.owners {
		if o := &d.owners[i]; !allocated || o.allocation(d) != nil {
			owners = append(owners, o.claim.owner())
		}
	}
	slices.SortFunc(owners, Owner.compare)
	return owners
}

// ownersOf returns the owners of devices that charge a counter, or only those to whom they are allocated. With nil it
// returns those of devices that are in no slice that counts.
func (p *pool) ownersOf(c *counter, allocated bool) []Owner {
	var owners []Owner
	for _, d := range p.devices {
		if slices.ContainsFunc(d.charges, func(l charge) bool { return l.counter == c }) || c == nil && d.published == nil {
			owners = append(owners, d.ownerList(allocated)...)
		}
	}
	slices.SortFunc(owners, Owner.compare)
	return slices.Compact(owners)
}
