package requeue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// deviceWorld has nodes a and b with a GPU each.
func deviceWorld(t *testing.T) *world {
	w := newWorld(t, "a", "b")
	w.addGPUs()
	advance(time.Minute)
	return w
}

func (w *world) addGPUs() {
	placementtest.GPUs(w.ledger, "a", "GPU-a")
	placementtest.GPUs(w.ledger, "b", "GPU-b")
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

// The ledger does not receive a claim's object. A refusal may come after the object that it did not know.
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

// The devices that a pod claims count towards a limit each time that it is looked at.
func TestLimitOfDevicesIsRaised(t *testing.T) {
	bubble.Each(t, map[string]bool{"refused by filter": false, "by preempt": true}, func(t *testing.T, preempt bool) {
		w := deviceWorld(t)
		column, _ := w.ledger.Table().Offer("nvidia.com/gpu")
		limit := func(devices int64) {
			w.ledger.Observer().SetLimits(ledger.OfNamespace, map[string]*ledger.Limits{
				"default": {Use: []resources.Amount{{Column: column, Value: devices}}},
			})
			w.LimitsChanged()
			advance(time.Minute)
		}
		limit(0)
		if p := w.claimant("p", "c"); preempt {
			w.put(p)
			w.AwaitEvictions(p, w.ledger.Revision(), []string{"a", "b"})
		} else {
			w.Await(p, w.ledger.Revision(), []string{"a", "b"}, true)
		}
		advance(time.Minute)
		assert.Empty(t, w.api.names())
		limit(1)
		assert.Equal(t, []string{"p"}, w.api.names())
	})
}
