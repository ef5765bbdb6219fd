package deviceclaims

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/lru"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// A pod is told the same at most once in repeatAfter. Beyond the burst of all pods Events are left out, as
// explain says the same.
const (
	repeatAfter         = 5 * time.Minute
	maxPods             = 4096
	complaintsPerSecond = 5
	complaintBurst      = 50
)

// complaints remembers what pods were told last.
type complaints struct {
	limiter *rate.Limiter
	last    *lru.Cache // by UID of the pod
}

type complaint struct {
	note  string
	until time.Time
}

func newComplaints() *complaints {
	return &complaints{rate.NewLimiter(complaintsPerSecond, complaintBurst), lru.New(maxPods)}
}

// allow reports whether a pod is to be told something now.
func (t *complaints) allow(pod *podinfo.Info, note string, now time.Time) bool {
	if last, ok := t.last.Get(pod.Ref.UID); ok && last.(complaint).note == note && now.Before(last.(complaint).until) {
		return false
	}
	if !t.limiter.AllowN(now, 1) {
		return false
	}
	t.last.Add(pod.Ref.UID, complaint{note, now.Add(repeatAfter)})
	return true
}

// Refused is told of a pod that was refused all nodes offered. Where its claims are the reason, and neither time
// nor another node will help by itself, an Event on the pod says so.
func (c *Controller) Refused(pod *podinfo.Info) {
	if pod.Devices == nil || pod.Ref.UID == "" || c.Recorder == nil {
		return
	}
	reason, note := c.complaint(pod)
	if reason == ledger.Fits || !c.told.allow(pod, note, time.Now()) {
		return
	}
	on := &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Ref.Namespace, Name: pod.Ref.Name, UID: pod.Ref.UID}
	c.Recorder.Eventf(on, nil, v1.EventTypeWarning, reason.String(), "Filter", "%s", clip(note, maxNote))
}

// complaint says what is wrong with the claims of a pod; Fits where nothing is.
func (c *Controller) complaint(pod *podinfo.Info) (ledger.Reason, string) {
	request := c.Devices(pod)
	if request.Err != "" {
		return ledger.DeviceClaimUnusable, request.Err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, ref := range request.Claims {
		for _, u := range c.uses.byClaim[claimKey(ref)] {
			if u.pod.UID != pod.Ref.UID && u.claim.UID == ref.UID {
				return ledger.DeviceClaimInUse, fmt.Sprintf("ExtendedResourceClaim %s is in use by pod %s: a claim serves one pod at a time",
					ref.Name, u.pod.Name)
			}
		}
	}
	return c.neverFits(request)
}

// neverFits says which claim no node could meet, whoever had the devices. c.mu is held.
func (c *Controller) neverFits(request *ledger.DeviceRequest) (ledger.Reason, string) {
	if c.couldFit(request.Requests) {
		return ledger.Fits, ""
	}
	for i, one := range request.Requests {
		if !c.couldFit([]*devices.Request{one}) {
			return ledger.InsufficientDevices, fmt.Sprintf("ExtendedResourceClaim %s asks for %s: no node has these devices, in use or not",
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
