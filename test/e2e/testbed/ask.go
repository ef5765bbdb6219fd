package testbed

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/openapi"
)

// Paths of the server.
const (
	FilterPath       = "/filter"
	PreemptPath      = "/preempt"
	BindPath         = "/bind"
	ReservePath      = "/reserve"
	UnreservePath    = "/unreserve"
	MetricsPath      = "/metrics"
	NodesPath        = "/v1/nodes"
	AllocationsPath  = "/v1/allocations"
	ReservationsPath = "/v1/reservations"
	GangsPath        = "/v1/gangs"
	WhatIfPath       = "/v1/whatif"
	ExplainPath      = "/v1/explain"
	WatchPath        = "/v1/watch"
	OpenAPIPath      = "/openapi.yaml"
)

// all is how many entries a list is asked for, so that none is left for another page.
const all = "?limit=1000"

// undocumented is what was asked or answered through clients of this process that is not as the OpenAPI document has
// it.
var undocumented openapi.Found

// Documented has what a test's own client is answered held against the OpenAPI document.
func Documented(base http.RoundTripper) http.RoundTripper {
	return &openapi.Transport{Base: base, Found: &undocumented}
}

// Streaming is a client for streams, which may go on for long.
var Streaming = &http.Client{Transport: Documented(&http.Transport{MaxIdleConnsPerHost: 128})}

var httpClient = &http.Client{Timeout: Soon, Transport: Streaming.Transport}

// Caller asks whoever serves GlobalReserve at a URL, with a client of its own where that is not nil.
type Caller struct {
	URL    string
	Client *http.Client
}

// Reply is an answer as it came.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// Do sends a request.
func Do(request *http.Request) (Reply, error) { return do(httpClient, request) }

func do(client *http.Client, request *http.Request) (Reply, error) {
	response, err := client.Do(request)
	if err != nil {
		return Reply{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return Reply{Status: response.StatusCode, Header: response.Header, Body: content}, err
}

// Send asks. The question is sent as it is when it is bytes, else as JSON; nil is none.
func (c Caller) Send(ctx context.Context, method, path string, question any) (Reply, error) {
	body, ok := question.([]byte)
	if !ok && question != nil {
		var err error
		if body, err = json.Marshal(question); err != nil {
			return Reply{}, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return Reply{}, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	return do(cmp.Or(c.Client, httpClient), request)
}

// Call asks what is answered with 200, and reads the answer. An error means that no such answer came.
func (c Caller) Call(ctx context.Context, method, path string, question, answer any) error {
	reply, err := c.Send(ctx, method, path, question)
	if err == nil && reply.Status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", reply.Status, reply.Body)
	}
	if err == nil {
		err = json.Unmarshal(reply.Body, answer)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// Post is Call with a question.
func (c Caller) Post(ctx context.Context, path string, question, answer any) error {
	return c.Call(ctx, http.MethodPost, path, question, answer)
}

// Get is Call without one.
func (c Caller) Get(ctx context.Context, path string, answer any) error {
	return c.Call(ctx, http.MethodGet, path, nil, answer)
}

// TryBind asks for a bind, as a scheduler does, and returns why it is refused. An error means that no answer came.
func (c Caller) TryBind(ctx context.Context, pod *corev1.Pod, node string) (refusal string, err error) {
	var answer extenderv1.ExtenderBindingResult
	err = c.Post(ctx, BindPath, &extenderv1.ExtenderBindingArgs{
		PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID, Node: node,
	}, &answer)
	return answer.Error, err
}

// Allocations are the allocations of all pods.
func (c Caller) Allocations(ctx context.Context) (answer reserver.AllocationsAnswer, err error) {
	err = c.Get(ctx, AllocationsPath+all, &answer)
	return answer, err
}

// Nodes are the accounts of all nodes.
func (c Caller) Nodes(ctx context.Context) (answer reserver.NodesAnswer, err error) {
	err = c.Get(ctx, NodesPath+all, &answer)
	return answer, err
}

// Gangs are those that have pods, or an object.
func (c Caller) Gangs(ctx context.Context) (answer reserver.GangsAnswer, err error) {
	err = c.Get(ctx, GangsPath+all, &answer)
	return answer, err
}

// Reservations are those of which the server keeps slots.
func (c Caller) Reservations(ctx context.Context) (answer reserver.ReservationsAnswer, err error) {
	err = c.Get(ctx, ReservationsPath+all, &answer)
	return answer, err
}

// Filter asks where a pod could go, and returns the reason for each node where it cannot.
func (c Caller) Filter(ctx context.Context, pod *corev1.Pod, nodes ...string) (map[string]string, error) {
	var answer extenderv1.ExtenderFilterResult
	err := c.Post(ctx, FilterPath, extenderv1.ExtenderArgs{Pod: pod, NodeNames: &nodes}, &answer)
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	reasons := map[string]string{}
	maps.Copy(reasons, answer.FailedNodes)
	maps.Copy(reasons, answer.FailedAndUnresolvableNodes)
	return reasons, err
}

// Host is the address in a URL.
func Host(url string) string {
	_, address, _ := strings.Cut(url, "://")
	address, _, _ = strings.Cut(address, "/")
	return address
}

// Metric adds up the series of a metric that carry the labels given as name, value, name, value.
func (c Caller) Metric(ctx context.Context, name string, labels ...string) (float64, error) {
	families, err := c.Metrics(ctx)
	return families.Sum(name, labels...), err
}

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

// Changes follows the ledger of a server from now on, until ctx ends. What it returns is to be ranged over at once, or
// changes are read late.
func Changes(ctx context.Context, t testing.TB, url string) iter.Seq[reserver.WatchChange] {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+WatchPath, http.NoBody)
	require.NoError(t, err)
	response, err := Streaming.Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	require.Equal(t, http.StatusOK, response.StatusCode)
	lines := json.NewDecoder(response.Body)
	next := func() (batch reserver.WatchBatch, ok bool) { return batch, lines.Decode(&batch) == nil }
	for {
		if batch, ok := next(); !ok || batch.CaughtUp {
			require.True(t, ok, "the watch has ended")
			break
		}
	}
	return func(yield func(reserver.WatchChange) bool) {
		for batch, ok := next(); ok; batch, ok = next() {
			for _, change := range batch.Changes {
				if !yield(change) {
					return
				}
			}
		}
	}
}
