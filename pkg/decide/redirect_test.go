package decide

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/gangs"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// send has a Binding decided that may be redirected, and confirms it where it is granted. It returns where it goes.
func (w *gangWorld) send(pod *cluster.Pod, node string) (string, error) {
	p := w.o.Question.For(pod, node)
	_, err := w.startBind(pod, &p, whereKept)
	if err == nil {
		require.True(w.t, w.o.Ledger.Confirm(pod.Ref, p.Node))
	}
	return p.Node, err
}

// redirectTest is gangTest where the server may choose nodes for members.
func redirectTest(t *testing.T, nodes, cpus int, test func(w *gangWorld)) {
	t.Helper()
	gangTest(t, nodes, cpus, func(w *gangWorld) {
		w.rule(kinds.RedirectWhenRefused)
		test(w)
	})
}

// keepFor reserves capacity for a pod alone, with an object.
func (w *gangWorld) keepFor(pod *cluster.Pod, node string) {
	require.Empty(w.t, w.ledger.Reserve(ledger.Plan{Slots: []ledger.Slot{{
		Ref: ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "s"}, Node: node, Policy: ledger.Once,
		Request: pod.Request, Pod: pod.Ref,
	}}}, w.o.Ledger.Clock.Now()).Rejections)
}

// A scheduler that sends all members of a gang to one node gets the gang whole as soon as it has tried each once.
func TestMembersGoWhereTheirSlotsAre(t *testing.T) {
	redirectTest(t, 3, 2, func(w *gangWorld) {
		pods, on := w.gang("a", 5, 5, nil), map[string]int{}
		single := w.pod("", "single", 0, withoutGang)
		for _, pod := range pods {
			node, err := w.send(pod, "n0")
			require.NoError(t, err)
			on[node]++
		}
		assert.Equal(t, 2, on["n0"])
		assert.Equal(t, GangWhole, w.viewOf(pods[0]).State)
		w.watch()
		assert.Empty(t, w.of)
		node, err := w.send(single, "n0")
		w.refusedAs(err, ledger.InsufficientResource)
		assert.Equal(t, "n0", node)
	})
}

// What is reserved for a pod alone is where its Binding goes, also that of a first member: capacity for the others is
// kept in the same step.
func TestPodGoesWhereItsReservationIs(t *testing.T) {
	for _, tc := range []struct {
		nodes, gang int // of how many members; 0: none
		goes        bool
	}{{2, 0, true}, {3, 2, true}, {2, 2, false}} {
		redirectTest(t, tc.nodes, 1, func(w *gangWorld) {
			pod := w.pod("", "pod", 0, withoutGang)
			if tc.gang > 0 {
				pod = w.gang("a", tc.gang, tc.gang, nil)[0]
			}
			w.keepFor(pod, "n1")
			require.NoError(t, w.bind(w.pod("", "single", 0, withoutGang), "n0"))
			node, err := w.send(pod, "n0")
			if !tc.goes {
				w.refusedAs(err, ledger.InsufficientResource)
				assert.Len(t, w.ledger.ReservationSlots("ns", "r"), 1)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "n1", node)
			assert.Equal(t, max(0, tc.gang-1), w.kept())
		})
	}
}

// A pod that cannot use its own slot is not sent to its node for what is free there beside the slot.
func TestOwnSlotThatIsTooSmall(t *testing.T) {
	for policy, goes := range map[ledger.AllocatePolicy]bool{ledger.Restricted: false, ledger.Aligned: true} {
		redirectTest(t, 2, 3, func(w *gangWorld) {
			pod := w.pod("", "pod", 0, func(p *v1.Pod) {
				withoutGang(p)
				p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"cpu": resource.MustParse("2")}
			})
			require.Empty(t, w.ledger.Reserve(ledger.Plan{Slots: []ledger.Slot{{
				Ref: ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "s"}, Node: "n1", Policy: policy,
				Request: w.pod("", "small", 0, withoutGang).Request, Pod: pod.Ref,
			}}}, w.o.Ledger.Clock.Now()).Rejections)
			for k := range 2 {
				require.NoError(t, w.bind(w.pod("", fmt.Sprint("s", k), 0, withoutGang), "n0"))
			}
			node, err := w.send(pod, "n0")
			if goes {
				require.NoError(t, err)
				assert.Equal(t, "n1", node)
				return
			}
			w.refusedAs(err, ledger.InsufficientResource)
			assert.Len(t, w.ledger.ReservationSlots("ns", "r"), 1)
		})
	}
}

// A scheduler's choice stands where the capacity is that of mates, who make way.
func TestMatesMakeWayBeforeABindingIsRedirected(t *testing.T) {
	redirectTest(t, 3, 1, func(w *gangWorld) {
		pods := w.starting(3, 3, nil)
		home, ok := w.ledger.HomeOf(pods[2].Ref)
		require.True(t, ok)
		node, err := w.send(pods[1], home)
		require.NoError(t, err)
		assert.Equal(t, home, node)
	})
}

