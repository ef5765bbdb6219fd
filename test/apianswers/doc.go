/*
Package apianswers asks an API server what is written down in testdata/answers.txt, and writes down what it answers.
It was recorded from a real kube-apiserver. The one in memory that clusters are simulated with (test/sim/fakekube) has
to give the same answers, which its tests look at, and so has the real one (make e2e).

	go test -tags e2e ./test/apianswers -args -update

records anew. What lives where:

  - play.go          asks, step by step, and writes down the answers
  - names.go         calls UIDs and versions by their order, and times T
  - testdata         the steps with their answers

A record is a list of steps. Each is a request, with its body in indented lines, then a line of four dashes, then the
answer up to an empty line. Lines that begin with # are comments.

A body is JSON, or it is a file of the repository and which of its documents; what such a step creates is not told.
After the path come words that say in which form something is sent and asked for: see forms. UNTIL 200 before a request
has it repeated until that is the status, WATCH 3 has so many events of a watch read. COMPACT and RESTART are of the
server that is asked.

Of an object that was seen before only what is different now is written down. uid2 is the second UID that was seen, v3
the third version of an object. >=v3 is a version that is not older than that, and older than the next: those of lists
and bookmarks go on with whatever else is written. In requests they are called the same with a $, and $continue is what
the last list said that goes on.
*/
package apianswers
