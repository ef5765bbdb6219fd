// Package gangs has gangs scheduled by schedulers that know nothing of GlobalReserve and bind one pod after another,
// under the admission webhook: kube-scheduler with Coscheduling, as scheduler-plugins builds it, Volcano and YuniKorn,
// each beside a kube-scheduler behind the extender. It needs what `make build coscheduler volcano yunikorn controlplane`
// makes.
package gangs
