// Package devices decides which devices of a node a pod's claims are given. It knows nothing of pods, of who has which
// device, or of the API server: its callers say what is free. A Request and a Pool never change, and a pool remembers
// how requests match its devices, so asking again allocates nothing.
//
// Requests fit when each can be given count devices of its resource that are free and that its selector selects, those
// it names among them, and none is given twice. Fits finds such a matching wherever there is one. Of all of them Choose
// takes the best by the first of these sums over the chosen devices:
//
//  1. fewest from outside the preferred set (those held for the pod);
//  2. fewest wasted properties: those whose key the request's selector does not name;
//  3. least excess, for Gt and Lt: of the devices that the request selects, free or not, those closer to the bound
//     first. What counts is the number of different amounts between the bound and the device's own;
//  4. names: the first request's devices are the least of those that are left, then the second's, and so on.
//
// The algorithm is that of successive shortest paths. Tests compare it with trying everything. Nothing in this package
// may do I/O, read a clock or import client-go.
package devices
