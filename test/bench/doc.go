/*
Package bench measures the product as a user meets it: bin/globalreserve as a process of its own, behind
a real kube-scheduler, API server and etcd on the same machine. What the parts cost for themselves is
measured in the packages they live in. README.md says how to run the benchmarks and how to read them.
There is nothing here to import.

What lives where:

  - rate_test.go    pods per second of a kube-scheduler: alone, with an extender that does nothing,
    with GlobalReserve
  - http_test.go    processor time of a filter call, wall time of a large /reserve
  - backlog_test.go   pods that fit beside thousands that wait
  - conflicts_test.go, market_test.go  several schedulers with nothing between them, with pools, with GlobalReserve
  - failover_test.go  how soon a follower decides
  - memory_test.go  memory, and time to be ready, with 5,000 nodes and 150,000 pods
  - cluster_test.go, pods_test.go  what they share
  - passthrough/    the extender that does nothing
*/
package bench
