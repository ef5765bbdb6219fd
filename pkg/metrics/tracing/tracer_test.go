package tracing

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

var pod = ledger.PodRef{Namespace: "default", Name: "p", UID: "0ff2e2f5-7f4b-4c61-9b6b-1d54b1f0a001"}

// recorded returns a Tracer, sampling as Open has it, and what it has recorded.
func recorded(rate float64) (Tracer, *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	return newTracer(sdktrace.NewTracerProvider(
			sdktrace.WithSpanProcessor(recorder), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(rate))))),
		recorder
}

// ask has a handler serve a request, which may name a span of its caller.
func ask(tracer Tracer, traceparent string, handle func(ctx context.Context)) {
	r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
	r.Header.Set("traceparent", traceparent)
	tracer.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { handle(r.Context()) })).
		ServeHTTP(httptest.NewRecorder(), r)
}

// bind has a span, and one below it, for a request about a pod.
func bind(ctx context.Context) {
	ctx, span := Pod(ctx, "bind", pod)
	defer span.End()
	_, below := Start(ctx, "decide")
	below.End()
	Placed(span, "refused", "node-1", errors.New("full"))
}

const (
	strangersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	strangers      = "00-" + strangersTrace + "-00f067aa0ba902b7-01" // sampled
)

func TestOnePodIsOneTrace(t *testing.T) {
	tracer, recorder := recorded(1)
	ask(tracer, "", bind)
	ask(tracer, strangers, bind)
	created := time.Unix(1000, 0)
	tracer.Bound(pod, "node-1", created, created.Add(time.Minute))

	spans := recorder.Ended()
	require.Len(t, spans, 5)
	for _, s := range spans {
		assert.Equal(t, TraceID(pod), s.SpanContext().TraceID(), s.Name())
	}
	for _, i := range []int{0, 2} {
		decide, bind := spans[i], spans[i+1]
		assert.Equal(t, "decide", decide.Name())
		assert.Equal(t, bind.SpanContext().SpanID(), decide.Parent().SpanID())
		assert.False(t, bind.Parent().SpanID().IsValid(), "a stranger's span is no parent")
		assert.Contains(t, bind.Attributes(), podUID.String(string(pod.UID)))
		assert.Contains(t, bind.Attributes(), nodeName.String("node-1"))
		assert.Equal(t, sdktrace.Status{Code: codes.Error, Description: "full"}, bind.Status())
	}
	assert.Empty(t, spans[1].Links())
	require.Len(t, spans[3].Links(), 1)
	assert.Equal(t, strangersTrace, spans[3].Links()[0].SpanContext.TraceID().String())
	assert.Equal(t, time.Minute, spans[4].EndTime().Sub(spans[4].StartTime()))
}

// The pods of a gang are found from its request and the other way round.
func TestGangLinksToItsPods(t *testing.T) {
	tracer, recorder := recorded(1)
	ask(tracer, strangers, func(ctx context.Context) {
		ctx, span := Gang(ctx, "reserve")
		defer span.End()
		Members(ctx, "reserve", []ledger.Placement{{Pod: pod, Node: "a"}, {Pod: ledger.PodRef{Name: "to come"}, Node: "b"}})
	})
	spans := recorder.Ended()
	require.Len(t, spans, 2, "a pod that does not exist yet has no trace")
	member, gang := spans[0], spans[1]
	assert.Equal(t, TraceID(pod), member.SpanContext().TraceID())
	require.Len(t, member.Links(), 1)
	assert.Equal(t, gang.SpanContext().SpanID(), member.Links()[0].SpanContext.SpanID())
	assert.NotEqual(t, strangersTrace, gang.SpanContext().TraceID().String())
	require.Len(t, gang.Links(), 1)
	assert.Equal(t, strangersTrace, gang.Links()[0].SpanContext.TraceID().String())
}

// A caller does not have anything sampled, and of a pod all is sampled or nothing.
func TestSamplingIsOurs(t *testing.T) {
	tracer, recorder := recorded(0)
	ask(tracer, strangers, bind)
	ask(tracer, strangers, func(ctx context.Context) {
		_, span := Gang(ctx, "reserve")
		span.End()
	})
	assert.Empty(t, recorder.Ended())

	const pods, rate = 2000, 0.2
	tracer, recorder = recorded(rate)
	for i := range pods {
		uid := types.UID(strconv.Itoa(i)) // the trace is of its hash
		for range 2 {
			ask(tracer, "", func(ctx context.Context) {
				_, span := Pod(ctx, "bind", ledger.PodRef{UID: uid})
				span.End()
			})
		}
	}
	traces := map[trace.TraceID]int{}
	for _, s := range recorder.Ended() {
		traces[s.SpanContext().TraceID()]++
	}
	assert.InDelta(t, pods*rate, len(traces), pods*rate/3)
	for _, spans := range traces {
		assert.Equal(t, 2, spans)
	}
}

