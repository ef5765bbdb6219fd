// Package httpjson is what every HTTP handler of GlobalReserve shares: the bounded decoding of a JSON request, the
// writing of a JSON answer, and wrappers that count requests and stop panics. It knows nothing of nodes, pods or
// reservations. A handler stays thin:
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
// JSON means what it means to encoding/json, as for kube-scheduler, but text must be valid UTF-8, and nesting is
// bounded. The decoder underneath is github.com/go-json-experiment/json, which is about three times as fast.
//
// An Intake bounds the memory of all requests, half of it for one caller, how long one may be read or sent, and how
// many a caller has under way and sends in a second.
package httpjson
