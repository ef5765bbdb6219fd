// Package contract has no code. Its tests run one suite against pkg/http/rest, asked by pkg/client in the server's own
// process and over a network. What the client does by itself is tested beside
// it, in its own module, with the oldest versions it works with.
package contract
