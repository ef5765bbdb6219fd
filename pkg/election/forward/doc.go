// Package forward lets any server of a cluster answer any request: a server that does not decide passes it on
// to the one that does.
//
//	client -> follower: Handler -> leader: peer listener -> the same routes
//
// # Who trusts whom
//
// Each server makes a key at its start (key.go), which it never writes down. Servers connect by TLS, where each
// side proves that it has its key. Which keys count is written in the LedgerTerm (servers.go): the leader's with
// the term, those of all servers in the status. So whoever may write that object can speak as a server, and
// nobody else can. Names, authorities and dates of certificates say nothing here. The leader looks at the key of
// each request and not of each connection, so a key counts no longer than it is listed.
//
// What comes by the peer listener is never passed on: there can be no loop.
//
// # When a request is sent again
//
//	no connection was made       it was not sent: it waits for a leader
//	the other does not decide    it says so, and has done nothing: it waits for a leader
//	no answer came               nobody knows what was done: the client is told so
//
// A server that stops hands over: it answers what it was asked before, and what comes then it passes on like any
// other server, to the next leader.
//
// A request waits for a bounded time, and a bounded number of requests do. The body is read before anything is
// sent, within a bound for each request and one for all, so that it can be sent more than once.
package forward
