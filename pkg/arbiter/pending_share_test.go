package arbiter

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/gates"
	"github.com/globalreserve/globalreserve/pkg/ledger"
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

// However long it takes to find out what became of many bindings of one namespace, those of others are settled soon.
func TestNamespacesTakeTurnsInSettling(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		c.o.MaxPending = 1000
		allow := func(namespace, name, node string) ledger.PodRef {
			p := sized(name, "1m", 1)
			p.Namespace, p.UID = namespace, types.UID(namespace+name)
			c.api.put(p)
			_, err := c.ask(ref(p), node)
			require.NoError(t, err)
			return ref(p)
		}
		for i := range 200 { // 50 s for the settlers
			allow("many", fmt.Sprint("p", i), []string{"a", "b"}[i%2])
		}
		pass(time.Second)
		others := make([]ledger.PodRef, 6)
		for i := range others {
			others[i] = allow(fmt.Sprint("other-", i), "p", "a")
		}
		c.api.change(func() {
			c.api.get = func(int) error {
				<-time.After(pendingTimeout - time.Second)
				return nil
			}
		})
		pass(grace + 20*time.Second)
		for _, other := range others {
			assert.Equal(t, "none", c.on(other))
		}
		pass(2 * time.Minute)
		assert.Empty(t, c.pending.of)
	})
}
