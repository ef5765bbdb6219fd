/*
Package testbed is what the end-to-end tests of all folders have in common: how a server is started and
what is shown of it where a test fails, how it is asked, and how pods, objects and the verdict are reached.
What a test makes of the answers is its own.

  - cluster.go  Cluster: a control plane in the hands of one test, with a server and what judges it
  - pods.go     creates, binds and awaits pods; objects.go does so with our kinds, and reads Events
  - load.go     a random load on a server that is killed again and again
  - service.go  one address for several servers, as a Service of Kubernetes is
  - testbed.go  the server's process, and programs and files of the repository
  - ask.go      questions to a server; the paths are written here
  - metric.go   reads the server's metrics

Verdicts still come from the API server (see package e2e): nothing here decides what is right.
*/
package testbed
