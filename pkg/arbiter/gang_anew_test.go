package arbiter

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
