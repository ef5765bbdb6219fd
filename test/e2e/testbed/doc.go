/*
Package testbed is what the end-to-end tests of all folders have in common: how a server is started and
what is shown of it where a test fails, how it is asked, and how pods, objects and the verdict are reached.
What a test makes of the answers is its own.

  - cluster.go  Cluster: a control plane in the hands of one test, with a server and what judges it
  - pods.go     creates, binds and awaits pods; objects.go does so with our kinds, and reads Events
  - testbed.go  the server's process, and programs and files of the repository
  - ask.go      questions to a server, its metrics, refusals and changes; the paths are written here

Verdicts still come from the API server (see package e2e): nothing here decides what is right.
*/
package testbed
