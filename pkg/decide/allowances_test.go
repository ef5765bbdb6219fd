package decide

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// afterGrace is a moment at which a binding has been settled if it can be.
const afterGrace = grace + time.Second

// apiCluster is a world in which others bind pods at the API server, which asks the Arbiter.
type apiCluster struct {
	*world
	log   *logtest.Hook
	shown map[string]*v1.Pod // as the watch has brought them
}

func newCluster(t *testing.T) *apiCluster {
	t.Helper()
	c := &apiCluster{world: newWorld(t), shown: map[string]*v1.Pod{}}
	logger, hook := logtest.NewNullLogger()
	c.o.Log, c.log = logger, hook
	return c
}

// inCluster runs a test with a clock of its own and a running loop.
func inCluster(t *testing.T, test func(*testing.T, *apiCluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var run sync.WaitGroup
		run.Go(func() { assert.NoError(t, c.Run(t.Context())) })
		test(t, c)
		c.away(nil)
		c.end()
		run.Wait()
	})
}

// eachCluster is inCluster for the cases of a table.
func eachCluster[T any](t *testing.T, cases map[string]T, test func(*testing.T, *apiCluster, T)) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *apiCluster) { test(t, c, tc) })
		})
	}
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }

// add makes a pod that the watch brings at once.
func (c *apiCluster) add(name, cpu string) *v1.Pod {
	p := sized(name, cpu, 1)
	c.api.change(func() { c.api.touch(p) })
	c.api.put(p)
	c.show(name)
	return p
}

// edit updates a pod at the API server.
func (c *apiCluster) edit(p *v1.Pod, how func(*v1.Pod)) {
	c.api.change(func() {
		how(p)
		c.api.touch(p)
	})
}

// show has the watch bring what the API server has of a pod.
func (c *apiCluster) show(name string) {
	p := c.api.read("ns", name)
	former := c.shown[name]
	if former != nil && (p == nil || p.UID != former.UID) {
		delete(c.shown, name)
		c.forget()
		for _, other := range c.shown {
			c.bring(other)
		}
		c.ledger.RemovePod(ref(former), c.info(former).ResourceVersion)
	}
	if p == nil {
		return
	}
	c.shown[name] = p
	c.bring(p)
	if info := c.info(p); info.Bound() {
		c.ledger.ObservePod(c.question.Observation(info))
	} else {
		c.ledger.ObserveUnbound(info.Ref, info.Scheduler)
	}
}

// away has the API server fail; nil has it work again.
func (c *apiCluster) away(err error) {
	c.api.change(func() {
		c.api.get, c.api.patch = func(int) error { return err }, err
	})
}

func (c *apiCluster) sent() (gets, patches int) {
	c.api.change(func() { gets, patches = c.api.gets, c.api.patches })
	return gets, patches
}

// ask has the API server ask about a binding, and returns it as it is allowed.
func (c *apiCluster) ask(pod ledger.PodRef, node string) (*v1.Binding, error) {
	said, err := c.AdmitBinding(context.Background(), &BindingQuery{Pod: pod, Node: node})
	if err != nil {
		return nil, err
	}
	return newBinding(said.Pod.Ref, formatVersion(said.Pod), node, said.Annotations), nil
}

// allow is ask for a binding that is allowed.
func (c *apiCluster) allow(p *v1.Pod, node string) *v1.Binding {
	c.t.Helper()
	b, err := c.ask(ref(p), node)
	require.NoError(c.t, err)
	return b
}

// carryOut does what the API server does with a binding that was allowed, in one step.
func (c *apiCluster) carryOut(b *v1.Binding) (err error) {
	c.api.change(func() {
		p := c.api.pods[types.NamespacedName{Namespace: b.Namespace, Name: b.Name}]
		if p == nil || b.ResourceVersion != p.ResourceVersion {
			err = errors.New("conflict")
		} else if err = c.api.assignLocked(b); err == nil {
			c.api.touch(p)
		}
	})
	return err
}

// create has the API server ask about a pod with a node, before it fills in the pod and before it writes it.
func (c *apiCluster) create(name, cpu, node string) error {
	_, err := c.createPod(sized(name, cpu, 0), node, "user")
	return err
}

