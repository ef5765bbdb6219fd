package tracing

import (
	"context"
	"crypto/sha256"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/tracing"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// scope names who made a span, and the attributes are as OpenTelemetry's conventions for Kubernetes have them.
const (
	scope = "github.com/globalreserve/globalreserve"

	podUID       = attribute.Key("k8s.pod.uid")
	podName      = attribute.Key("k8s.pod.name")
	podNamespace = attribute.Key("k8s.namespace.name")
	nodeName     = attribute.Key("k8s.node.name")
	outcome      = attribute.Key("globalreserve.outcome")
	offeredNodes = attribute.Key("globalreserve.nodes.offered")
	fitNodes     = attribute.Key("globalreserve.nodes.fit")
)

// none is the span where nothing is traced.
var none trace.Span = noop.Span{}

// Tracer starts spans. The zero Tracer starts none; Open returns one that does.
type Tracer struct {
	provider tracing.TracerProvider
	tracer   trace.Tracer
}

func newTracer(provider tracing.TracerProvider) Tracer {
	return Tracer{provider: provider, tracer: provider.Tracer(scope)}
}

// Shutdown sends what has not been sent yet, until ctx ends.
func (t Tracer) Shutdown(ctx context.Context) error {
	if t.tracer == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// request is what spans of a request begin with.
type request struct {
	tracer trace.Tracer
	began  time.Time
	caller trace.SpanContext // not valid where the caller named none
}

type requestKey struct{}

// Handler traces the requests that Pod or Gang is called for.
func (t Tracer) Handler(next http.Handler) http.Handler {
	if t.tracer == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		named := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(r.Header))
		begun := &request{
			tracer: t.tracer, began: time.Now(),
			caller: trace.SpanContextFromContext(named).WithTraceState(trace.TraceState{}), // may be long, and is not ours
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, begun)))
	})
}

// TraceID returns the trace of a pod: the first half of its UID's SHA-256. The UID itself would not do, because a
// sampler takes some bits of it for random that are the same in all UIDs.
func TraceID(pod ledger.PodRef) trace.TraceID {
	sum := sha256.Sum256([]byte(pod.UID))
	return trace.TraceID(sum[:16])
}

// Pod starts a span for a request about a pod, in the trace of the pod; in a trace of its own where the UID is not
// known. It links to the span that ctx has, else to the caller's.
func Pod(ctx context.Context, name string, pod ledger.PodRef) (context.Context, trace.Span) {
	r, ok := ctx.Value(requestKey{}).(*request)
	if !ok {
		return ctx, none
	}
	options := append(r.options(ctx), podAttributes(pod))
	if pod.UID == "" {
		return r.tracer.Start(ctx, name, append(options, trace.WithNewRoot())...)
	}
	return r.tracer.Start(inTrace(ctx, pod), name, options...)
}

// Gang starts a span for a request about several pods, in a trace of its own.
func Gang(ctx context.Context, name string) (context.Context, trace.Span) {
	r, ok := ctx.Value(requestKey{}).(*request)
	if !ok {
		return ctx, none
	}
	return r.tracer.Start(ctx, name, append(r.options(ctx), trace.WithNewRoot())...)
}

// Members starts and ends a span for each pod of a request that has a trace of its own, in the trace of the pod, for
// the time until now.
func Members(ctx context.Context, name string, placements []ledger.Placement) {
	if _, ok := ctx.Value(requestKey{}).(*request); !ok {
		return
	}
	for i := range placements {
		if p := &placements[i]; p.Pod.UID != "" {
			_, span := Pod(ctx, name, p.Pod)
			span.SetAttributes(nodeName.String(p.Node))
			span.End()
		}
	}
}

func (r *request) options(ctx context.Context) []trace.SpanStartOption {
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(r.began)}
	from := trace.SpanContextFromContext(ctx)
	if !from.IsValid() {
		from = r.caller
	}
	if from.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: from}))
	}
	return options
}

// inTrace makes the next span begin in the trace of a pod, below no other one.
func inTrace(ctx context.Context, pod ledger.PodRef) context.Context {
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: TraceID(pod)}))
}

func podAttributes(pod ledger.PodRef) trace.SpanStartEventOption {
	return trace.WithAttributes(podUID.String(string(pod.UID)), podName.String(pod.Name),
		podNamespace.String(pod.Namespace))
}

// Decide is what the spans of decisions are called.
const Decide = "decide"

// Start starts a span below that of ctx, which may have ended. Where there is none that is sampled, it does nothing.
func Start(ctx context.Context, name string) (context.Context, trace.Span) {
	above := trace.SpanFromContext(ctx)
	if !above.SpanContext().IsSampled() {
		return ctx, none
	}
	return above.TracerProvider().Tracer(scope).Start(ctx, name)
}

// Carry returns ctx with the span of from, below which what goes on after the end of from is traced.
func Carry(ctx, from context.Context) context.Context {
	span := trace.SpanFromContext(from)
	if !span.SpanContext().IsSampled() {
		return ctx
	}
	return trace.ContextWithSpan(ctx, span)
}

// Filtered notes in the span of ctx on how many nodes a pod fits of those that were offered.
func Filtered(ctx context.Context, said string, offered, fit int) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(outcome.String(said), offeredNodes.Int(offered), fitNodes.Int(fit))
	}
}

// Placed notes in a span what was decided about a node, and why that was refused.
func Placed(span trace.Span, said, node string, err error) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(outcome.String(said), nodeName.String(node))
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
}

// Bound records that a watch has brought a pod's node: the last span of the pod's trace.
func (t Tracer) Bound(pod ledger.PodRef, node string, created, now time.Time) {
	if t.tracer == nil {
		return
	}
	_, span := t.tracer.Start(inTrace(context.Background(), pod), "bound",
		trace.WithTimestamp(created), podAttributes(pod), trace.WithAttributes(nodeName.String(node)))
	span.End(trace.WithTimestamp(now))
}

// Wrap traces requests to the API server that are sent for a span. Watches, leases and what else the server does
// by itself are not traced.
func (t Tracer) Wrap(config *rest.Config) {
	if t.tracer == nil {
		return
	}
	config.Wrap(func(plain http.RoundTripper) http.RoundTripper {
		return &transport{plain: plain, traced: tracing.WrapperFor(t.provider)(plain)}
	})
}

type transport struct{ plain, traced http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if trace.SpanContextFromContext(r.Context()).IsSampled() {
		return t.traced.RoundTrip(r)
	}
	return t.plain.RoundTrip(r)
}

// WrappedRoundTripper implements net.RoundTripperWrapper of k8s.io/apimachinery.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.plain }
