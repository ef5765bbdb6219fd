package arbiter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/gates"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/bubble"
)

func claiming(name, claims string) *v1.Pod {
	p := newPod(name)
	p.Annotations = map[string]string{
		v1alpha1.ExtendedResourceClaimsAnnotation: claims,
		v1alpha1.ExtendedResourcesAnnotation:      "gpu-9", // a copy of another pod
	}
	return p
}

// freeDevices lists the devices of node a that nobody has.
func (w *world) freeDevices() (free []string) {
	view, _, _ := w.ledger.Node("a")
	for _, d := range view.Devices {
		if d.Free {
			free = append(free, d.ID)
		}
	}
	return free
}

func TestBindWithClaims(t *testing.T) {
	type testCase struct {
		node, claims string
		reply        reply
		outcome      gates.Outcome
		given        string // of the Binding, if one was sent
		free         []string
	}
	tests := map[string]testCase{
		"one device":         {"a", "c", honest, gates.Bound, "gpu-0", []string{"gpu-1"}},
		"two":                {"a", "c, d", honest, gates.Bound, "gpu-0,gpu-1", nil},
		"too many":           {"a", "c,d,e", honest, gates.Refused, "", []string{"gpu-0", "gpu-1"}},
		"not on this node":   {"b", "c", honest, gates.Refused, "", []string{"gpu-0", "gpu-1"}},
		"no such claim":      {"a", "missing", honest, gates.Refused, "", []string{"gpu-0", "gpu-1"}},
		"bad annotation":     {"a", "c,", honest, gates.Refused, "", []string{"gpu-0", "gpu-1"}},
		"the bind fails":     {"a", "c", reply{err: errForbidden}, gates.Failed, "gpu-0", []string{"gpu-0", "gpu-1"}},
		"the answer is lost": {"a", "c", lost, gates.Bound, "gpu-0", []string{"gpu-1"}},
	}
	bubble.Each(t, tests, func(t *testing.T, tt testCase) {
		p := claiming("p", tt.claims)
		w := newWorld(t, p)
		placementtest.GPUs(w.ledger, "a", "gpu-0", "gpu-1")
		sent := ""
		w.api.onBind = func(b *v1.Binding) { sent = b.Annotations[v1alpha1.ExtendedResourcesAnnotation] }
		w.api.bind = func(int) reply { return tt.reply }
		if err := w.bindPod(p, tt.node); tt.outcome == gates.Bound {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, &gates.Error{Outcome: tt.outcome})
		}
		assert.Equal(t, tt.given, sent)
		assert.Equal(t, tt.free, w.freeDevices())
	})
}

// TestBindByCount binds pods that ask for GPUs by count beside one with a claim: they are told of devices, too, and
// there are never more than the node has.
func TestBindByCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		byCount := func(name string) *v1.Pod {
			p := newPod(name)
			p.Annotations = map[string]string{v1alpha1.ExtendedResourcesAnnotation: "gpu-9"} // a copy of another pod
			p.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("1")
			return p
		}
		claims, first, second := claiming("claims", "c"), byCount("first"), byCount("second")
		w := newWorld(t, claims, first, second)
		gpus, ok := w.ledger.Table().Offer("nvidia.com/gpu")
		require.True(t, ok)
		view, _, _ := w.ledger.Node("a")
		offered := []resources.Amount{{Column: gpus, Value: 2}}
		for _, amount := range view.Amounts {
			column, _ := w.ledger.Table().Lookup(amount.Resource)
			offered = append([]resources.Amount{{Column: column, Value: amount.Allocatable}}, offered...)
		}
		w.ledger.ObserveNode(ledger.NodeObservation{Name: "a", Allocatable: offered})
		placementtest.GPUs(w.ledger, "a", "gpu-0", "gpu-1")
		sent := map[string]string{}
		w.api.onBind = func(b *v1.Binding) { sent[b.Name] = b.Annotations[v1alpha1.ExtendedResourcesAnnotation] }
		require.NoError(t, w.bindPod(first, "a"))
		require.NoError(t, w.bindPod(claims, "a"))
		require.ErrorIs(t, w.bindPod(second, "a"), &gates.Error{Outcome: gates.Refused})
		assert.Equal(t, map[string]string{"first": "gpu-0", "claims": "gpu-1"}, sent)
	})
}

// TestBindOfPodWhoseClaimsChanged binds a pod that names other claims by now than when
// its capacity was reserved, and than when it was filtered.
func TestBindOfPodWhoseClaimsChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := claiming("p", "c,d"), claiming("p", "e")
		before.ResourceVersion, after.ResourceVersion = "1", "2"
		w := newWorld(t, after)
		placementtest.GPUs(w.ledger, "a", "gpu-0", "gpu-1")
		info := w.info(before)
		placement := info.Placement("a")
		placement.Devices = placementtest.Claims(info)
		require.Equal(t, 1, w.ledger.Reserve(ledger.NewPlan([]ledger.Placement{placement}, ledger.AllOrNothing, time.Time{}),
			time.Now()).Granted)
		require.Empty(t, w.freeDevices())
		w.bring(before)
		w.pods.named(after.UID, 2)
		sent := ""
		w.api.onBind = func(b *v1.Binding) { sent = b.Annotations[v1alpha1.ExtendedResourcesAnnotation] }
		require.NoError(t, w.bindPod(after, "a"))
		assert.Equal(t, "gpu-0", sent)
		assert.Equal(t, []string{"gpu-1"}, w.freeDevices(), "the other device is given back")
		allocation, ok := w.ledger.Allocation(ref(after))
		require.True(t, ok)
		assert.Equal(t, "ns/e", allocation.Given[0].Claim.String())
	})
}
