package deviceclaims

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// FuzzClaim: whatever states a claim has one after the other, what is known of it is the last one, soon, and nothing once it
// is gone.
func FuzzClaim(f *testing.F) {
	const named = `{"metadata":{"namespace":"ns","name":"c","uid":"u"},`
	f.Add(`{}`, `null`)
	f.Add(named+`"spec":{"devices":{"requests":[]}}}`, named+`"status":{"devices":["a","a"],"podUID":"p"}}`)
	f.Add(named+`"spec":{"rawResourceName":"gpu","extendedResourceNum":2,"metadataRequirements":{"matchLabels":{"a":"b"}}}}`, named+`"spec":{"extendedResourceNum":-1}}`)
	f.Add(named+`"spec":{"metadataRequirements":{"matchExpressions":[{"key":"\u0000","operator":"x","values":[""]}]}}}`, named+`"metadata":{"deletionTimestamp":"x"}}`)
	f.Fuzz(func(t *testing.T, first, second string) {
		claims := newClaimSet()
		start := time.Now()
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
		assert.Less(t, time.Since(start), 5*time.Second, "%.200s %.200s", first, second)
	})
}
