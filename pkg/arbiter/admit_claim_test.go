package arbiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/globalreserve/globalreserve/pkg/resourceclaims"
	"github.com/globalreserve/globalreserve/pkg/resourceclaims/account"
)

func TestExplainTellsOfResourceClaims(t *testing.T) {
	e := &Explanation{Message: "no node has capacity"}
	e.ofResourceClaims(nil)
	assert.Equal(t, "no node has capacity", e.Message)
	e.ofResourceClaims([]resourceclaims.Held{{
		Namespace: "ns", Name: "a", For: 40 * time.Second, Devices: []account.Device{
			{Driver: "d", Pool: "p", Name: "gpu-0"},
			{Driver: "d", Pool: "p", Name: "gpu-1"},
		},
	}})
	assert.Equal(t,
		"no node has capacity; its ResourceClaim ns/a has had d/p/gpu-0, d/p/gpu-1 for 40s, though the pod is not bound: "+
			"they go back when its scheduler takes them back, or the pod is deleted", e.Message)
}
