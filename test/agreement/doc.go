// Package agreement holds no product code. Its tests compare the ledger's answers with those of the scheduler that is
// built into Kubernetes: the NodeResourcesFit and NodePorts plugins, run on kube-scheduler's own NodeInfo, and the API
// server's defaulting of pods. The account of DRA devices is compared with kube-scheduler's allocator.
//
// It is a module of its own because it needs k8s.io/kubernetes, which no other package may import.
package agreement
