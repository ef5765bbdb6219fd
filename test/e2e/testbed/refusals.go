package testbed

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// AwaitRefusal waits until the server tells of a refusal that matches a query of /v1/refusals, and returns the latest
// one.
func (c *Cluster) AwaitRefusal(query string) (latest reserver.Refusal) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		var answer reserver.RefusalsAnswer
		require.NoError(t, c.Ledger.Get(c.T.Context(), "/v1/refusals?limit=1&"+query, &answer))
		if assert.Len(t, answer.Refusals, 1, query) {
			latest = answer.Refusals[0]
		}
	})
	return latest
}