// createPod is create for a pod of a UID. It returns the annotations that PlanPod said.
func (c *apiCluster) createPod(p *v1.Pod, node, caller string) (told map[string]string, err error) {
	p.ResourceVersion = ""
	early := p.DeepCopy()
	early.UID = ""
	said, err := c.PlanPod(context.Background(), early, node, caller, false)
	if err != nil {
		return nil, err
	}
	delete(p.Annotations, v1alpha1.ExtendedResourcesAnnotation)
	p.Annotations = maps.Clone(p.Annotations)
	for key, value := range said.Annotations {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value)
	}
	_, err = c.AdmitPod(context.Background(), p, node, caller, false)
	return said.Annotations, err
}

// nodes has so many more nodes, which offer nothing.
func (c *apiCluster) nodes(count int) {
	for k := range count {
		c.ledger.ObserveNode(ledger.NodeObservation{Name: fmt.Sprint("empty-", k)})
	}
}

// again is a pod of a name with another UID.
func again(p *v1.Pod) *v1.Pod {
	p.UID += "-again"
	return p
}

// created has the API server create a pod with a node.
func (c *apiCluster) created(name, cpu, node string) {
	p := sized(name, cpu, 5)
	p.Spec.NodeName = node
	c.api.put(p)
}

// What was allowed and has not happened is made impossible before its capacity is given back.
func TestWhatBecomesOfAnAllowedBinding(t *testing.T) {
	const bound, withdrawn = "Bound on a", "none"
	type testCase struct {
		meanwhile     func(c *apiCluster, p *v1.Pod, allowed *v1.Binding)
		want          string
		gets, patches int
	}
	eachCluster(t, map[string]testCase{
		"it happens": {meanwhile: func(c *apiCluster, _ *v1.Pod, allowed *v1.Binding) {
			assert.NoError(c.t, c.carryOut(allowed))
			c.show("p")
		}, want: bound},
		"it happens unseen": {meanwhile: func(c *apiCluster, _ *v1.Pod, allowed *v1.Binding) {
			assert.NoError(c.t, c.carryOut(allowed))
		}, want: bound, gets: 1},
		"between our look at the pod and the patch": {meanwhile: func(c *apiCluster, _ *v1.Pod, allowed *v1.Binding) {
			c.api.change(func() { c.api.onPatch = func() { assert.NoError(c.t, c.carryOut(allowed)) } })
		}, want: bound, gets: 1, patches: 1},
		"still unbound": {meanwhile: func(*apiCluster, *v1.Pod, *v1.Binding) {}, want: withdrawn, gets: 1, patches: 1},
		"changed": {meanwhile: func(c *apiCluster, p *v1.Pod, _ *v1.Binding) {
			c.edit(p, func(p *v1.Pod) { p.Labels = map[string]string{"x": "y"} })
		}, want: withdrawn, gets: 1, patches: 1},
		"gone": {meanwhile: func(c *apiCluster, p *v1.Pod, _ *v1.Binding) { c.api.remove(p) }, want: withdrawn, gets: 1},
		"made again": {meanwhile: func(c *apiCluster, _ *v1.Pod, _ *v1.Binding) {
			another := sized("p", "3", 7)
			another.UID = "another"
			c.api.put(another)
		}, want: withdrawn, gets: 1},
		"being deleted": {meanwhile: func(c *apiCluster, p *v1.Pod, _ *v1.Binding) {
			c.edit(p, func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} })
		}, want: withdrawn, gets: 1},
		"bound elsewhere": {meanwhile: func(c *apiCluster, p *v1.Pod, _ *v1.Binding) {
			c.edit(p, func(p *v1.Pod) { p.Spec.NodeName = "b" })
		}, want: withdrawn, gets: 1},
	}, func(t *testing.T, c *apiCluster, tc testCase) {
		p := c.add("p", "3")
		allowed := c.allow(p, "a")
		tc.meanwhile(c, p, allowed)
		pass(grace - time.Second)
		assert.NotEqual(t, "none", c.on(ref(p)))
		pass(2 * time.Second)
		assert.Equal(t, tc.want, c.on(ref(p)))
		gets, patches := c.sent()
		assert.Equal(t, tc.gets, gets)
		assert.Equal(t, tc.patches, patches)
		if tc.want == withdrawn {
			assert.Equal(t, 1, c.counted("globalreserve_decisions_total", "result")["withdrawn"])
			require.Error(t, c.carryOut(allowed), "too late")
		}
	})
}

