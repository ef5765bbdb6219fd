package extendeddevices

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// An event that does not say what a pod had before concerns the claims of that pod: those of others are not looked at.
func TestAnEventIsNoWalkOverAllClaims(t *testing.T) {
	c := makeWorld(t).controller
	c.claims.set(heldBy("p", "with", "a"))
	c.claims.set(heldBy("p", "without"))
	other := claimFor(t, "other", "{}")
	c.claims.set(other)
	c.claims.byKey[keyOf(other)] = nil // who looks at it panics
	pod := ledger.PodRef{Namespace: "default", Name: "p", UID: "uid-p"}
	require.NotPanics(t, func() {
		c.note(&ledger.Event{Type: ledger.AllocationResized, Pod: pod, EventDetails: &ledger.EventDetails{}})
	})
	assert.Len(t, c.claims.keys(pod.UID), 2, "the status of both names the pod")
	assert.Len(t, c.claims.recorded(pod), 1)
}

// A claim that is gone has only the pods looked at that name it, to make it again.
func TestAClaimThatIsGoneIsNoWalkOverAllClaimants(t *testing.T) {
	w := makeWorld(t)
	gone := claimFor(t, "gone", "{}")
	w.controller.claims.set(gone)
	w.pods.Put(w.pod("p", "gone", "", ""))
	other := w.pod("other", "one", "", "")
	w.pods.Put(other)
	other.Devices = nil // who looks for its claims panics
	require.NotPanics(t, func() { w.controller.forgetClaim(gone) })
}

// TestClaimsOfPodsAtRandom compares what is kept by pod with what all claims say, after any changes.
func TestClaimsOfPodsAtRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	claims, held := newClaimSet(), map[types.NamespacedName]*v1alpha1.ExtendedResourceClaim{}
	for range 3000 {
		claim := randomClaim(random)
		if now := held[keyOf(claim)]; now != nil && random.IntN(4) == 0 {
			require.True(t, claims.remove(now))
			delete(held, keyOf(claim))
		} else {
			claims.set(claim)
			held[keyOf(claim)] = claim
		}
		for _, pod := range []types.UID{"uid-0", "uid-1", "uid-2"} {
			var named []types.NamespacedName
			var withDevices []string
			for key, claim := range held {
				if ref := claim.Status.PodRef; ref == nil || ref.UID != pod {
					continue
				}
				named = append(named, key)
				if len(claim.Status.ExtendedResources) > 0 {
					withDevices = append(withDevices, key.Name)
				}
			}
			require.ElementsMatch(t, named, claims.keys(pod))
			recorded := claims.recorded(ledger.PodRef{Namespace: "default", UID: pod})
			require.ElementsMatch(t, withDevices, slices.Collect(maps.Keys(recorded)))
			require.Equal(t, len(withDevices) == 0, recorded == nil)
			for name, claim := range recorded {
				require.Same(t, held[types.NamespacedName{Namespace: "default", Name: name}], claim.obj)
			}
		}
		require.Len(t, claims.keys(""), len(held))
	}
	for _, claim := range held {
		require.True(t, claims.remove(claim))
	}
	assert.Empty(t, claims.byPod)
}

// randomClaim is one of few claims, which may be made anew, whose status names a pod, or devices, or both, or neither.
func randomClaim(random *rand.Rand) *v1alpha1.ExtendedResourceClaim {
	claim := heldBy(fmt.Sprint(random.IntN(3)), fmt.Sprint(random.IntN(8)))
	claim.UID = types.UID(fmt.Sprint(random.IntN(2)))
	if random.IntN(2) == 0 {
		claim.Status.ExtendedResources = []string{"a"}
	}
	if random.IntN(4) == 0 {
		claim.Status.PodRef = nil
	}
	return claim
}
