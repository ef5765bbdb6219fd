package arbiter

import "github.com/globalreserve/globalreserve/pkg/cluster"

// ready returns why nothing can be decided now, nil where decisions can be made.
func (a *Arbiter) ready() *Error {
	if why := a.o.Undecided(); why != "" {
		return &Error{Outcome: NotReady, Why: why}
	}
	return nil
}

// pass says whether a pod may be given capacity on a node at all, before the ledger
// is asked whether it has any. Every integration path that grants comes through
// here: a new rule about who may have what is one more gate in this list.
func (a *Arbiter) pass(pod *cluster.Pod, node string) error {
	for _, gate := range gates {
		if err := gate(a, pod, node); err != nil {
			return err
		}
	}
	return nil
}

// gates are asked in this order; the first refusal counts.
var gates = []func(a *Arbiter, pod *cluster.Pod, node string) error{
	func(a *Arbiter, pod *cluster.Pod, node string) error {
		if err := a.ready(); err != nil {
			return err.of(pod.Ref, node)
		}
		return nil
	},
}
