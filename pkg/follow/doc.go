/*
Package follow is the skeleton of whatever follows objects of the API server and makes the ledger, or
other objects, follow them. It knows nothing of what the objects mean. Its parts:

  - Definitions, Kind  which kinds the API server knows: they are installed and removed at any time
  - Source, Watch      list and watch all objects of some kinds, for as long as these are installed
  - Pulse              how long ago a watch last said anything, and what to do where that is too long
  - Queue              workers, with pauses that grow after failures
  - Journal            the ledger's events, each once and in order
  - Events             Events on objects, so many per second and no more

Constructors start nothing. Each part has one blocking Run, which returns when its context ends and all
that it started has ended.

# Whether a kind is there

A process has one Definitions. Code that depends on a kind keeps a Kind of it and asks Installed before it
acts, every time: the answer is at most askAgain old. Where a 404 of the API server shows that the answer may
be wrong, the code calls Doubt, and the API server is asked at once.

	kind := definitions.Kind("reservations")
	if !kind.Installed() {
		return errNoDefinition
	}

Where the objects themselves have to be known as well, ask Watch.Listed: the kind is installed, and
every object there is has been told of.

# When a kind goes

The objects of a kind go with its definition. A Watch then tells of each object it knew that it is gone,
and begins anew when the definition is back. Both are noticed within askAgain.
*/
package follow
