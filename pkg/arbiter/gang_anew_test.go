package arbiter

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// A gang that is made anew under its name while its former pods end is kept whole, too.
func TestGangMadeAnewWhileItsFormerPodsEnd(t *testing.T) {
	gangTest(t, 2, 4, func(w *gangWorld) {
		for _, pod := range w.gang("a", 4, 4, nil) {
			require.NoError(t, w.bind(pod, "n0"))
			w.pod("a", pod.Ref.Name, 4, func(p *v1.Pod) { p.Spec.NodeName, p.DeletionTimestamp = "n0", &metav1.Time{} })
		}
		w.watch()
		other := w.pod("", "single", 0, withoutGang)
		require.NoError(t, w.bind(other, "n1"))
		first := w.pod("a", "again-0", 4, nil)
		for _, name := range []string{"again-1", "again-2", "again-3"} {
			w.pod("a", name, 4, nil)
		}
		w.refusedAs(w.bind(first, "n1"), ledger.GangUnplaced)
		assert.Zero(t, w.kept())
		w.ledger.RemovePod(other.Ref, 2)
		require.NoError(t, w.bind(first, "n1"))
		assert.Equal(t, 3, w.kept())
	})
}

// A gang was whole, two of its pods have succeeded and are deleted, and the third has failed and is made anew: it is
// bound. In another run of the gang all are needed.
func TestMembersThatAreDoneAndGone(t *testing.T) {
	by := func(owner string) func(p *v1.Pod) {
		return func(p *v1.Pod) {
			p.OwnerReferences = nil
			if owner != "" {
				p.OwnerReferences = []metav1.OwnerReference{{
					Kind: "Job", Name: "train", UID: types.UID(owner), Controller: ptr.To(true),
				}}
			}
		}
	}
	tests := map[string]struct {
		owner, then string // of the pods, and of those that are made anew
		ends        func(last *cluster.Pod)
		name        string // of the pod that is made anew
		other       bool   // another run
	}{
		"the same controller":      {owner: "1", then: "1"},
		"another controller":       {owner: "1", then: "2", other: true},
		"one that was done":        {owner: "1", then: "1", name: "a-0", other: true},
		"the one that was not":     {owner: "1", then: "1", name: "a-2"},
		"no controller":            {other: true},
		"a controller in addition": {then: "1", other: true},
		"deleted while it ran": {
			owner: "1", then: "1", other: true, ends: func(last *cluster.Pod) { last.Deleting = true },
		},
		"failed": {owner: "1", then: "1", other: true, ends: func(last *cluster.Pod) { last.Gang = nil }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			gangTest(t, 1, 3, func(w *gangWorld) {
				pods := w.gang("a", 3, 3, by(test.owner))
				for _, pod := range pods {
					require.NoError(t, w.bind(pod, "n0"))
				}
				w.watch()
				for _, pod := range pods {
					last := *pod
					last.Node, last.Finished = "n0", true
					if pod == pods[2] {
						last.Gang = nil
					}
					if test.ends != nil {
						test.ends(&last)
					}
					w.o.Pods.Put(&last)
					w.ledger.RemovePod(pod.Ref, 2)
					deleted := last
					deleted.Deleting = true
					w.o.Pods.Put(&deleted)
					w.o.Pods.Remove(&deleted)
				}
				again := w.pod("a", cmp.Or(test.name, "a-2-anew"), 3, func(p *v1.Pod) {
					by(test.then)(p)
					p.UID = "again"
				})
				err := w.bind(again, "n0")
				if test.other {
					w.refusedAs(err, ledger.GangIncomplete)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, "Whole: 0 pending, 0 kept, 1 bound, 2 finished", counts(*w.viewOf(again)))
			})
		})
	}
}
