package arbiter

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/gates"
)

// However many bindings and pods a namespace has allowed that do not show up, others' are allowed.
func TestPendingOfOneNamespace(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		c.o.MaxPending = 12
		bind := func(namespace string) (allowed int, err error) {
			for ; err == nil; allowed++ {
				p := sized(fmt.Sprint("p", allowed), "1m", 1)
				p.Namespace, p.UID = namespace, types.UID(namespace+p.Name)
				c.api.put(p)
				_, err = c.ask(ref(p), []string{"a", "b"}[allowed%2])
			}
			return allowed - 1, err
		}
		for _, share := range []struct {
			namespace string
			want      int
		}{{"greedy", 6}, {"second", 3}, {"third", 2}} {
			got, err := bind(share.namespace)
			assert.Equal(t, share.want, got, share.namespace)
			require.ErrorIs(t, err, &gates.Error{Outcome: gates.Busy})
			assert.ErrorContains(t, err,
				fmt.Sprintf("%d bindings and pods of namespace %s were allowed and have not shown up yet", got, share.namespace))
		}
		p := c.add("bound", "1")
		require.NoError(t, c.carryOut(c.allow(p, "b")), "another namespace's binding")
		c.show("bound")
		pass(createGrace + grace)
		assert.Empty(t, c.pending.of)
		assert.Empty(t, c.pending.in)
		got, _ := bind("greedy")
		assert.Equal(t, 6, got)
		c.end()
	})
}
