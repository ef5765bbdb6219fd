// Package app is the composition root of the GlobalReserve server: the only package that knows all the others. It turns
// Options into a running server (App) and stops it again without losing a bind.
//
// Nothing is decided here. A new part of the server is built in its own package, and wired up in build.go. Where a part
// has to notify one that is built later, it calls a method of the App in callbacks.go.
package app
