// Package ui serves the live page: who uses what of each node, who waits and why, what is reserved, and who was
// refused.
//
// The page's sources are in web/, in TypeScript. What is built from them is in dist/, which is committed, so that the
// server builds with Go alone; `make ui` builds it anew, and `make web-test` fails where it is not what the sources
// say.
//
// A Handler passes on only GET requests, for the routes that the page asks; the program that serves it decides whose
// rights they have. The page asks what would be if a pod were gone, which is a POST elsewhere: GET /v1/whatif becomes
// that here, and it changes nothing there either.
package ui