// The same binding is asked for once more while the first is being withdrawn: it is not allowed, as nothing would ever
// be withdrawn of who asks without a pause.
func TestBindingIsAskedForWhileItIsWithdrawn(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		p := c.add("p", "3")
		first := c.allow(p, "a")
		c.api.change(func() {
			c.api.onPatch = sync.OnceFunc(func() {
				_, err := c.ask(ref(p), "a")
				assertOutcome(t, gates.Busy, err)
			})
		})
		pass(grace + 500*time.Millisecond)
		assert.Equal(t, "none", c.on(ref(p)))
		require.Error(t, c.carryOut(first))
		c.show("p")
		require.NoError(t, c.carryOut(c.allow(p, "a")))
		c.show("p")
		pass(afterGrace)
		assert.Equal(t, "Bound on a", c.on(ref(p)))
	})
}

// As long as nobody knows what became of the binding, its capacity stays taken.
func TestUnknownFateKeepsTheCapacity(t *testing.T) {
	eachCluster(t, map[string]error{
		"time-out": errors.New("timeout"), "a 404 that is not the API server's word on the pod": errNoRoute,
	}, func(t *testing.T, c *apiCluster, err error) {
		p := c.add("p", "3")
		c.allow(p, "a")
		c.away(err)
		pass(time.Minute)
		assert.Equal(t, "Binding on a", c.on(ref(p)))
		gets, _ := c.sent()
		assert.Less(t, gets, 30, "the pauses grow")
		c.away(nil)
		pass(6 * time.Second)
		assert.Equal(t, "none", c.on(ref(p)))
	})
}

// Another webhook does not let the pod be patched. Its capacity is given back when the API server
// must have abandoned the binding, and not before.
func TestPodThatCannotBePatched(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		p := c.add("p", "3")
		c.allow(p, "a")
		c.api.change(func() { c.api.patch = apierrors.NewForbidden(podKind, "p", errors.New("denied by a policy")) })
		pass(44 * time.Second)
		assert.Equal(t, "Binding on a", c.on(ref(p)))
		pass(10 * time.Second)
		assert.Equal(t, "none", c.on(ref(p)))
	})
	inCluster(t, func(t *testing.T, c *apiCluster) { // one that was carried out all the same
		p := c.add("p", "3")
		allowed := c.allow(p, "a")
		c.api.change(func() { c.api.patch = errors.New("no") })
		pass(40 * time.Second)
		require.NoError(t, c.carryOut(allowed))
		pass(20 * time.Second)
		assert.Equal(t, "Bound on a", c.on(ref(p)))
	})
}

func TestSchedulerTurnsToAnotherNode(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		p := c.add("p", "3")
		first := c.allow(p, "a")
		_, err := c.ask(ref(p), "b")
		assertOutcome(t, gates.Refused, err) // the first one may be on its way
		pass(600 * time.Millisecond)
		second := c.allow(p, "b")
		assert.Equal(t, "Binding on b", c.on(ref(p)))
		require.Error(t, c.carryOut(first))
		c.show("p")
		require.Error(t, c.carryOut(second), "the watch was behind: a conflict")
		require.NoError(t, c.carryOut(c.allow(p, "b")))
		c.show("p")
		pass(afterGrace)
		assert.Equal(t, "Bound on b", c.on(ref(p)))
	})
}

