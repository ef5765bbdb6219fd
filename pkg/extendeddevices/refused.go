package extendeddevices

import (
	"fmt"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Trouble says why the devices of a pod's claims cannot be given to it, where neither time nor another node helps by
// itself; Fits where that is not so.
func (c *Controller) Trouble(pod *cluster.Pod) (reason ledger.Reason, note string) {
	if !pod.Devices.Asks() || c.soon(pod) {
		return ledger.Fits, ""
	}
	request := c.Devices(pod)
	if request.Err != "" {
		return ledger.DeviceClaimUnusable, request.Err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, ref := range request.Claims {
		for _, user := range c.Ledger.DeviceUsers(ref.Namespace, ref.Name) {
			its := slices.ContainsFunc(user.Given, func(g ledger.GivenDevices) bool { return g.Claim == ref })
			if its && user.Pod.UID != pod.Ref.UID {
				return ledger.DeviceClaimInUse,
					fmt.Sprintf("ExtendedResourceClaim %s is in use by pod %s: a claim serves one pod at a time",
						ref.Name, user.Pod.Name)
			}
		}
	}
	return c.neverFits(request)
}

// neverFits says which claim no node could meet, even if all devices were free. c.mu is held.
func (c *Controller) neverFits(request *ledger.DeviceRequest) (ledger.Reason, string) {
	if c.couldFit(request.Requests) {
		return ledger.Fits, ""
	}
	for i, one := range request.Requests {
		if !c.couldFit([]*devices.Request{one}) {
			return ledger.InsufficientDevices,
				fmt.Sprintf("ExtendedResourceClaim %s asks for %s: no node has these devices, in use or not",
					request.Claims[i].Name, one)
		}
	}
	return ledger.InsufficientDevices, "no node has the devices of all claims of the pod together, in use or not"
}

// couldFit reports whether some node has the devices, in use or not. c.mu is held.
func (c *Controller) couldFit(requests []*devices.Request) bool {
	for _, n := range c.devices.byNode {
		if n.pool != nil && n.pool.Fits(n.pool.Schedulable(), requests).Reason == devices.Fits {
			return true
		}
	}
	return false
}
