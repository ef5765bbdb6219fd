package testbed

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Families are the metrics of a server at one moment, by name.
type Families map[string]*dto.MetricFamily

// Metrics reads the metrics of a server.
func (c Caller) Metrics(ctx context.Context) (Families, error) {
	reply, err := c.Send(ctx, http.MethodGet, MetricsPath, nil)
	if err == nil && reply.Status != http.StatusOK {
		err = fmt.Errorf("%s: status %d", MetricsPath, reply.Status)
	}
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(bytes.NewReader(reply.Body))
}

// Sum adds up the series of a metric that carry the labels given as name, value, name, value. It is 0 where
// there are none.
func (f Families) Sum(name string, labels ...string) float64 {
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
