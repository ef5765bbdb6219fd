package decide

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// The API server binds no pod with a scheduling gate: nothing is granted for one. Gates go a moment before a pod is
// bound, and the watch may be late.
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
		c.edit(p, func(p *v1.Pod) { p.Spec.SchedulingGates = nil })
		require.NoError(t, c.carryOut(c.allow(p, "a")))
	})
}

// What a policy, a quota or another webhook always refuses after it was allowed, and whose sender tries for ever,
// leaves its capacity to others.
func TestWhatNeverHappensKeepsNothing(t *testing.T) {
	type begin = func(c *apiCluster) (try func() error)
	tries := map[string]begin{
		"a binding": func(c *apiCluster) func() error {
			p := c.add("p", "3")
			return func() error { _, err := c.ask(ref(p), "a"); return err }
		},
		"a binding here and there": func(c *apiCluster) func() error {
			p, times := c.add("p", "3"), 0
			return func() error {
				c.show("p")
				times++
				_, err := c.ask(ref(p), []string{"a", "b"}[times/5%2]) // after a second, or after less
				if reasonOf(err) == ledger.AllocatedElsewhere {
					err = nil // the first one may be on its way
				}
				return err
			}
		},
		"a binding of a pod that cannot be changed": func(c *apiCluster) func() error {
			p := c.add("p", "3")
			c.api.change(func() { c.api.patch = apierrors.NewForbidden(podKind, "p", errors.New("denied by a policy")) })
			return func() error { _, err := c.ask(ref(p), "a"); return err }
		},
		"a resize": func(c *apiCluster) func() error {
			c.running("p", "1", "a")
			return func() error { return c.resize("p", "4") }
		},
		"a resize of a pod that changes": func(c *apiCluster) func() error {
			p := c.running("p", "1", "a")
			return func() error {
				c.edit(p, func(p *v1.Pod) { p.Labels = map[string]string{"at": time.Now().String()} })
				c.show("p")
				return c.resize("p", "4")
			}
		},
		"a resize of a pod whose image changes, tried out besides": func(c *apiCluster) func() error {
			p := c.running("p", "1", "a")
			return func() error {
				c.edit(p, func(p *v1.Pod) {
					p.Generation++
					p.Spec.Containers[0].Image = time.Now().String()
				})
				c.show("p")
				trial := c.resizing("p", "4")
				trial.DryRun = true
				_, _ = c.AdmitResize(c.t.Context(), trial)
				return c.resize("p", "4")
			}
		},
		"a resize beside one that is written": func(c *apiCluster) func() error {
			p, bytes := c.running("p", "1", "a"), int64(1<<20)
			return func() error {
				q := c.resizing("p", "1")
				bytes++
				q.Pod.Spec.Containers[0].Resources.Requests["memory"] = *resource.NewQuantity(bytes, resource.BinarySI)
				if _, err := c.AdmitResize(c.t.Context(), q); err == nil {
					c.write(q, p)
					c.show("p")
				}
				return c.resize("p", "4")
			}
		},
	}
	for _, every := range []time.Duration{200 * time.Millisecond, time.Second} {
		eachCluster(t, tries, func(t *testing.T, c *apiCluster, begin begin) {
			try := begin(c)
			require.NoError(t, try())
			const minutes = 20
			held, tried := 0, 0
			for range minutes * time.Minute / every {
				allocation, ok := c.ledger.Allocation(ref(newPod("p")))
				if ok && allocation.Request.Value(resources.CPU) > 1000 {
					held++
				}
				if err := try(); err != nil {
					assertOutcome(t, gates.Busy, err)
				} else {
					tried++
				}
				pass(every)
			}
			assert.Less(t, time.Duration(held)*every, minutes*time.Minute/3, "the node is free for others")
			assert.Greater(t, tried, minutes/10, "it may be allowed by now")
		})
	}
}

// Resizes that are written are not taken for some that did not happen, whatever came after them, how late the watch is,
// what the kubelet says of them, and who else writes to the pod meanwhile.
func TestResizesThatHappen(t *testing.T) {
	upAndDown := func(c *apiCluster, p *v1.Pod, cpu string, between func()) {
		for _, cpu := range []string{cpu, "1"} {
			q := c.resizing("p", cpu)
			_, err := c.AdmitResize(c.t.Context(), q)
			require.NoError(c.t, err)
			require.True(c.t, c.write(q, p))
			between()
		}
	}
	eachCluster(t, map[string]func(c *apiCluster, p *v1.Pod, k int){
		"up and down": func(c *apiCluster, p *v1.Pod, _ int) {
			upAndDown(c, p, "2", func() {
				c.show("p")
				pass(2 * tick)
			})
		},
		"the watch is late": func(c *apiCluster, p *v1.Pod, k int) {
			upAndDown(c, p, []string{"2", "3"}[k%2], func() {
				pass(afterGrace)
				c.show("p")
			})
		},
		"infeasible": func(c *apiCluster, p *v1.Pod, k int) {
			upAndDown(c, p, []string{"2", "3"}[k%2], func() {
				c.edit(p, func(p *v1.Pod) {
					p.Status.Conditions = []v1.PodCondition{{
						Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonInfeasible,
					}}
				})
				c.show("p")
				pass(afterGrace)
			})
		},
		"the API server tries again": func(c *apiCluster, p *v1.Pod, k int) {
			for range 4 {
				q := c.resizing("p", "2")
				_, err := c.AdmitResize(c.t.Context(), q)
				require.NoError(c.t, err)
				c.edit(p, func(p *v1.Pod) { p.Labels = map[string]string{"at": time.Now().String()} })
				c.show("p")
				pass(300 * time.Millisecond)
				require.False(c.t, c.write(q, p))
			}
			upAndDown(c, p, "2", func() {
				c.show("p")
				pass(2 * tick)
			})
		},
	}, func(t *testing.T, c *apiCluster, resize func(c *apiCluster, p *v1.Pod, k int)) {
		p := c.running("p", "1", "a")
		for k := range 10 {
			resize(c, p, k)
			pass(500 * time.Millisecond)
		}
	})
}

// A Binding is not sent twice for nothing: one that did not happen once may be repeated at once, elsewhere too. A pod
// that is bound at last is one like others.
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
			pass(time.Minute)
			assert.Zero(t, c.allowances.undone.Len())
		})
	}
}

// However many bindings and pods a namespace has allowed that do not show up, others' are allowed.
func TestPendingOfOneNamespace(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		c.o.MaxAllowances = 12
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
		assert.Empty(t, c.allowances.of)
		assert.Empty(t, c.allowances.in)
		got, _ := bind("greedy")
		assert.Equal(t, 6, got)
		c.end()
	})
}

// However long it takes to find out what became of many bindings of one namespace, those of others are settled soon.
func TestNamespacesTakeTurnsInSettling(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		c.o.MaxAllowances = 1000
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
				<-time.After(settleTimeout - time.Second)
				return nil
			}
		})
		pass(grace + 20*time.Second)
		for _, other := range others {
			assert.Equal(t, "none", c.on(other))
		}
		pass(2 * time.Minute)
		assert.Empty(t, c.allowances.of)
	})
}
