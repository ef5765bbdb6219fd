package drain_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/decidetest"
	"github.com/globalreserve/globalreserve/pkg/decide/drain"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// world has a cluster whose nodes offer 4 CPUs and 8 GiB each.
type world struct {
	*decidetest.World
	t       *testing.T
	pods    []*v1.Pod
	planner *drain.Planner
}

func newWorld(t *testing.T, nodes ...string) *world {
	w := &world{t: t, World: decidetest.NewWorld(ledger.New(ledger.Options{FirstRevision: 1000, JournalSize: 64}))}
	for _, node := range nodes {
		w.AddNode(node, "4", "8Gi")
	}
	w.planner = w.NewDrains(&w.pods)
	return w
}

// bind puts a pod of a Deployment on a node.
func (w *world) bind(name, node, cpu string, change func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID("uid-" + name),
			Labels: map[string]string{"app": "web", "pod-template-hash": "5d4f8c7b9"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d4f8c7b9", Controller: ptr.To(true),
			}},
		},
		Spec: v1.PodSpec{
			NodeName: node, SchedulerName: "default-scheduler",
			Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)},
			}}},
		},
	}
	if change != nil {
		change(pod)
	}
	w.pods = append(w.pods, pod)
	w.Ledger.ObservePod(w.Question.Observation(w.Bring(pod)))
	return pod
}

func (w *world) plan(q reserver.DrainPlanRequest) *drain.Plan {
	w.t.Helper()
	before := w.Ledger.Revision()
	choose, err := w.planner.Plan(w.t.Context(), &q)
	require.NoError(w.t, err)
	plan := choose()
	assert.Equal(w.t, before, plan.Revision)
	assert.Equal(w.t, before, w.Ledger.Revision(), "nothing is changed")
	return plan
}

// keep has a Reservation keep a slot for the pods of the Deployment.
func (w *world) keep(name, node, cpu string) {
	w.t.Helper()
	rsv := &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name},
		Spec: v1alpha1.ReservationSpec{
			Consumers: &v1alpha1.ConsumerSpec{Controller: &v1alpha1.ControllerReference{Kind: "Deployment", Name: "web"}},
			Slots: []v1alpha1.Slot{{
				Name: "0", NodeName: node, Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)},
			}},
		},
	}
	require.NoError(w.t, w.Matcher.Set(rsv))
	slots, err := convert.Slots(w.Ledger.Table(), rsv)
	require.NoError(w.t, err)
	result := w.Ledger.Reserve(ledger.Plan{Slots: slots, Mode: ledger.AllOrNothing}, time.Time{})
	require.Empty(w.t, result.Rejections)
}

// one is the plan of the only pod of node a.
func (w *world) one() *drain.Pod {
	w.t.Helper()
	plan := w.plan(reserver.DrainPlanRequest{Nodes: []string{"a"}})
	require.Len(w.t, plan.Pods, 1)
	return plan.Pods[0]
}

func ownedBy(version, kind, name string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		by := &pod.OwnerReferences[0]
		by.APIVersion, by.Kind, by.Name = version, kind, name
	}
}

