package election

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// FenceName is the name of the ValidatingAdmissionPolicy and of its binding.
const FenceName = "globalreserve-fence"

const (
	// fenceTimeout is how long an installed fence may take to refuse the old term: API
	// servers watch its parameter, and are behind by milliseconds.
	fenceTimeout = 2 * time.Second
	fencePoll    = 20 * time.Millisecond
	// fenceSpread is how much longer another API server than the one that was asked may take.
	fenceSpread = 250 * time.Millisecond
	// probePod is a pod that does not exist: a Binding for it can only be refused.
	probePod = "globalreserve-fence-probe"
)

// Fence says whether the API server refuses what an earlier leader sends.
type Fence struct {
	Up bool
	// Why is why it is not up, and what to do.
	Why string
}

// prove returns once the API server refuses what was decided before a term, or once it is known that it will not.
func (e *Elector) prove(ctx context.Context, term Term) (Fence, error) {
	if term == 0 {
		return noTerm, nil
	}
	_, err := e.o.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().
		Get(ctx, FenceName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Fence{Why: "the ValidatingAdmissionPolicyBinding " + FenceName +
			" is not installed: apply manifests/base/fence.yaml"}, nil
	}
	var last error
	_ = wait.PollUntilContextTimeout(ctx, fencePoll, fenceTimeout, true, func(ctx context.Context) (bool, error) {
		last = Probe(ctx, e.o.Client, e.o.Namespace, term-1)
		return Refused(last), nil
	}) // the last answer says how it ended
	if ctx.Err() != nil {
		return Fence{}, ctx.Err()
	}
	if !Refused(last) {
		return noRefusal(last), nil
	}
	return Fence{Up: true}, sleep(ctx, fenceSpread)
}

// noTerm is the fence of a cluster that knows no terms.
var noTerm = Fence{Why: "the cluster has no definition of LedgerTerm: install manifests/crd"}

// noRefusal is the fence of a cluster that does not refuse a late Binding as the policy would.
func noRefusal(answer error) Fence {
	return Fence{Why: fmt.Sprintf("the ValidatingAdmissionPolicy %s does not refuse a Binding of an earlier term: "+
		"apply manifests/crd and manifests/base/fence.yaml, and let the server create pods/binding: %v", FenceName, answer)}
}

// Refused reports whether an answer of Probe is the fence's.
func Refused(answer error) bool {
	return apierrors.IsInvalid(answer) && strings.Contains(answer.Error(), FenceName)
}

// look finds out once more whether the fence is up: its parts may go, and come back, while a server decides. The next
// leader looks for itself, and decides by that how long it waits.
func (e *Elector) look(ctx context.Context, led *leadership) {
	last, now := *led.fence.Load(), noTerm
	if term := e.term.Get(); term != 0 {
		switch answer := Probe(ctx, e.o.Client, e.o.Namespace, term-1); {
		case Refused(answer):
			now = Fence{Up: true}
		case apierrors.IsNotFound(answer), apierrors.IsForbidden(answer): // of the pod, or of the server's rights
			now = noRefusal(answer)
		default:
			return // only these answers say anything of the fence
		}
	}
	led.fence.Store(&now)
	switch {
	case last.Up && !now.Up:
		e.o.Log.Warn("the API server does not refuse late writes any more: " + now.Why)
	case !last.Up && now.Up:
		e.o.Log.Info("the API server refuses late writes from now on")
	}
}

// Probe sends a Binding that carries a term, for a pod that does not exist, so that nothing can change. It returns the
// API server's answer: NotFound, where the fence lets it pass.
func Probe(ctx context.Context, client kubernetes.Interface, namespace string, term Term) error {
	return client.CoreV1().Pods(namespace).Bind(ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: probePod, Annotations: term.Annotate(nil)},
		Target:     v1.ObjectReference{Kind: "Node", Name: probePod},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
