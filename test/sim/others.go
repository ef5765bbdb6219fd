package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/core"
)

// others are the webhooks of others, which the API servers ask after all else: they hold up what servers have granted,
// or refuse it. It implements admission.ValidationInterface.
type others struct {
	cluster *Cluster

	mu      sync.Mutex // guards what follows
	random  *rand.Rand
	trouble int // of a hundred requests
}

var errRefused = errors.New("another webhook does not want that")

// Handles implements admission.Interface.
func (o *others) Handles(admission.Operation) bool { return true }

// Validate implements admission.ValidationInterface.
func (o *others) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	created, _ := a.GetObject().(*core.Pod)
	switch a.GetResource().Resource + "/" + a.GetSubresource() {
	case "pods/binding", "pods/resize", "resourceclaims/status":
	case "pods/":
		if a.GetOperation() != admission.Create || created.Spec.NodeName == "" {
			return nil
		}
	default:
		return nil
	}
	held, refused := o.draw()
	refused = refused && ctx.Value(isRepeated) == nil
	if held == 0 {
		return nil
	}
	o.cluster.note("others", "hold up %s %s for %s; refuse it: %t", a.GetName(), a.GetSubresource(), held, refused)
	select {
	case <-time.After(held):
	case <-ctx.Done():
		return ctx.Err()
	}
	if refused {
		return admission.NewForbidden(a, errRefused)
	}
	return nil
}

// draw draws for how long a request is held up, and whether it is refused then.
func (o *others) draw() (held time.Duration, refused bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.random.IntN(100) >= o.trouble {
		return 0, false
	}
	held = milliseconds(o.random, usualLag) + time.Millisecond
	if o.random.IntN(2) == 0 {
		held = milliseconds(o.random, longestHeld)
	}
	return held, o.random.IntN(3) == 0
}

// longestHeld is in milliseconds, and nearly as long as those wait who ask.
const longestHeld = 9000

func (o *others) setTrouble(percent int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.trouble = percent
}
