// Package forward lets any server of a cluster answer any request: a server that does not decide passes it on
// to the one that does.
//
//	client -> follower: Handler -> leader: peer listener -> the same routes
//
// # Who trusts whom
//
// Each server makes a key at its start (key.go), which it never writes down. Servers connect by TLS, where each
// side proves that it has its key. Which keys count is written in the LedgerTerm (servers.go): the leader's with
// the term, those of all servers in the status. So anybody who may write that object can speak as a server, and
// nobody else can. Names, authorities and dates of certificates say nothing here. The leader checks the key for
// each request, and not only for each connection, so a key counts no longer than it is listed.
//
// What comes by the peer listener is never passed on: there can be no loop.
//
// # When a request is sent again
//
//	no connection was made              the request was not sent: it waits for a leader
//	the other server does not decide    it says so, and has done nothing: the request waits for a leader
//	no answer came                      it is not known what was done: the client is told so
//
// A server that stops hands over: it answers the requests that came before, and passes later ones on to the next
// leader, like any other server.
//
// A request waits for a bounded time, and a bounded number of requests do. The body is read before anything is
// sent, within a bound for each request and one for all, so that it can be sent more than once.
package forward
