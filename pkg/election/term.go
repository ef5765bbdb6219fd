package election

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// Term is the number of a leadership. 0 is that of a server whose cluster has no
// definition of LedgerTerm: its writes carry none.
type Term int64

// Annotate returns the annotations with the term; annotations may be nil, and are
// changed.
func (t Term) Annotate(annotations map[string]string) map[string]string {
	if t == 0 {
		return annotations
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.TermAnnotation] = strconv.FormatInt(int64(t), 10)
	return annotations
}

// raise begins a term. It returns 0 where the cluster has no definition of LedgerTerm. It gives up where
// somebody else raises it meanwhile; that another server tells of itself in the status is no reason to.
func (e *Elector) raise(ctx context.Context) (Term, error) {
	var first, written *v1alpha1.LedgerTerm
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		last, err := e.o.Terms.Get(ctx, v1alpha1.LedgerTermName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			last = nil
		case err != nil:
			return err
		case first != nil && first.Spec.Term != last.Spec.Term:
			return fmt.Errorf("server %s has raised it to %d meanwhile", last.Spec.Leader, last.Spec.Term)
		}
		first = last
		written, err = e.write(ctx, last)
		return err
	})
	switch {
	case err == nil:
		return Term(written.Spec.Term), nil
	case notInstalled(err):
		return 0, nil
	default:
		return 0, fmt.Errorf("raising the term in LedgerTerm %s: %w", v1alpha1.LedgerTermName, err)
	}
}

// write writes the term after the last one, unless the object has changed since; last is nil where there is
// none.
func (e *Elector) write(ctx context.Context, last *v1alpha1.LedgerTerm) (*v1alpha1.LedgerTerm, error) {
	if last == nil {
		first := e.newTerm(time.Now().Unix()) // not 1: a term must grow even where somebody deletes the object
		return e.o.Terms.Create(ctx, first, metav1.CreateOptions{})
	}
	next := last.DeepCopy()
	next.Spec = e.newTerm(last.Spec.Term + 1).Spec
	return e.o.Terms.Update(ctx, next, metav1.UpdateOptions{})
}

// keep looks after the term of a leadership: without its object, which goes with the definition of its kind, the API
// server refuses what carries a term. ErrLost says that there is a later term.
func (e *Elector) keep(ctx context.Context, led *leadership) error {
	own := led.term.Load()
	if own == 0 { // the definition may have come meanwhile
		term, err := e.raise(ctx)
		if err != nil {
			e.o.Log.WithError(err).Warn("what this server writes carries no term yet")
			return nil
		}
		led.term.Store(int64(term))
		return nil
	}
	found, err := e.o.Terms.Get(ctx, v1alpha1.LedgerTermName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !notInstalled(err) {
		found = e.newTerm(own)
		_, err = e.o.Terms.Create(ctx, found, metav1.CreateOptions{})
	}
	switch {
	case err != nil:
		e.o.Log.WithError(err).WithField("term", own).Warn("could not look after the term")
	case found.Spec.Term > own:
		return ErrLost
	}
	return nil
}

func (e *Elector) newTerm(term int64) *v1alpha1.LedgerTerm {
	return &v1alpha1.LedgerTerm{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LedgerTermName},
		Spec:       v1alpha1.LedgerTermSpec{Term: term, Leader: e.o.Identity, URL: e.url, PublicKey: e.publicKey, Since: metav1.Now()},
	}
}

// notInstalled reports whether an answer says that the cluster has no definition of a
// kind: such a 404 names no object.
func notInstalled(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == ""
}
