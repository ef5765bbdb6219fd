// Package httpjson is what every HTTP handler of GlobalReserve shares: the bounded decoding of a
// JSON request, the writing of a JSON answer, and the wrappers around a handler that count
// requests and stop panics.
//
// It knows HTTP and JSON and nothing of nodes, pods or reservations, and imports no other package
// of this module but pkg/resources, which reads quantities. A handler built on it stays thin:
//
//	var args extenderv1.ExtenderArgs
//	release, err := intake.Decode(w, r, maxBody, &args)
//	defer release()
//	if err != nil {
//		httpjson.WriteError(w, err)
//		return
//	}
//	httpjson.Write(w, http.StatusOK, filter(&args))
//
// # JSON dialect
//
// Bodies are read and written with the semantics of encoding/json, because that is what
// kube-scheduler and the other clients of the extender protocol use: field names match in any
// case, unknown fields are allowed, the last of two equal names wins, nil slices are null. Two
// things are stricter: text must be valid UTF-8, and nesting is bounded. The decoder underneath is
// github.com/go-json-experiment/json, which reads a filter call about three times as fast as
// encoding/json (see the benchmarks).
//
// # What a client can take
//
// An Intake bounds what all requests together take, and what those of one caller do, which is half of it. Who sends or
// reads slowly has a limited time: three seconds, and one more for each 4 MiB. A caller has a number of requests under
// way, and in a second; what that is, and why no scheduler meets it, is written where it is set (maxInFlight, maxRate).
package httpjson
