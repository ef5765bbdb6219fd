// Package tracing makes the spans of a pod's way from filter to Bound, and sends them by OTLP (docs/tracing.md). It is
// off unless the server is given a file for it, and then no request allocates for it. tracer.go starts spans, config.go
// reads the file.
//
//	filter -> decide                          a span for each request about the pod
//	prioritize, preempt, admission -> decide
//	reserve -> decide, writes to the API server
//	bind -> decide, HTTP POST                 the Binding, as it is written
//	bound                                     from the pod's creation until the watch brought its node
//
// The trace ID is made of the pod's UID (TraceID), so nothing has to be remembered or sent along. The sampler goes by
// it, and takes all spans of a pod or none. A span of a gang's request has a trace of its own; each of its pods has a
// span that links to it. A traceparent in a request becomes a link and no parent: the caller does not decide
// whether anything is sampled.
package tracing
