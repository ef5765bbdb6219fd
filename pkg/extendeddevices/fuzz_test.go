package extendeddevices

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// FuzzClaim: whatever states a claim has one after the other, what is known of it is the last one, and nothing once it
// is gone.
func FuzzClaim(f *testing.F) {
	const named = `{"metadata":{"namespace":"ns","name":"c","uid":"u"},`
	f.Add(`{}`, `null`)
	f.Add(named+`"spec":{"devices":{"requests":[]}}}`, named+`"status":{"devices":["a","a"],"podUID":"p"}}`)
	f.Add(named+
		`"spec":{"rawResourceName":"gpu","extendedResourceNum":2,"metadataRequirements":{"matchLabels":{"a":"b"}}}}`, named+
		`"spec":{"extendedResourceNum":-1}}`)
	f.Add(named+`"spec":{"metadataRequirements":{"matchExpressions":[{"key":"\u0000","operator":"x","values":[""]}]}}}`,
		named+`"metadata":{"deletionTimestamp":"x"}}`)
	f.Fuzz(func(t *testing.T, first, second string) {
		claims := newClaimSet()
		var last *v1alpha1.ExtendedResourceClaim
		for _, state := range []string{first, second} {
			claim := &v1alpha1.ExtendedResourceClaim{}
			if len(state) > 64<<10 || json.Unmarshal([]byte(state), claim) != nil {
				return
			}
			claim.Namespace, claim.Name, claim.UID = "ns", "c", "u"
			claims.set(claim)
			last = claim
		}
		require.Same(t, last, claims.get(keyOf(last)).obj)
		require.True(t, claims.remove(last))
		assert.Empty(t, claims.byKey)
		assert.Empty(t, claims.byPod)
	})
}

// FuzzDevice: whatever two objects say of devices, one after the other under one name and then under names of their
// own, each is on the node that it says, a device is counted once, and nothing is left of them once they are gone.
func FuzzDevice(f *testing.F) {
	const spec = `{"spec":{"nodeName":"n","resourceName":"nvidia.com/gpu","deviceID":"0"`
	f.Add(spec+`}}`, spec+`}}`)
	f.Add(spec+`,"properties":{"memory":"16Gi","":"\u0000"}}}`, spec+
		`,"unschedulable":true},"status":{"phase":"Allocated","claim":{"name":"x"}}}`)
	f.Add(`{}`, `{"spec":{"nodeName":"other","deviceID":"0"}}`)
	f.Add(`{"metadata":{"name":"a","generation":-1}}`, `null`)
	f.Fuzz(func(t *testing.T, first, second string) {
		a, b := &v1alpha1.ExtendedResource{}, &v1alpha1.ExtendedResource{}
		if len(first)+len(second) > 64<<10 || json.Unmarshal([]byte(first), a) != nil ||
			json.Unmarshal([]byte(second), b) != nil {
			return
		}
		inventory, again := newInventory(), b.DeepCopy()
		a.Name, b.Name, again.Name = "a", "a", "b"
		devicesOn := func(node string) (n int) {
			all := inventory.observed(node)
			if len(all) > 0 {
				n = inventory.byNode[node].pool.Len()
			}
			return n
		}
		inventory.set(a)
		require.Equal(t, 1, devicesOn(a.Spec.NodeName))
		inventory.set(b)
		require.Equal(t, 1, devicesOn(b.Spec.NodeName))
		inventory.set(again)
		require.Equal(t, 1, devicesOn(b.Spec.NodeName), "one device with two objects")
		require.Equal(t, []string{"a", "b"}, inventory.objectsOf(identityOf(b)))
		require.NotNil(t, inventory.remove("a"))
		require.NotNil(t, inventory.remove("b"))
		assert.Zero(t, devicesOn(a.Spec.NodeName)+devicesOn(b.Spec.NodeName))
		assert.Empty(t, inventory.byName)
		assert.Empty(t, inventory.byNode)
	})
}
