// Package termtest has a fake API server with the LedgerTerm, for tests of code that raises the term or follows it.
package termtest

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/retry"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/fake"
)

// API is the fake API server.
type API struct {
	*fake.Clientset
	t testing.TB
}

// New returns one that has the kind, and no object of it.
func New(t testing.TB) *API {
	a := &API{Clientset: fake.NewSimpleClientset(), t: t}
	a.Resources = []*metav1.APIResourceList{{
		GroupVersion: v1alpha1.SchemeGroupVersion.String(), APIResources: []metav1.APIResource{{Name: "ledgerterms"}},
	}}
	a.refuseStale()
	return a
}

// refuseStale makes the API server refuse to write over a state that the writer has not read, as a real one does: else
// a server that writes its entry would take back a term that has begun meanwhile.
func (a *API) refuseStale() {
	writes := 0
	a.PrependReactor("update", "ledgerterms", func(action clienttesting.Action) (bool, runtime.Object, error) {
		term := action.(clienttesting.UpdateAction).GetObject().(*v1alpha1.LedgerTerm)
		known, err := a.Tracker().Get(action.GetResource(), "", term.Name)
		if err != nil {
			return true, nil, err
		}
		if known.(*v1alpha1.LedgerTerm).ResourceVersion != term.ResourceVersion {
			return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), term.Name, nil)
		}
		writes++
		term.ResourceVersion = strconv.Itoa(writes)
		return false, nil, nil // the fake does the rest
	})
}

// Term returns the LedgerTerm, an empty one where there is none.
func (a *API) Term() *v1alpha1.LedgerTerm {
	term, err := a.GlobalreserveV1alpha1().LedgerTerms().Get(context.Background(), v1alpha1.LedgerTermName,
		metav1.GetOptions{})
	if err != nil {
		return &v1alpha1.LedgerTerm{}
	}
	return term
}

// Edit changes the LedgerTerm, which it makes where there is none. The fake takes the status with the rest.
func (a *API) Edit(change func(*v1alpha1.LedgerTerm)) {
	a.t.Helper()
	terms := a.GlobalreserveV1alpha1().LedgerTerms()
	require.NoError(a.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		term := a.Term()
		change(term)
		if term.Name == "" {
			term.Name = v1alpha1.LedgerTermName
			_, err := terms.Create(context.Background(), term, metav1.CreateOptions{})
			return err
		}
		_, err := terms.Update(context.Background(), term, metav1.UpdateOptions{})
		return err
	}))
}
