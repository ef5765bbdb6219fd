// Package gangs has gangs scheduled by schedulers that know nothing of GlobalReserve and bind one pod after another,
// under the admission webhook: kube-scheduler with Coscheduling, as scheduler-plugins builds it, beside a
// kube-scheduler behind the extender. It needs what `make build coscheduler controlplane` makes.
package gangs
