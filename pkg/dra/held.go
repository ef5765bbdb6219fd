package dra

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/dra/account"
)

// known is a claim, and since when it has devices, or was seen to have some.
type known struct {
	*resourcev1.ResourceClaim

	since time.Time
}

// Held is a claim that has devices and is reserved for a pod.
type Held struct {
	Namespace, Name string
	Devices         []account.Device
	For             time.Duration // or longer, where it had them before this server looked
}

// HeldFor returns the claims of a pod's namespace that have devices and are reserved for the pod, by name. What the
// claims of other namespaces say of it does not count: others write it.
func (c *Controller) HeldFor(namespace string, pod types.UID) []Held {
	var all []Held
	now := time.Now()
	c.mu.Lock()
	for _, k := range c.claims {
		if k.Namespace != namespace || k.Status.Allocation == nil ||
			!slices.ContainsFunc(k.Status.ReservedFor,
				func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == pod }) {
			continue
		}
		held := Held{Namespace: k.Namespace, Name: k.Name, For: now.Sub(k.since)}
		for _, r := range k.Status.Allocation.Devices.Results {
			held.Devices = append(held.Devices, account.Device{Driver: r.Driver, Pool: r.Pool, Name: r.Device})
		}
		all = append(all, held)
	}
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b Held) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// OnNode returns the devices whose ResourceSlice names a node, by driver, pool and name. There are none while it is not
// known who has them.
func (c *Controller) OnNode(node string) []account.DeviceState {
	if !c.watch.Listed() {
		return nil
	}
	return c.account.OnNode(node)
}

// PodsOf names the pods that a claim is reserved for. They are of its namespace.
func (c *Controller) PodsOf(claim types.UID) (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.claims[claim]; ok {
		for _, r := range k.Status.ReservedFor {
			if isPod(&r) {
				names = append(names, r.Name)
			}
		}
	}
	return names
}

func isPod(r *resourcev1.ResourceClaimConsumerReference) bool {
	return r.APIGroup == "" && r.Resource == string(v1.ResourcePods)
}

// late is how long a claim may have devices before a pod that it is reserved for is bound: the scheduler binds the pod
// next.
const late = 10 * time.Second

// Unbound counts the claims that have had devices for a while and are reserved for pods none of which has a node.
func (c *Controller) Unbound(waits func(namespace, name string, uid types.UID) bool) (n int) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.claims {
		if k.Status.Allocation == nil || len(k.Status.ReservedFor) == 0 || now.Sub(k.since) < late {
			continue
		}
		used := slices.ContainsFunc(k.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool {
			return !isPod(&r) || !waits(k.Namespace, r.Name, r.UID)
		})
		if !used {
			n++
		}
	}
	return n
}
