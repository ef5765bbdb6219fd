// Package forward lets any server of a cluster answer any request: a server that does not decide passes it on to the
// one that does. What comes by the peer listener is never passed on, so there is no loop.
//
//	client -> follower: Handler -> leader: peer listener -> the same routes
//
// Servers connect by TLS, where each side proves that it has its key (key.go). Which keys count is written in the
// LedgerTerm (servers.go; docs/decisions/0009). Names, authorities and dates of certificates say nothing here. The
// leader checks the key for each request, so one counts no longer than it is listed.
//
// When a request is sent again:
//
//	no connection was made              the request was not sent: it waits for a leader
//	the other server does not decide    it says so, and has done nothing: the request waits for a leader
//	no answer came                      it is not known what was done: the client gets that as its answer
//
// The number of waiting requests is bounded, and so is their wait. The body is read before anything is sent, within a
// bound for each request and one for all, so that it can be sent more than once.
package forward
