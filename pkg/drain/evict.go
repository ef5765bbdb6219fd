package drain

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// patience is how long a pod may take that is made for another one, until its owner is named.
const patience = 30 * time.Second

// errNoPlace is that the place of a pod is gone.
var errNoPlace = errors.New("its place is gone")

// moving is a pod that is being evicted.
type moving struct {
	*Drain
	pod    *Pod
	placed bool // it needs a place, and has one
	// before is what its owner had just before the eviction, and places how many slots were open; nil where somebody else
	// has deleted the pod.
	before *standing
	places int
	// at is the Reservation with its place, shown that which says what the pod waits for, and said what that is.
	at, shown *v1alpha1.Reservation
	said      string
}

// move evicts a pod that has a place, and waits until the one that is made for it is bound. A pod whose place is gone
// by now stays for the next plan.
func (d *Drain) move(ctx context.Context, pod *Pod) error {
	m := &moving{Drain: d, pod: pod, placed: pod.needsPlace() && pod.To != ""}
	defer m.show(context.WithoutCancel(ctx), "")
	switch err := m.evict(ctx); {
	case errors.Is(err, errNoPlace):
		return nil
	case err != nil:
		return fmt.Errorf("evicting pod %s: %w", pod, err)
	}
	what := "evicted"
	if m.placed && m.before != nil {
		var err error
		if what, err = m.await(ctx); err != nil {
			return fmt.Errorf("waiting for what is made for pod %s: %w", pod, err)
		}
	} else if pod.needsPlace() && !m.placed {
		what = "evicted without a place: " + pod.Why
	}
	d.mu.Lock()
	if d.moved++; pod.needsPlace() && !m.placed {
		d.unplaced++
	}
	d.mu.Unlock()
	d.say("pod/%s %s\n", pod, what)
	return nil
}

// evict evicts the pod once its PodDisruptionBudgets allow it, and waits until it is gone. That may take hours: each
// try looks first whether the place is there still. kubectl's own helper names no UID: after a wait it might evict the
// pod of a StatefulSet that was made for this one.
func (m *moving) evict(ctx context.Context) error {
	pods, name := m.Kube.CoreV1().Pods(m.pod.Namespace), m.pod.Pod
	eviction := &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.pod.Namespace, Name: name},
		DeleteOptions: &metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(m.pod.UID), GracePeriodSeconds: m.GracePeriod,
		},
	}
	return wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		now, err := pods.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && string(now.UID) != m.pod.UID:
			return true, nil
		case err == nil && now.DeletionTimestamp != nil:
			return false, nil
		case err == nil:
			err = m.look(ctx)
		}
		if err == nil {
			err = m.Kube.PolicyV1().Evictions(m.pod.Namespace).Evict(ctx, eviction)
			if err == nil {
				m.show(ctx, "")
			}
		}
		if apierrors.IsTooManyRequests(err) || apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) ||
			apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			m.waits(err)
			return false, nil
		}
		return false, unlessPassing(err)
	})
}

// look looks whether the node is to be drained and the place there still, and what the owner has.
func (m *moving) look(ctx context.Context) (err error) {
	if err := m.takenBack(ctx, m.pod.Node); err != nil || !m.placed {
		return err
	}
	if m.places, m.at, err = m.open(ctx, m.pod); err != nil {
		return err
	}
	m.show(ctx, m.said)
	if m.at == nil {
		return errNoPlace
	}
	m.before, err = m.standing(ctx, m.pod.maker())
	return err
}

// show writes on the Reservation with the pod's place what the pod waits for, and takes it off another one.
func (m *moving) show(ctx context.Context, waitsFor string) {
	if m.shown != nil && (m.at == nil || m.at.UID != m.shown.UID) {
		m.mark(ctx, m.shown, "")
	}
	if m.shown = m.at; m.at != nil {
		m.mark(ctx, m.at, waitsFor)
	}
}

// waits says, once, why the pod is not evicted yet. The next look writes it on the Reservation.
func (m *moving) waits(err error) {
	if text := fmt.Sprintf("pod/%s has to wait: %v", m.pod, err); apierrors.IsTooManyRequests(err) && m.said != text {
		m.said = text
		m.complain("%s\n", text)
	}
}

// unlessPassing returns an error, unless the API server may answer otherwise in a moment.
func unlessPassing(err error) error {
	if apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsProbableEOF(err) {
		return nil
	}
	return err
}

// await waits until the owner has as many pods as before, or as it is to have, and no more of them wait than before. It
// returns in words what became of the pod.
func (m *moving) await(ctx context.Context) (what string, err error) {
	if !m.before.known {
		return m.awaitUse(ctx)
	}
	began, said := time.Now(), false
	err = wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		if err := m.takenBack(ctx, m.pod.Node); err != nil {
			return false, err
		}
		now, err := m.standing(ctx, m.pod.maker())
		if err != nil {
			return false, unlessPassing(err)
		}
		if !said && time.Since(began) > patience {
			said = true
			text := fmt.Sprintf("pod/%s was evicted, and %s has %d of %d pods, %d of them without a node: see kubectl reserve "+
				"pending", m.pod, m.pod.maker(), len(now.pods), now.wants, now.count(unbound))
			m.complain("%s\n", text)
			m.show(ctx, text)
		}
		what = "evicted; its owner makes no other"
		if made := now.since(m.before); made != nil {
			what = fmt.Sprintf("evicted; %s is on %s", made.Name, made.Spec.NodeName)
		}
		return now.settled(m.before, m.UntilReady), nil
	})
	return what, err
}

// awaitUse waits, not for ever, until one of the places is used that were open before: of an owner that does not say
// how many pods it is to have.
func (m *moving) awaitUse(ctx context.Context) (what string, err error) {
	err = wait.PollUntilContextTimeout(ctx, poll, lastPods, true, func(ctx context.Context) (bool, error) {
		if err := m.takenBack(ctx, m.pod.Node); err != nil {
			return false, err
		}
		open, _, err := m.open(ctx, m.pod)
		return err == nil && open < m.places, unlessPassing(err)
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Sprintf("evicted; no other has come within %v", lastPods), nil
	}
	return "evicted; another one has its place", err
}
