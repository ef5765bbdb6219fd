package ledger

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/devices"
)

// DeviceClaimRef names a device claim: an ExtendedResourceClaim.
type DeviceClaimRef struct {
	Namespace string
	Name      string
	// UID is empty where the claim's object was not found. A claim of the same name and another UID is another claim.
	UID types.UID
}

// String returns namespace/name.
func (r DeviceClaimRef) String() string { return r.Namespace + "/" + r.Name }

func (r DeviceClaimRef) key() nameKey { return nameKey{r.Namespace, r.Name} }

// DeviceRequest is which devices a pod, or a slot, asks for. A pod without claims has
// none (nil). It must not be changed once the ledger has it.
type DeviceRequest struct {
	// Claims are the pod's device claims in the order in which its annotation names them. A slot has one for each
	// request, or none at all. Where a request is for no claim in particular, its entry has no name.
	Claims []DeviceClaimRef
	// Requests are what the claims ask for, one for each; nil where Err is set.
	Requests []*devices.Request
	// Err says why the claims cannot be used: one does not exist, say. Such a pod is
	// refused everywhere, always for the same reason; the text is for people.
	Err string
	// Asked is what the pod's annotation extended-resource-claims says, as it was when the
	// pod was first seen bound; empty where that is not known. It is only kept here.
	Asked string
	// Given is, of a pod that is bound, the devices it was bound with, as its annotation extended-resources has them;
	// of a slot that is observed, those it was granted with, in the same form, or empty where that is not known.
	Given string
	// Recorded is, of a pod that is bound, which devices those of Given are, by better evidence than what its claims ask
	// for now; nil where there is none. First come those of Claims, one for each, then those of none.
	Recorded []GivenDevices
}

// GivenDevices are the devices that one claim was given.
type GivenDevices struct {
	// Claim has no name where a slot keeps devices for no claim in particular.
	Claim DeviceClaimRef
	// Resource is empty where the claim is not known any more: any device of the node
	// with one of the IDs is meant then.
	Resource string
	IDs      []string
}

// DeviceView is one device of a node as readers see it.
type DeviceView struct {
	devices.Device

	Pods []PodRef // those that have it: one at most, unless somebody bound around the ledger
	Slot SlotRef  // what keeps it, or empty
	Free bool     // it can be given out
}

// Same reports whether two requests ask for the same devices by the same claims.
func (r *DeviceRequest) Same(o *DeviceRequest) bool {
	return r.same(o, func(a, b DeviceClaimRef) bool { return a == b })
}

// matches is Same for slots: their objects hold the names of claims, not UIDs. A
// claim of which no UID is known is the same as one of its name.
func (r *DeviceRequest) matches(o *DeviceRequest) bool {
	return r.same(o, func(a, b DeviceClaimRef) bool {
		return a.key() == b.key() && (a.UID == b.UID || a.UID == "" || b.UID == "")
	})
}

func (r *DeviceRequest) same(o *DeviceRequest, sameClaim func(a, b DeviceClaimRef) bool) bool {
	if r == o {
		return true
	}
	if r == nil || o == nil || r.Err != o.Err || !slices.EqualFunc(r.Claims, o.Claims, sameClaim) {
		return false
	}
	return slices.EqualFunc(r.Requests, o.Requests, func(a, b *devices.Request) bool {
		return a == b || a.String() == b.String()
	})
}
