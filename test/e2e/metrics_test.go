package e2e

import (
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// scrape reads the server's metrics.
func (c *cluster) scrape(t require.TestingT) testbed.Families {
	families, err := c.server.Metrics(c.t.Context())
	require.NoError(t, err)
	return families
}

// metric adds up the series of a metric that carry the labels given as name, value, name, value.
func (c *cluster) metric(t require.TestingT, name string, labels ...string) float64 {
	return c.scrape(t).Sum(name, labels...)
}
