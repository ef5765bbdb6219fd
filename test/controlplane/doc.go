/*
Package controlplane runs a real Kubernetes control plane on the loopback interface for tests, the
demo and the benchmarks: etcd, kube-apiserver and, where asked for, kube-controller-manager, kwok
and any number of kube-schedulers. Nothing is installed; the binaries come from test/binaries and
are built on first use.

	cp := controlplane.StartT(t, controlplane.Options{Workloads: true})
	names, err := cp.CreateNodes(ctx, 50, controlplane.NodeTemplate{})
	err = cp.StartScheduler(ctx, "scheduler-a", config)
	err = cp.Kill(controlplane.APIServer)
	err = cp.StartPart(ctx, controlplane.APIServer)

Tests that break nothing share one, which is empty again at the beginning of each:

	var shared controlplane.Shared
	func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }
	cp := shared.StartT(t)

What lives where:

  - controlplane.go  the ControlPlane type: Start, Stop, and each part by name
  - parts.go         the command line of each part; scheduler.go for kube-scheduler
  - shared.go        one control plane for the tests of a package; tenant.go: what each of them has of it
  - state.go         removes what a test left behind, and sees it gone; etcd.go reads and deletes it
  - process.go       Process: any program, started, watched and ended without leaving anything behind
  - identity.go      kubeconfigs and rest.Configs per user, signed by an authority of its own
  - nodes.go         fake nodes and namespaces; apply.go: objects of any kind, from YAML
  - faultproxy.go    a proxy in front of the API server that holds requests back, or loses them
  - ports.go         ports that no second control plane on this machine is given
  - binaries.go      finds or builds the binaries

A ControlPlane owns every process it starts and one directory with their data, certificates,
kubeconfigs and logs. Stop ends the processes and removes the directory; the logs stay when a start
failed or KeepLogs was called, which StartT does for a failed test. Everything listens on 127.0.0.1
only. etcd speaks plain HTTP there: the harness is for test data, on machines whose users trust each
other.

The package may import client-go, the standard library and test/authority, never k8s.io/kubernetes and never the
product's own packages, so that a fault in the product cannot hide in its own test bed.
*/
package controlplane
