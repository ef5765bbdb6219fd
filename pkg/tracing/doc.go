// Package tracing makes the spans of a pod's way from filter to Bound, and sends them by OTLP, as kube-apiserver and
// kubelet send theirs. It is off unless the server is given a file for it, and then costs nothing: no request allocates
// for it.
//
//	filter -> decide                          a span for each request about the pod
//	prioritize, preempt, admission -> decide
//	reserve -> decide, writes to the API server
//	bind -> decide, HTTP POST                 the Binding, as it is written
//	bound                                     from the pod's creation until the watch told of its node
//
// # One pod, one trace
//
// The trace ID is made of the pod's UID (TraceID). So all that any server was asked about a pod is in one trace,
// however often it was tried and whoever led, nothing has to be remembered or sent along for it, and whoever has the
// pod has the trace. The sampler goes by the trace ID: it takes all spans of a pod or none.
// A span of a gang's request has a trace of its own; each of its pods has a span that links to it.
//
// # What a caller may do
//
// This is a public endpoint in the words of OpenTelemetry: a traceparent in a request becomes a link, so that who
// traces his scheduler gets from here to there. It is no parent: whether anything is sampled is not the caller's to
// say.
//
// What lies where: tracer.go starts spans, config.go reads the file.
package tracing