func TestWhichPodsGo(t *testing.T) {
	tests := map[string]struct {
		change    func(*v1.Pod)
		action    reserver.DrainAction
		to        string
		why       string
		unmanaged bool
		warning   string
	}{
		"of a Deployment":  {nil, reserver.DrainMove, "b", "", false, ""},
		"of a StatefulSet": {ownedBy("apps/v1", "StatefulSet", "db"), reserver.DrainMove, "b", "", false, ""},
		"of a Job":         {ownedBy("batch/v1", "Job", "once"), reserver.DrainMove, "b", "", false, ""},
		"of another kind": {
			ownedBy("apps.kruise.io/v1alpha1", "CloneSet", "c"), reserver.DrainMove, "b", "", true, "whether a CloneSet makes",
		},
		"of another Job": {
			ownedBy("batch.volcano.sh/v1alpha1", "Job", "v"), reserver.DrainMove, "b", "", true, "whether a Job makes",
		},
		"of a DaemonSet": {ownedBy("apps/v1", "DaemonSet", "agent"), reserver.DrainStay, "", "DaemonSet", false, ""},
		"static": {func(pod *v1.Pod) {
			pod.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"}
		}, reserver.DrainStay, "", "static", false, ""},
		"skipped":  {func(pod *v1.Pod) { pod.Namespace = "skipped" }, reserver.DrainStay, "", "skipped", false, ""},
		"finished": {func(pod *v1.Pod) { pod.Status.Phase = v1.PodFailed }, reserver.DrainEnd, "", "finished", false, ""},
		"being deleted": {func(pod *v1.Pod) {
			pod.DeletionTimestamp = ptr.To(metav1.Now())
		}, reserver.DrainEnd, "", "being deleted", false, ""},
		"bare": {func(pod *v1.Pod) {
			pod.OwnerReferences = nil
		}, reserver.DrainMove, "", "nothing controls it", true, ""},
		"with a ResourceClaim": {func(pod *v1.Pod) {
			pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("gpu")}}
		}, reserver.DrainMove, "", "ResourceClaims", false, ""},
		"with a device claim": {func(pod *v1.Pod) {
			pod.Annotations = map[string]string{v1alpha1.ExtendedResourceClaimsAnnotation: "gpu"}
		}, reserver.DrainMove, "", "claims devices", false, ""},
		"with an emptyDir": {func(pod *v1.Pod) {
			pod.Spec.Volumes = []v1.Volume{{Name: "tmp", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
		}, reserver.DrainMove, "b", "", false, "emptyDir tmp is lost"},
		"with a hostPath": {func(pod *v1.Pod) {
			pod.Spec.Volumes = []v1.Volume{{Name: "h", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}}}
		}, reserver.DrainMove, "b", "", false, "hostPath"},
		"with a volume": {func(pod *v1.Pod) {
			pod.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
			}}}
		}, reserver.DrainMove, "b", "", false, "volumes of its own"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a", "b")
			w.bind("web-1", "a", "1", tc.change)
			plan := w.plan(reserver.DrainPlanRequest{Nodes: []string{"a"}, SkipNamespaces: []string{"skipped"}})
			require.Len(t, plan.Pods, 1)
			got := plan.Pods[0]
			assert.Equal(t, tc.action, got.Action)
			assert.Equal(t, tc.to, got.To, got.Why)
			assert.Contains(t, got.Why, tc.why)
			assert.Equal(t, tc.why == "", got.Why == "", got.Why)
			assert.Equal(t, tc.unmanaged, got.Unmanaged)
			assert.Contains(t, fmt.Sprint(got.Warnings), tc.warning)
			assert.Equal(t, tc.warning == "", len(got.Warnings) == 0, got.Warnings)
		})
	}
}

// Pods that are not asked for stay, and no place is sought for them.
func TestOnlyPods(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.bind("web-1", "a", "3", nil)
	w.bind("web-2", "a", "1", nil)
	w.bind("other", "b", "1", nil)
	require.Empty(t, w.plan(reserver.DrainPlanRequest{Nodes: []string{"a"}}).Pods[1].To, "or the test shows nothing")
	plan := w.plan(reserver.DrainPlanRequest{Nodes: []string{"a"}, Pods: []string{"uid-web-2"}})
	require.Len(t, plan.Pods, 2)
	assert.Equal(t, []any{reserver.DrainStay, "", "it is not asked for"}, []any{
		plan.Pods[0].Action, plan.Pods[0].To, plan.Pods[0].Why,
	})
	assert.Equal(t, "b", plan.Pods[1].To, plan.Pods[1].Why)
}

