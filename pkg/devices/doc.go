// Package devices decides which devices of a node a pod's claims are given. It knows nothing of pods, of who has which
// device, or of the API server: its callers say what is free. A Request and a Pool never change, and a pool remembers
// how requests match its devices, so asking again allocates nothing.
//
// Requests fit when each can be given count devices of its resource that are free and that its selector selects, those
// it names among them, and none is given twice. Fits finds such a matching wherever there is one. Choose gives each
// request in turn the best devices that leave enough for the requests after it:
//
//  1. those of the preferred set (held for the pod): no others at all where these are enough for all requests;
//  2. those with the fewest wasted properties, whose key the request's selector does not name;
//  3. for Gt and Lt, those closest to the bound;
//  4. those with the first names.
//
// Tests compare it with trying everything. Nothing in this package may do I/O, read a clock or import client-go.
package devices