// What an allowed pod has is never free while it asks for more, nor lost where it is not granted that.
func TestPodGrowsInOneStep(t *testing.T) {
	type testCase struct {
		other  string // what another pod of the node asks for
		cordon bool
		want   gates.Outcome
		events []ledger.EventType
	}
	eachCluster(t, map[string]testCase{
		"granted":               {other: "1", want: gates.Bound, events: []ledger.EventType{ledger.AllocationResized}},
		"refused":               {other: "2", want: gates.Refused},
		"refused, and cordoned": {other: "2", cordon: true, want: gates.Refused},
		"granted where it is bound": {
			other: "1", cordon: true, want: gates.Bound,
			events: []ledger.EventType{ledger.AllocationResized},
		},
	}, func(t *testing.T, c *apiCluster, tt testCase) {
		p := c.add("p", "1")
		c.allow(p, "a")
		c.allow(c.add("other", tt.other), "a")
		c.edit(p, func(p *v1.Pod) { p.Spec = sized("p", "3", 1).Spec })
		c.show("p")
		if tt.cordon {
			c.cordon("a")
		}
		before := c.ledger.Revision()
		_, err := c.ask(ref(p), "a")
		assertOutcome(t, tt.want, err)
		events, ok := c.ledger.EventsSince(nil, before, 10)
		require.True(t, ok)
		var kinds []ledger.EventType
		for i := range events {
			kinds = append(kinds, events[i].Type)
		}
		assert.Equal(t, tt.events, kinds)
		assert.Equal(t, "Binding on a", c.on(ref(p)))
	})
}

// A Binding that was allowed for the very version of a pod may still be carried out, with the devices that it names,
// whatever has become of the claims meanwhile.
func TestClaimsThatAreOthersByNow(t *testing.T) {
	inCluster(t, func(t *testing.T, c *apiCluster) {
		placementtest.GPUs(c.ledger, "a", "gpu-0", "gpu-1")
		p, other := claiming("p", "c"), claiming("other", "e")
		anew := false
		c.o.Question.Devices = func(pod *cluster.Pod) *ledger.DeviceRequest {
			if anew && pod.Ref.Name == "p" {
				pod = c.info(claiming("p", "c,d"))
			}
			return placementtest.Claims(pod)
		}
		for _, pod := range []*v1.Pod{p, other} {
			c.api.change(func() { c.api.touch(pod) })
			c.api.put(pod)
			c.show(pod.Name)
		}
		allowed := c.allow(p, "a")
		require.Equal(t, "gpu-0", allowed.Annotations[v1alpha1.ExtendedResourcesAnnotation])
		anew = true
		_, err := c.ask(ref(p), "a")
		assertOutcome(t, gates.InFlight, err)
		pass(2 * grace) // it was withdrawn
		c.show("p")
		_, err = c.ask(ref(p), "a")
		require.NoError(t, err)
		require.Error(t, c.carryOut(allowed))
	})
}

// cordon has the watch bring a node as cordoned.
func (c *apiCluster) cordon(name string) {
	view, _, _ := c.ledger.Node(name)
	o := ledger.NodeObservation{Name: name, Unschedulable: true}
	for _, amount := range view.Amounts {
		column, _ := c.ledger.Table().Lookup(amount.Resource)
		o.Allocatable = append(o.Allocatable, resources.Amount{Column: column, Value: amount.Allocatable})
	}
	c.ledger.ObserveNode(o)
}

// Stop settles what Run was cut off from, too.
func TestStopSettlesWhatIsPending(t *testing.T) {
	cases := map[string]bool{"at once": false, "while a read hangs": true}
	eachCluster(t, cases, func(t *testing.T, c *apiCluster, hangs bool) {
		p := c.add("p", "1")
		allowed := c.allow(p, "a")
		require.NoError(t, c.create("q", "1", "a"))
		if hangs {
			c.api.change(func() { c.api.get = fail(1, context.DeadlineExceeded) })
			pass(afterGrace)
		}
		c.end()
		assert.Equal(t, "none", c.on(ref(p)))
		require.Error(t, c.carryOut(allowed))
		assert.Contains(t, c.log.LastEntry().Message, "may still be carried out", "the pod cannot be fenced off")
		_, err := c.ask(ref(p), "a")
		assertOutcome(t, gates.Stopping, err)
		assertOutcome(t, gates.Stopping, c.create("r", "1", "a"))
	})
}