// The rule of a kind comes before that of the policy, and is for its gangs of one, too.
func TestRedirectAsTheKindHasIt(t *testing.T) {
	for rule, goes := range map[kinds.Redirect]bool{kinds.RedirectNever: false, kinds.RedirectWhenRefused: true} {
		redirectTest(t, 2, 1, func(w *gangWorld) {
			kind := kinds.Default()[0]
			kind.Redirect = rule
			table, err := kinds.New([]kinds.Kind{kind})
			require.NoError(t, err)
			w.o.Gangs = gangs.New(gangs.Options{Pods: w.o.Pods, Kinds: table})
			w.rule(map[bool]kinds.Redirect{false: kinds.RedirectWhenRefused, true: kinds.RedirectNever}[goes])
			pod := w.pod("a", "a-0", 1, nil)
			w.keepFor(pod, "n1")
			require.NoError(t, w.bind(w.pod("", "single", 0, withoutGang), "n0"))
			_, err = w.send(pod, "n0")
			assert.Equal(t, goes, err == nil)
		})
	}
}

// A Binding is redirected only where the node with the slot can be judged as a scheduler would, and the policy lets it.
func TestBindingIsNotRedirected(t *testing.T) {
	shares := func(p *v1.Pod) { p.Labels = map[string]string{"app": "web"} }
	neighbor := func(topology string, namespaces ...string) func(w *gangWorld) {
		return func(w *gangWorld) {
			w.nodes.Put(&cluster.Node{Name: "n1", Labels: map[string]string{"zone": "a"}})
			w.nodes.Put(&cluster.Node{Name: "n2", Labels: map[string]string{"zone": "a"}})
			w.pod("", "neighbor", 0, func(p *v1.Pod) {
				withoutGang(p)
				p.Namespace, p.Spec.NodeName = "other", "n2"
				p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
						LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
						Namespaces:    namespaces, TopologyKey: topology,
					}},
				}}
			})
		}
	}
	type testCase struct {
		pods      func(p *v1.Pod)
		meanwhile func(w *gangWorld)
		goes      bool
	}
	eachGang(t, 2, 1, map[string]testCase{
		"it is":                     {goes: true},
		"the policy says never":     {meanwhile: func(w *gangWorld) { w.rule(kinds.RedirectNever) }},
		"refusals are warnings":     {meanwhile: func(w *gangWorld) { w.o.AdmissionWarns = true }},
		"the node is another one":   {pods: onDisk("ssd"), meanwhile: func(w *gangWorld) { w.label("n1", "hdd") }},
		"the node is gone":          {meanwhile: func(w *gangWorld) { w.nodes.Remove("n1") }},
		"it is cordoned":            {meanwhile: func(w *gangWorld) { w.cordon("n1") }},
		"a feature of kubelets":     {pods: restartsAll},
		"a claim that it is given":  {pods: hasExtendedClaim},
		"a pod keeps it away":       {pods: shares, meanwhile: neighbor("zone", "ns")},
		"one that is elsewhere":     {pods: shares, meanwhile: neighbor("rack", "ns"), goes: true},
		"one of other namespaces":   {pods: shares, meanwhile: neighbor("zone", "x"), goes: true},
		"one that means its own":    {pods: shares, meanwhile: neighbor("zone"), goes: true},
		"one that means other pods": {meanwhile: neighbor("zone", "ns"), goes: true},
		"a taint":                   {meanwhile: func(w *gangWorld) { w.taint("n1") }},
		"it has a volume":           {pods: hasVolume},
	}, func(t *testing.T, w *gangWorld, test testCase) {
		w.rule(kinds.RedirectWhenRefused)
		w.label("n0", "ssd")
		w.label("n1", "ssd")
		pods := w.starting(2, 2, test.pods)
		require.Equal(t, 1, w.kept())
		if test.meanwhile != nil {
			test.meanwhile(w)
		}
		node, err := w.send(pods[1], "n0")
		if test.goes {
			require.NoError(t, err)
			assert.Equal(t, "n1", node)
			return
		}
		w.refusedAs(err, ledger.InsufficientResource)
		assert.Equal(t, "n0", node)
		assert.Equal(t, 1, w.kept())
	})
}

// cordon has the watch bring a node as cordoned.
func (w *gangWorld) cordon(node string) {
	labels := map[string]string{v1.LabelHostname: node}
	w.ledger.ObserveNode(ledger.NodeObservation{
		Name: node, Labels: labels, Unschedulable: true, Allocatable: []resources.Amount{
			{Column: resources.CPU, Value: 1000}, {Column: resources.Pods, Value: 110},
		},
	})
	w.nodes.Put(&cluster.Node{Name: node, Labels: labels, Unschedulable: true, Taints: []v1.Taint{
		{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule},
	}})
}

// taint has the watch bring a node with a taint.
func (w *gangWorld) taint(node string) {
	w.nodes.Put(&cluster.Node{Name: node, Taints: []v1.Taint{{Key: "away", Effect: v1.TaintEffectNoSchedule}}})
}

// restartsAll has a pod ask for a feature that kubelets declare, as kube-scheduler's NodeDeclaredFeatures has it.
func restartsAll(p *v1.Pod) {
	p.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{
		Action: v1.ContainerRestartRuleActionRestartAllContainers,
	}}
}

// hasExtendedClaim has a pod be given a claim for extended resources, which kube-scheduler writes before it binds the
// pod.
func hasExtendedClaim(p *v1.Pod) {
	p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "c"}
}