func TestWherePodsGo(t *testing.T) {
	apart := func(pod *v1.Pod) {
		pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			}},
		}}
	}
	tests := map[string]struct {
		change  func(*v1.Pod)
		prepare func(w *world)
		to, why string
	}{
		"the fullest that has room": {to: "c", prepare: func(w *world) { w.bind("other", "c", "2", nil) }},
		"what it selects": {
			to: "c", change: func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{"disk": "ssd"} },
			prepare: func(w *world) {
				w.Nodes.Put(&cluster.Node{Name: "c", Labels: map[string]string{"disk": "ssd"}})
			},
		},
		"nothing it selects": {
			why:    "2 that it does not select, or with a taint that it does not tolerate, 1 being drained",
			change: func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{"disk": "ssd"} },
		},
		"no taint it does not tolerate": {to: "c", prepare: func(w *world) {
			w.Nodes.Put(&cluster.Node{Name: "b", Taints: []v1.Taint{{Key: "gpu", Effect: v1.TaintEffectNoSchedule}}})
		}},
		"no cordoned node, whatever it tolerates": {to: "c", change: func(pod *v1.Pod) {
			pod.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
		}, prepare: func(w *world) { w.Nodes.Put(&cluster.Node{Name: "b", Unschedulable: true}) }},
		"not beside its like": {to: "c", change: apart, prepare: func(w *world) {
			w.bind("other", "b", "1", func(pod *v1.Pod) { pod.OwnerReferences[0].Name = "x-1" })
		}},
		"nowhere beside its like": {why: "2 with a pod that it must not be with", change: apart, prepare: func(w *world) {
			w.bind("other-1", "b", "1", nil)
			w.bind("other-2", "c", "1", nil)
		}},
		"too little is free": {
			why: "2 with too little cpu (at most 1.5 free, on c), 1 being drained; on the closest, ",
			prepare: func(w *world) {
				w.bind("big-1", "b", "3", nil)
				w.bind("big-2", "c", "2500m", nil)
			},
		},
		"its namespace's limit": {why: "a place for it cannot be kept beside it", prepare: func(w *world) {
			column, _ := w.Ledger.Table().Offer(v1.ResourceCPU)
			w.Ledger.Observer().SetLimits(ledger.OfNamespace, map[string]*ledger.Limits{
				"team": {Use: []resources.Amount{{Column: column, Value: 3000}}},
			})
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a", "b", "c")
			for _, node := range []string{"a", "b", "c"} {
				w.Nodes.Put(&cluster.Node{Name: node, Labels: map[string]string{v1.LabelHostname: node}})
			}
			w.bind("web-1", "a", "2", tc.change)
			if tc.prepare != nil {
				tc.prepare(w)
			}
			got := w.one()
			assert.Equal(t, tc.to, got.To, got.Why)
			assert.Contains(t, got.Why, tc.why)
			assert.Equal(t, tc.why == "", got.Why == "", got.Why)
		})
	}
}

// Places are next to each other, and pods of the drained nodes go to none of these.
func TestPlacesTogether(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	for i := range 3 {
		w.bind(fmt.Sprintf("web-%d", i), "a", "2", nil)
	}
	w.bind("web-3", "b", "3", nil)
	plan := w.plan(reserver.DrainPlanRequest{Nodes: []string{"a", "b"}})
	to := map[string]int{}
	for _, pod := range plan.Pods {
		to[pod.To]++
	}
	assert.Equal(t, map[string]int{"c": 1, "": 3}, to, "the largest first")
	assert.Equal(t, "c", plan.Pods[3].To)
	w.AddNode("d", "4", "8Gi")
	w.AddNode("e", "2", "8Gi")
	for _, pod := range w.plan(reserver.DrainPlanRequest{Nodes: []string{"a", "b"}}).Pods {
		assert.Contains(t, "cde", pod.To)
		assert.NotEmpty(t, pod.To, pod.Why)
	}
}

