package election

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

func TestWithoutAFence(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"the policy is not installed": func(*world) {},
		"the policy does nothing":     func(w *world) { w.install() },
		"the kind is not installed":   func(w *world) { w.definitions().Store(false) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, false)
				change(w)
				e := w.elector("only", nil)
				stop := w.run(e)
				<-time.After(3900 * time.Millisecond)
				assert.Contains(t, e.Leads(), "taking over", "what was sent before may still be carried out")
				<-time.After(fenceTimeout + time.Second)
				require.Empty(t, e.Leads())
				fence, ok := e.Fence()
				assert.True(t, ok)
				assert.False(t, fence.Up)
				assert.Contains(t, fence.Why, "manifests/")
				require.NoError(t, stop())
			})
		})
	}
}

// A server that tells of itself while another one takes over does not keep it from that, and is not forgotten.
// Whoever raises the term meanwhile does.
func TestRaiseWhileTheObjectChanges(t *testing.T) {
	w := newWorld(t, true)
	e := w.elector("only", nil)
	e.Advertise("https://only", "key")
	before, err := e.raise(t.Context())
	require.NoError(t, err)
	gvr := v1alpha1.SchemeGroupVersion.WithResource("ledgerterms")
	meanwhile := func(change func(*v1alpha1.LedgerTerm)) {
		done := false
		w.own.PrependReactor("update", "ledgerterms", func(clienttesting.Action) (bool, runtime.Object, error) {
			if done {
				return false, nil, nil
			}
			done = true
			object, err := w.own.Tracker().Get(gvr, "", v1alpha1.LedgerTermName)
			require.NoError(t, err)
			term := object.(*v1alpha1.LedgerTerm).DeepCopy()
			change(term)
			require.NoError(t, w.own.Tracker().Update(gvr, term, ""))
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "ledgerterms"}, v1alpha1.LedgerTermName, nil)
		})
	}
	meanwhile(func(term *v1alpha1.LedgerTerm) { term.Status.Servers = []v1alpha1.LedgerServer{{Name: "another"}} })
	raised, err := e.raise(t.Context())
	require.NoError(t, err)
	assert.Equal(t, before+1, raised)
	term := w.own.Term()
	assert.Equal(t, []v1alpha1.LedgerServer{{Name: "another"}}, term.Status.Servers)
	assert.Equal(t, "https://only", term.Spec.URL)
	assert.Equal(t, v1alpha1.PublicKey("key"), term.Spec.PublicKey)

	meanwhile(func(term *v1alpha1.LedgerTerm) { term.Spec.Term, term.Spec.Leader = term.Spec.Term+1, "another" })
	_, err = e.raise(t.Context())
	require.ErrorContains(t, err, "another has raised it")
}

// The term's object comes back when somebody deletes it, and who finds a later one decides no more.
func TestTermIsKept(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		terms := w.own.GlobalreserveV1alpha1().LedgerTerms()
		e := w.elector("only", nil)
		e.Advertise("https://only", "key")
		stop := w.run(e)
		<-time.After(time.Second)
		own := w.term()
		require.NotZero(t, own)
		require.NoError(t, terms.Delete(t.Context(), v1alpha1.LedgerTermName, metav1.DeleteOptions{}))
		e.Moved()
		synctest.Wait()
		assert.Equal(t, own, w.term())
		assert.Empty(t, e.Leads())

		w.own.Edit(func(term *v1alpha1.LedgerTerm) { term.Spec.Term, term.Spec.Leader = own-1, "before" }) // of a backup
		<-time.After(DefaultTimes().Lease)
		assert.Equal(t, own, w.term())
		assert.Empty(t, e.Leads())

		// by a definition without them
		w.own.Edit(func(term *v1alpha1.LedgerTerm) { term.Spec.URL, term.Spec.PublicKey = "", "" })
		<-time.After(DefaultTimes().Lease)
		assert.Equal(t, "https://only", w.own.Term().Spec.URL)
		assert.Equal(t, v1alpha1.PublicKey("key"), w.own.Term().Spec.PublicKey)
		w.own.Edit(func(term *v1alpha1.LedgerTerm) { term.Spec.Term++ })
		<-time.After(DefaultTimes().Lease)
		assert.NotEmpty(t, e.Leads())
		require.ErrorIs(t, stop(), errLost)
	})
}

// A term is higher than every one before also where the object and its definition were gone in between, and the clock
// is behind.
func TestTermOutlivesItsDefinition(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		installed := w.definitions()
		terms := w.own.GlobalreserveV1alpha1().LedgerTerms()
		w.own.Edit(func(term *v1alpha1.LedgerTerm) { term.Spec.Term = time.Now().Add(time.Hour).Unix() })
		first, second, third := w.elector("first", nil), w.elector("second", nil), w.elector("third", nil)
		stop := w.run(first)
		<-time.After(time.Minute)
		require.Empty(t, first.Leads())

		require.NoError(t, terms.Delete(t.Context(), v1alpha1.LedgerTermName, metav1.DeleteOptions{}))
		installed.Store(false)
		require.NoError(t, stop())
		stop = w.run(second)
		<-time.After(time.Minute)
		require.Empty(t, second.Leads())
		assert.Zero(t, second.Term().Get())
		installed.Store(true)
		<-time.After(DefaultTimes().Lease)
		assert.Greater(t, second.Term().Get(), first.Term().Get(), "the definition comes back while a server decides")
		<-time.After(time.Minute)

		require.NoError(t, terms.Delete(t.Context(), v1alpha1.LedgerTermName, metav1.DeleteOptions{}))
		require.NoError(t, stop())
		stop = w.run(third)
		<-time.After(time.Minute)
		require.Empty(t, third.Leads())
		assert.Greater(t, third.Term().Get(), second.Term().Get(), "it comes back with the next one")
		require.NoError(t, stop())
	})
}

// While the definition of the term is gone the server that decides says that late writes are not refused.
func TestFenceIsWatched(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		installed := w.definitions()
		e := w.elector("only", nil)
		stop := w.run(e)
		<-time.After(time.Minute)
		up := func() bool {
			<-time.After(DefaultTimes().Lease)
			fence, _ := e.Fence()
			assert.Equal(t, fence.Up, fence.Why == "")
			return fence.Up
		}
		require.True(t, up())
		installed.Store(false)
		assert.False(t, up())
		assert.Empty(t, e.Leads(), "the one that decides goes on")
		installed.Store(true)
		assert.True(t, up())
		w.fenced.Store(false)
		assert.False(t, up(), "the policy is gone")
		w.fenced.Store(true)
		assert.True(t, up())
		require.NoError(t, stop())
	})
}

// Without the term's definition there may be that of Reservations, which are waited for as long as they may take.
func TestWaitsForObjectsWithoutATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.definitions().Store(false)
		e := w.elector("only", func(o *Options) { o.Object = 30 * time.Second })
		stop := w.run(e)
		<-time.After(30 * time.Second)
		assert.Contains(t, e.Leads(), "taking over")
		<-time.After(2 * time.Second)
		assert.Empty(t, e.Leads())
		require.NoError(t, stop())
	})
}
