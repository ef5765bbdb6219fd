package election

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// Term is the number of a leadership. 0 is that of a server whose cluster has no
// definition of LedgerTerm: its writes carry none.
type Term int64

// Annotate returns the annotations with the term; annotations may be nil, and are changed.
func (t Term) Annotate(annotations map[string]string) map[string]string {
	if t == 0 {
		return annotations
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.TermAnnotation] = t.String()
	return annotations
}

// String is how a term is written.
func (t Term) String() string { return strconv.FormatInt(int64(t), 10) }

// managerPrefix is how the fence recognizes the writes of servers; the term follows.
const managerPrefix = "globalreserve-term-"

// Manager returns the field manager of what is written in the term, by which the API server knows that a write is late:
// unlike an annotation it belongs to the request, and so is there for every kind, for a patch and for a status.
func (t Term) Manager() string {
	if t == 0 {
		return "globalreserve"
	}
	return managerPrefix + t.String()
}

// OwnTerm is the term of this server. It stays the same after the server's leadership has ended: a write that is sent
// then must carry the term, so that the API server knows that it is late. It is safe for concurrent use.
type OwnTerm struct{ number atomic.Int64 }

// NewOwnTerm returns the term of a server that has begun with it; 0 is that of one that has not led, or has none.
func NewOwnTerm(term Term) *OwnTerm {
	own := &OwnTerm{}
	own.set(term)
	return own
}

// Get returns the term; 0 before the server has taken over, and where the cluster knows no terms.
func (t *OwnTerm) Get() Term { return Term(t.number.Load()) }

func (t *OwnTerm) set(term Term) { t.number.Store(int64(term)) }

// raise begins a term. It returns 0 where the cluster has no definition of LedgerTerm. It gives up where another server
// raises the term meanwhile, but not where one only writes its own entry in the status.
func (e *Elector) raise(ctx context.Context) (Term, error) {
	known, err := e.remembered(ctx)
	if err != nil {
		return 0, err
	}
	var first, written *v1alpha1.LedgerTerm
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
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
		written, err = e.write(ctx, last, known)
		return err
	})
	e.unraised.Store(denied("ledgerterms", err))
	switch {
	case err == nil:
		e.lease.term.Store(written.Spec.Term)
		return Term(written.Spec.Term), nil
	case notInstalled(err):
		return 0, nil
	default:
		return 0, fmt.Errorf("raising the term in LedgerTerm %s: %w", v1alpha1.LedgerTermName, err)
	}
}

// remembered returns the term that the Lease records, 0 where it records none.
func (e *Elector) remembered(ctx context.Context) (Term, error) {
	lease, err := e.o.Client.CoordinationV1().Leases(e.o.Namespace).Get(ctx, LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil // a server without an election makes no Lease, and may be the first
	}
	if err != nil {
		return 0, fmt.Errorf("reading the last term in the lease %s/%s: %w", e.o.Namespace, LeaseName, err)
	}
	term, err := strconv.ParseInt(lease.Labels[termLabel], 10, 64)
	if err != nil {
		return 0, nil //nolint:nilerr // no server wrote that
	}
	return Term(term), nil
}

// write writes a term after the last one and the one that is known, unless the object has changed since; last is nil
// where there is none.
func (e *Elector) write(ctx context.Context, last *v1alpha1.LedgerTerm, known Term) (*v1alpha1.LedgerTerm, error) {
	// Not just one more: a term must grow even where somebody deletes the object, and the Lease, or restores older ones.
	term := max(time.Now().Unix(), int64(known)+1)
	if last == nil {
		return e.o.Terms.Create(ctx, e.newTerm(term), metav1.CreateOptions{})
	}
	next := last.DeepCopy()
	next.Spec = e.newTerm(max(term, last.Spec.Term+1)).Spec
	return e.o.Terms.Update(ctx, next, metav1.UpdateOptions{})
}

// keep maintains the object of a leadership's term: it is removed with the definition of its kind, may come back from a
// backup, and the fence needs it. errLost says that there is a later term.
func (e *Elector) keep(ctx context.Context) error {
	if !e.o.Alone && !e.lease.held() {
		return nil // it may be for another server to do
	}
	own := int64(e.term.Get())
	if own == 0 { // the definition may have come meanwhile
		term, err := e.raise(ctx)
		if err != nil {
			e.o.Log.WithError(err).Warn("what this server writes carries no term yet")
			return nil
		}
		e.term.set(term)
		return nil
	}
	found, err := e.o.Terms.Get(ctx, v1alpha1.LedgerTermName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !notInstalled(err):
		_, err = e.o.Terms.Create(ctx, e.newTerm(own), metav1.CreateOptions{})
	case err == nil && found.Spec.Term == own && found.Spec.URL == e.url && found.Spec.PublicKey == e.publicKey:
	case err == nil && found.Spec.Term <= own: // or an older definition has dropped what it does not know
		found = found.DeepCopy()
		found.Spec = e.newTerm(own).Spec
		_, err = e.o.Terms.Update(ctx, found, metav1.UpdateOptions{})
	case err == nil && found.Spec.Term > own:
		return errLost
	}
	if err != nil {
		log := e.o.Log.WithError(err).WithField("term", own)
		if notInstalled(err) {
			log.Warn(noTerm.Why)
		} else {
			log.Warn("could not look after the term; will try again. " +
				"If this stays: the server needs the rights in manifests/base/rbac.yaml")
		}
	}
	return nil
}

func (e *Elector) newTerm(term int64) *v1alpha1.LedgerTerm {
	return &v1alpha1.LedgerTerm{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LedgerTermName},
		Spec: v1alpha1.LedgerTermSpec{
			Term: term, Leader: e.o.Identity, URL: e.url, PublicKey: e.publicKey, Since: metav1.Now(),
		},
	}
}

// notInstalled reports whether an answer says that the cluster has no definition of a kind: such a 404 names no object.
func notInstalled(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == ""
}