// Two replacements with anti-affinity to each other get two nodes.
func TestPlacesOfPodsThatMustBeApart(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	apart := func(pod *v1.Pod) {
		pod.Labels["app"] = "db"
		pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			}},
		}}
	}
	w.AddNode("z", "4", "8Gi")
	for _, node := range []string{"a", "b", "c", "z"} {
		view, _, _ := w.Ledger.Node(node)
		column, _ := w.Ledger.Table().Offer(v1.ResourceCPU)
		pods, _ := w.Ledger.Table().Offer(v1.ResourcePods)
		w.Ledger.ObserveNode(ledger.NodeObservation{
			Name: node, UID: view.UID, Labels: map[string]string{v1.LabelHostname: node},
			Allocatable: []resources.Amount{{Column: column, Value: 4000}, {Column: pods, Value: 110}},
		})
	}
	w.bind("db-0", "a", "1", apart)
	w.bind("db-1", "z", "1", apart)
	plan := w.plan(reserver.DrainPlanRequest{Nodes: []string{"a", "z"}})
	assert.ElementsMatch(t, []string{"b", "c"}, []string{plan.Pods[0].To, plan.Pods[1].To})
}

// What found no place does not count for the limit of its namespace.
func TestLimitsCountPlacesAlone(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.bind("large", "a", "3", nil)
	w.bind("small", "a", "1", nil)
	w.bind("other", "b", "2", nil)
	column, _ := w.Ledger.Table().Offer(v1.ResourceCPU)
	w.Ledger.Observer().SetLimits(ledger.OfNamespace, map[string]*ledger.Limits{
		"team": {Use: []resources.Amount{{Column: column, Value: 9000}}}, // 6 are used
	})
	plan := w.plan(reserver.DrainPlanRequest{Nodes: []string{"a"}})
	assert.Contains(t, plan.Pods[0].Why, "too little cpu")
	assert.Equal(t, "b", plan.Pods[1].To, plan.Pods[1].Why)
}

// A slot that is too small is no place, and a pod has the slot of its own size before a larger one.
func TestSizesOfKeptPlaces(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.bind("large", "a", "2", nil)
	w.bind("small", "a", "1", nil)
	for name, cpu := range map[string]string{"drain-a-1": "1", "drain-a-2": "1500m"} {
		w.keep(name, "b", cpu)
	}
	plan := w.plan(reserver.DrainPlanRequest{Nodes: []string{"a"}, Drain: "drain-a"})
	assert.Empty(t, plan.Pods[0].Slot, "none is large enough")
	assert.Contains(t, plan.Pods[0].Why, "too little cpu")
	assert.Contains(t, plan.Pods[1].Slot, "team/drain-a-1/")
}

// A place that a Reservation of the drain keeps already is taken up, once, and no other is chosen.
func TestPlacesThatAreKept(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	w.bind("web-1", "a", "2", nil)
	w.bind("web-2", "a", "2", nil)
	w.keep("drain-a-1", "c", "2")
	w.keep("others-1", "c", "2")
	plan := w.plan(reserver.DrainPlanRequest{Nodes: []string{"a"}, Drain: "drain-a"})
	assert.Equal(t, "team/drain-a-1/0", plan.Pods[0].Slot)
	assert.Equal(t, "c", plan.Pods[0].To)
	assert.Equal(t, "b", plan.Pods[1].To)
	assert.Empty(t, plan.Pods[1].Slot)
	for _, pod := range w.plan(reserver.DrainPlanRequest{Nodes: []string{"a"}}).Pods {
		assert.Equal(t, "b", pod.To, "without a name, none is the drain's")
	}
	plan = w.plan(reserver.DrainPlanRequest{Nodes: []string{"a", "c"}, Drain: "drain-a"})
	assert.Equal(t, "b", plan.Pods[0].To, "a slot on a node that is drained is no place")
}

func TestNoPlan(t *testing.T) {
	w := newWorld(t, "a")
	_, err := w.planner.Plan(t.Context(), &reserver.DrainPlanRequest{Nodes: []string{"a", "x"}})
	require.ErrorIs(t, err, drain.ErrUnknownNode)
	w.Undecided = func() string { return "another server decides" }
	_, err = w.planner.Plan(t.Context(), &reserver.DrainPlanRequest{Nodes: []string{"a"}})
	require.ErrorContains(t, err, "another server decides")
}
