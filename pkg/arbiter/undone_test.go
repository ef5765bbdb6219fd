package arbiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/gates"
)

// The API server binds no pod with a scheduling gate: nothing is granted for one.
func TestGatedPodsAreNotBound(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		p := c.add("p", "3")
		c.edit(p, func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/quota"}} })
		c.show("p")
		_, err := c.ask(ref(p), "a")
		assertOutcome(t, gates.Gated, err)
		require.ErrorContains(t, err, "has scheduling gates (spec.schedulingGates)")
		_, err = c.Bind(t.Context(), ref(p), "a")
		assertOutcome(t, gates.Gated, err)
		assert.Equal(t, "none", c.on(ref(p)))
	})
}

// What a policy, a quota or another webhook always refuses after it was allowed, and whose sender tries for ever,
// leaves its capacity to others.
func TestWhatNeverHappensKeepsNothing(t *testing.T) {
	tries := map[string]func(c *apiCluster) (try func() error, holds func() bool){
		"a binding": func(c *apiCluster) (func() error, func() bool) {
			p := c.add("p", "3")
			return func() error { _, err := c.ask(ref(p), "a"); return err },
				func() bool { return c.on(ref(p)) != "none" }
		},
		"a resize": func(c *apiCluster) (func() error, func() bool) {
			p := c.running("p", "1", "a")
			return func() error { return c.resize("p", "4") }, func() bool { return c.cpu(p) > 1000 }
		},
		"a resize of a pod that changes": func(c *apiCluster) (func() error, func() bool) {
			p := c.running("p", "1", "a")
			return func() error {
				c.edit(p, func(p *v1.Pod) { p.Labels = map[string]string{"at": time.Now().String()} })
				c.show("p")
				return c.resize("p", "4")
			}, func() bool { return c.cpu(p) > 1000 }
		},
	}
	for name, begin := range tries {
		for _, every := range []time.Duration{10 * time.Millisecond, time.Second} {
			t.Run(name+" each "+every.String(), func(t *testing.T) {
				inCluster(t, func(t *testing.T, c *apiCluster) {
					try, holds := begin(c)
					require.NoError(t, try())
					const minutes = 10
					held, tried := 0, 0
					for range minutes * time.Minute / every {
						if holds() {
							held++
						}
						if err := try(); err != nil {
							assertOutcome(t, gates.Busy, err)
						} else {
							tried++
						}
						pass(every)
					}
					assert.Less(t, time.Duration(held)*every, minutes*time.Minute/10, "the node is free for others")
					assert.Greater(t, tried, minutes, "it may be allowed by now")
				})
			})
		}
	}
}

// A Binding is not sent twice for nothing: one that did not happen once may be repeated at once, elsewhere too.
func TestBindingIsRepeatedOnce(t *testing.T) {
	for _, node := range []string{"a", "b"} {
		inCluster(t, func(t *testing.T, c *apiCluster) {
			p := c.add("p", "3")
			c.allow(p, "a")
			pass(afterGrace)
			assert.Equal(t, "none", c.on(ref(p)))
			c.show("p")
			require.NoError(t, c.carryOut(c.allow(p, node)))
			c.show("p")
			pass(afterGrace)
			assert.Equal(t, "Bound on "+node, c.on(ref(p)))
		})
	}
}
