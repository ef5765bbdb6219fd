package waiting

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/test/background"
)

// deviceWorld has nodes a and b with a GPU each.
func deviceWorld(t *testing.T) *world {
	w := makeWorld(t, "a", "b")
	placementtest.GPUs(w.ledger, "a", "GPU-a")
	placementtest.GPUs(w.ledger, "b", "GPU-b")
	background.Run(t, w.Run)
	advance(time.Minute)
	return w
}

func (w *world) claimant(name, claim string) *cluster.Pod {
	pod := w.pod(name, "1", 0)
	pod.Devices = &cluster.DeviceAnnotations{Claims: []string{claim}}
	return pod
}

// reserveDevices reserves capacity and the claim's device for a pod.
func (w *world) reserveDevices(p *cluster.Pod, node string, ttl time.Duration) {
	placement := p.Placement(node)
	placement.Devices = w.Question.Devices(p)
	now := time.Now()
	result := w.ledger.Reserve(ledger.NewPlan([]ledger.Placement{placement}, ledger.AllOrNothing, now.Add(ttl)), now)
	require.Equal(w.t, 1, result.Granted, "%+v", result.Rejections)
}

// The claim is given back on a node that is of no use to the pod that waits for it.
func TestClaimGivenBackElsewhereWakesItsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := deviceWorld(t)
		w.reserveDevices(w.claimant("first", "c"), "a", time.Minute)
		cordoned := devices.Device{Name: "GPU-a", Resource: "nvidia.com/gpu", ID: "GPU-a", Unschedulable: true}
		w.ledger.ObserveDevices("a", []devices.Device{cordoned})
		advance(10 * time.Second)
		w.refuse(w.claimant("second", "c"), "a", "b")
		advance(10 * time.Second)
		assert.Empty(t, w.api.names())
		w.ledger.Expire(time.Now().Add(time.Minute))
		advance(10 * time.Millisecond)
		assert.Equal(t, []string{"second"}, w.api.names())
	})
}

// A bound pod that goes is heard of by schedulers, too. One that heard of it first and was refused is woken.
func TestClaimOfAPodThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := deviceWorld(t)
		first := w.claimant("first", "c")
		w.ledger.ObservePod(ledger.PodObservation{
			Pod: first.Ref, Node: "a", Request: first.Request,
			Devices: w.Question.Devices(first),
		})
		advance(time.Minute)
		w.refuse(w.claimant("second", "c"), "a", "b")
		w.ledger.RemovePod(first.Ref, 0)
		advance(announcedDelay + 10*time.Millisecond)
		assert.Equal(t, []string{"second"}, w.api.names())
	})
}

func TestNewDeviceWakesPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := deviceWorld(t)
		w.ledger.ObserveDevices("b", nil)
		w.reserveDevices(w.claimant("first", "c"), "a", time.Hour)
		w.refuse(w.claimant("second", "d"), "a", "b")
		advance(time.Minute)
		assert.Empty(t, w.api.names())
		placementtest.GPUs(w.ledger, "b", "GPU-new")
		advance(10 * time.Millisecond)
		assert.Equal(t, []string{"second"}, w.api.names())
	})
}

// The ledger does not hear of a claim's object. A refusal may come after the object that it did not know.
func TestNewClaimWakesItsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := deviceWorld(t)
		made := false
		w.Question.Devices = func(pod *cluster.Pod) *ledger.DeviceRequest {
			if !made {
				return &ledger.DeviceRequest{Err: "there is no claim new"}
			}
			return placementtest.Claims(pod)
		}
		w.refuse(w.claimant("before", "new"), "a", "b")
		advance(time.Minute)
		w.DeviceClaimChanged("default", "new")
		advance(time.Minute)
		assert.Empty(t, w.api.names(), "it came and cannot be used")
		made = true
		w.DeviceClaimChanged("elsewhere", "new")
		w.DeviceClaimChanged("default", "new")
		w.refuse(w.claimant("after", "new"), "a", "b")
		advance(10 * time.Millisecond)
		assert.ElementsMatch(t, []string{"before", "after"}, w.api.names())
		advance(time.Minute)
		w.refuse(w.claimant("late", "new"), "a", "b")
		advance(time.Minute)
		assert.Len(t, w.api.names(), 2, "what is refused long after had other reasons")
	})
}

// DRA that begins to give what pods were refused for want of wakes those, those included whose refusal comes later, and
// nobody else.
func TestWhatDRABeginsToGiveWakesItsPods(t *testing.T) {
	const gpu = "example.com/gpu"
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		asks := func(name string, extended ...v1.ResourceName) *cluster.Pod { return w.pod(name, "1", 0, extended...) }
		w.refuse(asks("before", gpu), "a", "b")
		w.refuse(asks("other", "example.com/other"), "a", "b")
		late := asks("after", gpu)
		revision := w.ledger.Revision()
		advance(time.Minute)
		placementtest.DRA(w.ledger, 4000, gpu, "a")
		w.Await(late, revision, []string{"a", "b"}, false)
		advance(time.Minute)
		assert.ElementsMatch(t, []string{"before", "after"}, w.api.names())
	})
}
