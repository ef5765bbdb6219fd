// Package blame tells pods that wait which reservation keeps the room they lack,
// by an Event. Filter's own reasons are constant texts and name nobody, because
// schedulers copy them into the pods' conditions.
//
// What may be touched: how often Events are written is decided here, and nowhere
// else. Which hold is to blame is the ledger's to say.
package blame

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/lru"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// Each Event is a write to the API server. A pod is told at most once in
// repeatAfter, and looked at once in lookAfter; beyond the burst of all pods
// Events are left out, as explain says the same.
const (
	repeatAfter     = 5 * time.Minute
	lookAfter       = 10 * time.Second
	maxPods         = 4096
	eventsPerSecond = 5
	eventBurst      = 50
)

// Reason is that of the Events.
const Reason = "RoomReserved"

// Candidates says which holds a pod may use.
type Candidates func(pod *podinfo.Info) []ledger.HoldRef

// Devices says what the claims of devices that a pod names ask for: nil for a pod that
// names none.
type Devices func(pod *podinfo.Info) *ledger.DeviceRequest

// Blame writes the Events. Make one with New. It is safe for concurrent use.
type Blame struct {
	ledger     *ledger.Ledger
	candidates Candidates
	devices    Devices
	recorder   events.EventRecorder
	limiter    *rate.Limiter
	next       *lru.Cache // by UID: when a pod is looked at again
}

// New returns a Blame.
func New(l *ledger.Ledger, candidates Candidates, devices Devices, recorder events.EventRecorder) *Blame {
	return &Blame{
		ledger: l, candidates: candidates, devices: devices, recorder: recorder,
		limiter: rate.NewLimiter(eventsPerSecond, eventBurst), next: lru.New(maxPods),
	}
}

// Refused is told of a pod that was refused all nodes offered.
func (b *Blame) Refused(pod *podinfo.Info, offered []string) {
	if pod.Ref.UID == "" || !b.ledger.HasHolds() {
		return
	}
	now := time.Now()
	if next, ok := b.next.Get(pod.Ref.UID); ok && now.Before(next.(time.Time)) {
		return
	}
	b.next.Add(pod.Ref.UID, now.Add(lookAfter))
	placement := pod.Placement("")
	placement.Holds, placement.Devices = b.candidates(pod), b.devices(pod)
	hold, node, ok := b.ledger.HeldBack(&placement, offered)
	if !ok || !b.limiter.AllowN(now, 1) {
		return
	}
	b.next.Add(pod.Ref.UID, now.Add(repeatAfter))
	object := &v1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Ref.Namespace, Name: pod.Ref.Name, UID: pod.Ref.UID,
	}
	note := fmt.Sprintf("node %s would have room for this pod, but reservation %s keeps it for others", node, hold)
	b.recorder.Eventf(object, nil, v1.EventTypeWarning, Reason, "Filter", "%s", note)
}
