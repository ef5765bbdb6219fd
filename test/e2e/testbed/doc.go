/*
Package testbed is what the end-to-end tests of all folders have in common: how a server is started and
what is shown of it where a test fails, how it is asked, and how its objects and the verdict are reached.
What a test makes of the answers is its own.

  - testbed.go  the server, the clients and the watcher of a test
  - ask.go      questions to a server; the paths are written here
  - metric.go   reads the server's metrics

Verdicts still come from the API server (see package e2e): nothing here decides what is right.
*/
package testbed
