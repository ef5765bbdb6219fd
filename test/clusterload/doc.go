/*
Package clusterload puts load on a real control plane and judges what became of it. The demo and the
end-to-end tests share it: what the one shows is what the other checks.

	watcher := clusterload.NewWatcher(cp.Client())
	err := watcher.Start(ctx)
	defer watcher.Stop()
	pods := clusterload.Race(clusterload.RaceOptions{...})
	err = clusterload.CreatePods(ctx, cp.Client(), pods)
	snapshot, err := watcher.AwaitSettled(ctx, 2*time.Second)
	violations := watcher.Violations()

What lives where:

  - watcher.go  follows pods and nodes from the API server, event by event
  - account.go  the account behind it: what is bound to each node, against what the node offers
  - verdict.go  what may be asked of a Watcher: overcommit, the worst moment, counts
  - fit.go      which pending pods would fit, so that "nothing is stuck" can be checked
  - settle.go   waits until nothing is left to do
  - workload.go makes pods and gangs of pods; apply.go creates and deletes them
  - server.go   runs the globalreserve binary with the rights of its manifests;
    schedulerconfig.go puts a configuration of scheduler-config/ in front of it
  - gangscheduler.go  runs the example gang scheduler as a process

The verdict comes from the API server alone and never from the GlobalReserve server: of the product
the package uses only pkg/resources, which is checked against kube-scheduler's own arithmetic.
*/
package clusterload
