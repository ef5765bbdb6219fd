// Package contract has no code. Its tests run one suite against both implementations of reserver.Reserver: that of
// pkg/http/rest, in the server's process, and pkg/client over REST. What the client does by itself is tested beside
// it, in its own module, with the oldest versions it works with.
package contract
