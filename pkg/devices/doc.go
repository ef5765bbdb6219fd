/*
Package devices decides which devices of a node a pod's claims are given. It knows nothing of pods,
of who has which device, or of the API server: whoever keeps the account tells it what is free.

Everything is made once and never changed: a Request when its claim is seen, a Pool when the devices
of a node change. A pool remembers how requests match its devices, so that asking again, for the same
claim or another of the same selector, costs a few operations on bits and allocates nothing.

# When devices fit

Requests fit when every request can be given count devices that are free, of its resource and
selected by its selector, those it names among them, and no device is given twice. This is a matching
in a bipartite graph, and Fits finds one wherever there is one: a request that could use several
devices makes way for one that can use only one of them.

# Which devices are chosen

Of all the ways to serve the requests, Choose takes the one that is best by the first of these that
tells them apart, each a sum over all chosen devices:

 1. fewest devices from outside the preferred set (those held for the pod);
 2. fewest wasted properties: properties of a device whose key the request's selector does not name.
    A request for any GPU is given the plainest, so that the special ones are left for those that ask
    for them;
 3. least excess, for requests with Gt and Lt: of the devices the request selects, whether free or
    not, those the requirement's bound is closer to come first. What counts is the number of different
    amounts between the bound and the device's own;
 4. names: the first request's devices, in order of their names, are the least of those that are left,
    then the second's, and so on. So the choice depends on nothing but the question.

The algorithm is that of successive shortest paths: one device after another is given to a request,
each time by the chain of exchanges between requests that costs the least. Ties are then settled by
exchanges that cost nothing. The package's tests compare it with trying everything.

Nothing in this package may do I/O, read a clock or import client-go.
*/
package devices