// Requests to the API server are traced where a span asks for them, and after its end.
func TestRequestsToTheAPIServer(t *testing.T) {
	var sent []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request,
	) {
		sent = append(sent, r.Header.Get("traceparent"))
	}))
	t.Cleanup(server.Close)
	tracer, recorder := recorded(1)
	config := &rest.Config{Host: server.URL}
	tracer.Wrap(config)
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	get := func(ctx context.Context) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
		require.NoError(t, err)
		response, err := client.Do(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
	}
	get(t.Context())
	assert.Equal(t, []string{""}, sent)
	assert.Empty(t, recorder.Ended())
	var bind trace.Span
	ask(tracer, "", func(ctx context.Context) {
		ctx, bind = Pod(ctx, "bind", pod)
		after := Carry(t.Context(), ctx)
		get(after)
		bind.End() // the caller has left
		get(after)
		_, next := Start(after, "decide")
		next.End()
	})
	require.Len(t, sent, 3)
	var names []string
	for _, s := range recorder.Ended() {
		names = append(names, s.Name())
		assert.Equal(t, TraceID(pod), s.SpanContext().TraceID(), s.Name())
		if s.Name() != "bind" {
			assert.Equal(t, bind.SpanContext().SpanID(), s.Parent().SpanID(), s.Name())
		}
	}
	assert.Equal(t, []string{"HTTP GET", "bind", "HTTP GET", "decide"}, names)
	for _, traceparent := range sent[1:] {
		assert.Contains(t, traceparent, TraceID(pod).String())
	}
}

func TestOff(t *testing.T) {
	var off Tracer
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	assert.IsType(t, handler, off.Handler(handler), "nothing stands in front of requests")
	config := &rest.Config{}
	off.Wrap(config)
	assert.Nil(t, config.WrapTransport)
	require.NoError(t, off.Shutdown(t.Context()))
	traced, span := Pod(t.Context(), "filter", pod)
	assert.Equal(t, t.Context(), traced)
	assert.False(t, span.IsRecording())
}

const begin = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"

func TestOpen(t *testing.T) {
	tests := map[string]struct{ content, want string }{
		"all":           {begin + "endpoint: localhost:1\nsamplingRatePerMillion: 10000\n", ""},
		"no endpoint":   {begin + "samplingRatePerMillion: 1\n", ""},
		"no rate":       {begin + "endpoint: localhost:1\n", "nothing would be traced"},
		"rate too high": {begin + "samplingRatePerMillion: 1000001\n", "less than or equal to one million"},
		"a URL":         {begin + "endpoint: https://localhost:1\nsamplingRatePerMillion: 1\n", "unsupported scheme"},
		"misspelled":    {begin + "samplingRate: 1\n", `unknown field "samplingRate"`},
		"another kind": {
			"apiVersion: v1\nkind: ConfigMap\n",
			`got apiVersion "v1", kind "ConfigMap"; give "apiserver.config.k8s.io/v1", "TracingConfiguration"`,
		},
		"no YAML": {"{", "tracing.yaml: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "tracing.yaml")
			require.NoError(t, os.WriteFile(file, []byte(tt.content), 0o600))
			tracer, err := Open(t.Context(), file, logrus.New())
			if tt.want != "" {
				require.ErrorContains(t, err, "--tracing-config-file: ")
				require.ErrorContains(t, err, tt.want)
				return
			}
			require.NoError(t, err)
			require.NoError(t, tracer.Shutdown(t.Context()))
		})
	}
	off, err := Open(t.Context(), "", logrus.New())
	require.NoError(t, err)
	assert.Equal(t, Tracer{}, off)
	_, err = Open(t.Context(), "no such file", logrus.New())
	require.ErrorContains(t, err, "--tracing-config-file: open no such file")
}

// open opens what sends to a collector that is not there, and returns the warnings that are logged.
func open(t *testing.T) (Tracer, *logtest.Hook) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tracing.yaml")
	require.NoError(t, os.WriteFile(file, []byte(begin+"endpoint: localhost:1\nsamplingRatePerMillion: 1000000\n"), 0o600))
	log, hook := logtest.NewNullLogger()
	tracer, err := Open(t.Context(), file, log)
	require.NoError(t, err)
	return tracer, hook
}

// A collector that fails for long does not fill the log.
func TestFailuresAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer, log := open(t)
		for range 100 {
			otel.Handle(errors.New("no collector"))
			<-time.After(time.Second)
		}
		var left []any
		for _, e := range log.AllEntries() {
			assert.Equal(t, "spans cannot be sent", e.Message)
			assert.ErrorContains(t, e.Data[logrus.ErrorKey].(error), "no collector")
			left = append(left, e.Data["leftOut"])
		}
		assert.Equal(t, []any{0, 59}, left)
		require.NoError(t, tracer.Shutdown(t.Context()))
	})
}

// What is wrong with a variable of OpenTelemetry is reported, and stops no server.
func TestBadEnvironment(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "zone=east,nonsense")
	t.Setenv("OTEL_SERVICE_NAME", "ours")
	tracer, log := open(t)
	require.Len(t, log.AllEntries(), 1)
	entry := log.LastEntry()
	assert.Equal(t, logrus.WarnLevel, entry.Level)
	assert.Contains(t, entry.Message, "OTEL_RESOURCE_ATTRIBUTES")
	assert.ErrorContains(t, entry.Data[logrus.ErrorKey].(error), "nonsense")
	_, span := tracer.tracer.Start(t.Context(), "any")
	attributes := span.(sdktrace.ReadOnlySpan).Resource().Attributes()
	assert.Contains(t, attributes, attribute.String("zone", "east"))
	assert.Contains(t, attributes, attribute.String("service.name", "ours"))
	require.NoError(t, tracer.Shutdown(t.Context()), "nothing has ended that would be sent")
}
