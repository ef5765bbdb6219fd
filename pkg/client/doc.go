// Package client is a reserver.Reserver that asks a GlobalReserve server over REST, with Bind and some reads besides.
// It is what a scheduler in a process of its own uses.
//
//	c, err := client.New(client.Options{URL: "http://127.0.0.1:23456"})
//	...
//	answer, err := c.Reserve(ctx, &reserver.Request{SchedulerName: "mine", Pods: pods, Nodes: nodes})
//
// A request whose answer is lost, or that a server cannot answer now, is sent again: with growing pauses, until ctx
// ends or Options.RetryFor is over. All tries of a Reserve or Unreserve have the same RequestID, made up here if the
// caller gives none, so the server carries it out once. A request that may have been carried out ends with an answer
// or a *reserver.UnknownOutcomeError, never as if it had not been sent.
//
// Where no repeat helps, as with a host that does not exist or a certificate of an unknown authority, the error comes
// at once: it is Permanent, and says what to mend. Once the server has answered, that is tried again, too.
//
// What may be touched: retry.go decides what is sent again, http.go what the server's answers mean, options.go says
// whom to trust, inside.go asks a server in this process. pkg/http/rest/contract runs one suite over a network and
// without: what both must do goes there.
package client
