package election

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// raise begins a term. It returns 0 where the cluster has no definition of LedgerTerm.
func (e *Elector) raise(ctx context.Context) (Term, error) {
	next := v1alpha1.LedgerTerm{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LedgerTermName},
		// Not 1: a term must grow even where somebody deletes the object.
		Spec: v1alpha1.LedgerTermSpec{Term: time.Now().Unix(), Leader: e.o.Identity, URL: e.o.URL, Since: metav1.Now()},
	}
	last, err := e.o.Terms.Get(ctx, v1alpha1.LedgerTermName, metav1.GetOptions{})
	var written *v1alpha1.LedgerTerm
	switch {
	case apierrors.IsNotFound(err):
		written, err = e.o.Terms.Create(ctx, &next, metav1.CreateOptions{})
	case err == nil:
		next.ObjectMeta = last.ObjectMeta
		next.Spec.Term = last.Spec.Term + 1
		written, err = e.o.Terms.Update(ctx, &next, metav1.UpdateOptions{}) // only if nobody has raised it meanwhile
	}
	switch {
	case err == nil:
		return Term(written.Spec.Term), nil
	case notInstalled(err):
		return 0, nil
	default:
		return 0, fmt.Errorf("raising the term in LedgerTerm %s: %w", v1alpha1.LedgerTermName, err)
	}
}

// notInstalled reports whether an answer says that the cluster has no definition of a
// kind: such a 404 names no object.
func notInstalled(err error) bool {
	status, ok := err.(apierrors.APIStatus) //nolint:errorlint // as the client returns it
	if !ok || !apierrors.IsNotFound(err) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == ""
}
