package e2e

import (
	"bytes"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

type families map[string]*dto.MetricFamily

// scrape reads the server's metrics.
func (c *cluster) scrape(t require.TestingT) families {
	r, err := c.send(c.t.Context(), http.MethodGet, "/metrics", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, r.status)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(bytes.NewReader(r.body))
	require.NoError(t, err)
	return parsed
}

// metric adds up the series of a metric that carry the labels given as name, value, name, value.
func (c *cluster) metric(t require.TestingT, name string, labels ...string) float64 {
	return c.scrape(t).sum(name, labels...)
}

func (f families) sum(name string, labels ...string) float64 {
	sum := 0.0
	for _, m := range f[name].GetMetric() {
		if !carries(m, labels) {
			continue
		}
		switch f[name].GetType() {
		case dto.MetricType_COUNTER:
			sum += m.GetCounter().GetValue()
		case dto.MetricType_GAUGE:
			sum += m.GetGauge().GetValue()
		case dto.MetricType_HISTOGRAM:
			sum += float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

func carries(m *dto.Metric, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		found := false
		for _, pair := range m.GetLabel() {
			found = found || pair.GetName() == labels[i] && pair.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}
