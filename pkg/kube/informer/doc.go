/*
Package informer is the skeleton of whatever follows objects of the API server and makes the ledger, or other objects,
follow them. It knows nothing of what the objects mean. Its parts:

  - Definitions, Kind  which kinds the API server knows: they are installed and removed at any time
  - Source, Watch      list and watch all objects of some kinds, for as long as these are installed
  - Pulse              how long ago a watch last received anything, and what to do where that is too long
  - Queue              workers, with pauses that grow after failures
  - Journal            the ledger's events, each once and in order
  - Events             Events on objects, so many per second and no more

Constructors start nothing. Each part has one blocking Run, which returns when its context ends and all that it started
has ended.

A process has one Definitions. Code that depends on a kind asks Kind.Installed each time before it acts, and calls Doubt
where a 404 shows that the answer may be wrong. Where the objects have to be known as well, it asks Watch.Listed. When a
definition is removed, the Watch reports each object as gone, and begins anew when the definition is back.
*/
package informer
