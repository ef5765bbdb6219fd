package debugger

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/fake"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

func aNode() *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n1-uid"}, Status: v1.NodeStatus{
		Allocatable: v1.ResourceList{"cpu": resource.MustParse("8"), "pods": resource.MustParse("110")},
	}}
}

func aPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "p", UID: "p-uid", Annotations: map[string]string{
				v1alpha1.ExtendedResourceClaimsAnnotation: "c", v1alpha1.ExtendedResourcesAnnotation: "gpu-0",
			},
		},
		Spec: v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("1")}},
			Ports:     []v1.ContainerPort{{HostPort: 80, Protocol: v1.ProtocolTCP}},
		}}},
	}
}

func aReservation() *v1alpha1.Reservation {
	return &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "r", UID: "r-uid"},
		Spec: v1alpha1.ReservationSpec{Slots: []v1alpha1.Slot{{
			Name: "a", NodeName: "n1", Requests: v1.ResourceList{
				"cpu":              resource.MustParse("2"),
				"example.com/none": resource.MustParse("3"),
			},
		}}},
		Status: v1alpha1.ReservationStatus{Phase: v1alpha1.ReservationAvailable},
	}
}

func aDevice() *v1alpha1.ExtendedResource {
	return &v1alpha1.ExtendedResource{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: v1alpha1.ExtendedResourceSpec{
		NodeName: "n1", ResourceName: "example.com/gpu", DeviceID: "gpu-0", Properties: map[string]string{"memory": "40Gi"},
	}}
}

func aClaim() *v1alpha1.ExtendedResourceClaim {
	return &v1alpha1.ExtendedResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "c-uid"}}
}

// world is a cluster with one object of each kind, and a ledger that agrees with it.
type world struct {
	pods, nodes []runtime.Object
	objects     []runtime.Object
	ledger      *ledger.Ledger
	about       reserver.DumpAnswer
}

func newWorld() *world {
	w := &world{
		nodes: []runtime.Object{aNode()}, pods: []runtime.Object{aPod()},
		objects: []runtime.Object{aReservation(), aDevice(), aClaim()},
		ledger:  ledger.New(ledger.Options{FirstRevision: 7}),
		about:   reserver.DumpAnswer{Server: "me", Pods: true, Objects: true},
	}
	w.observeNode("n1", 8000)
	w.observeDevice("gpu-0", "d")
	w.observePod("p", "n1", 1000)
	w.observeSlot("a", "n1", 2000)
	return w
}

func (w *world) observeNode(name string, cpu int64) {
	w.ledger.Observer().ObserveNode(ledger.NodeObservation{
		Name: name, UID: types.UID(name + "-uid"),
		Allocatable: []resources.Amount{{Column: resources.CPU, Value: cpu}, {Column: resources.Pods, Value: 110}},
	})
}

func (w *world) observeDevice(id string, names ...string) {
	var list []devices.Device
	for _, name := range names {
		list = append(list, devices.Device{
			Name: name, Resource: "example.com/gpu", ID: id,
			Properties: map[string]string{"memory": "40Gi"},
		})
	}
	w.ledger.Observer().ObserveDevices("n1", list)
}

func (w *world) observePod(name, node string, cpu int64) {
	pod := aPod()
	pod.Name, pod.UID, pod.Spec.NodeName = name, types.UID(name+"-uid"), node
	pod.Spec.Containers[0].Resources.Requests["cpu"] = *resource.NewMilliQuantity(cpu, resource.DecimalSI)
	o := cluster.Reader{Table: w.ledger.Table()}.Compact(pod).Observation()
	if name == "p" {
		o.Devices = &ledger.DeviceRequest{
			Claims: []ledger.DeviceClaimRef{{Namespace: "default", Name: "c", UID: "c-uid"}}, Given: "gpu-0",
		}
	}
	w.ledger.Observer().ObservePod(o)
}

func (w *world) observeSlot(slot, node string, cpu int64) {
	w.ledger.Observer().ObserveSlot(ledger.Slot{
		Ref: ledger.SlotRef{Namespace: "default", Name: "r", Slot: slot}, Node: node, Policy: ledger.Once,
		Request: &resources.Request{
			Amounts:  []resources.Amount{{Column: resources.CPU, Value: cpu}, {Column: resources.Pods, Value: 1}},
			Unlisted: []resources.NamedAmount{{Name: "example.com/none", Value: 3}},
		},
	})
}

func (w *world) comparer() *Comparer {
	return &Comparer{
		Core:    kubefake.NewClientset(append(w.nodes, w.pods...)...),
		Objects: fake.NewSimpleClientset(w.objects...), Ledger: w.ledger.Reader,
		About: func() reserver.DumpAnswer { return w.about },
	}
}

func TestEveryKindOfDifferenceIsTold(t *testing.T) {
	tests := map[string]struct {
		change func(w *world)
		want   []string // kind and object
	}{
		"nothing": {change: func(*world) {}},
		"pod missed": {func(w *world) {
			p := aPod()
			p.Name, p.UID, p.Annotations = "q", "q-uid", nil
			w.pods = append(w.pods, p)
		}, []string{"missing_allocation pod default/q"}},
		"pod gone": {func(w *world) { w.observePod("q", "n1", 1000) }, []string{"stale_allocation pod default/q"}},
		"pod elsewhere": {
			func(w *world) { w.pods[0].(*v1.Pod).Spec.NodeName = "n2" }, []string{"wrong_node pod default/p"},
		},
		"pod asks for other": {func(w *world) { w.observePod("p", "n1", 1500) }, []string{"wrong_amount pod default/p"}},
		"node missed": {
			func(w *world) { n := aNode(); n.Name = "n2"; w.nodes = append(w.nodes, n) },
			[]string{"missing_node node n2"},
		},
		"node gone":         {func(w *world) { w.observeNode("n2", 1) }, []string{"stale_node node n2"}},
		"node offers other": {func(w *world) { w.observeNode("n1", 9000) }, []string{"wrong_node_amount node n1"}},
		"node cordoned": {
			func(w *world) { w.nodes[0].(*v1.Node).Spec.Unschedulable = true },
			[]string{"wrong_node_state node n1"},
		},
		"slot missed": {
			func(w *world) { w.ledger.ReleaseSlots("default", "r") }, []string{"missing_slot slot default/r/a"},
		},
		"slot of no object": {func(w *world) { w.observeSlot("b", "n1", 1) }, []string{"stale_slot slot default/r/b"}},
		"slot of another size": {func(w *world) {
			w.objects[0].(*v1alpha1.Reservation).Spec.Slots[0].Requests["cpu"] = resource.MustParse("1")
		}, []string{"wrong_slot slot default/r/a"}},
		"slot elsewhere": {
			func(w *world) { w.objects[0].(*v1alpha1.Reservation).Spec.Slots[0].NodeName = "n2" },
			[]string{"wrong_slot slot default/r/a"},
		},
		"reservation ended": {func(w *world) {
			w.objects[0].(*v1alpha1.Reservation).
				Status.Phase = v1alpha1.ReservationExpired
		}, []string{"stale_slot slot default/r/a"}},
		"device missed": {func(w *world) {
			d := aDevice()
			d.Name, d.Spec.DeviceID = "e", "gpu-1"
			w.objects = append(w.objects, d)
		}, []string{"missing_device device e"}},
		"device gone": {
			func(w *world) { w.objects = w.objects[:1]; w.objects = append(w.objects, aClaim()) },
			[]string{"stale_device device d"},
		},
		"device changed": {func(w *world) {
			w.objects[1].(*v1alpha1.ExtendedResource).
				Spec.Properties["memory"] = "80Gi"
		}, []string{"wrong_device device d"}},
		"two objects of one": {change: func(w *world) { d := aDevice(); d.Name = "e"; w.objects = append(w.objects, d) }},
		"other devices given": {func(w *world) {
			w.pods[0].(*v1.Pod).
				Annotations[v1alpha1.ExtendedResourcesAnnotation] = "gpu-9"
		}, []string{"wrong_given pod default/p"}},
		"claim gone":          {func(w *world) { w.objects = w.objects[:2] }, []string{"stale_claim pod default/p"}},
		"only pods and nodes": {change: func(w *world) { w.about.Objects, w.objects = false, nil }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				tt.change(w)
				answer, err := w.comparer().Diff(t.Context())
				require.NoError(t, err)
				var got []string
				for _, d := range answer.Differences {
					got = append(got, d.Kind+" "+d.Object)
				}
				assert.Equal(t, tt.want, got)
			})
		})
	}
}

func TestWhatIsGoneAtTheSecondLookIsNoDifference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.observeNode("n2", 1)
		looks, began := 0, time.Now()
		comparer := w.comparer()
		comparer.About = func() reserver.DumpAnswer {
			if looks++; looks == 2 {
				w.ledger.Observer().RemoveNode("n2")
				w.observeNode("n3", 1) // nor is what comes up then
			}
			return w.about
		}
		answer, err := comparer.Diff(t.Context())
		require.NoError(t, err)
		assert.Empty(t, answer.Differences)
		assert.Equal(t, 2, looks)
		assert.Equal(t, pause, time.Since(began))
	})
}

func TestAnAccountThatIsNotCompleteIsNotCompared(t *testing.T) {
	w := newWorld()
	w.about.Pods = false
	_, err := w.comparer().Diff(t.Context())
	refused := &httpjson.Error{}
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, http.StatusServiceUnavailable, refused.Status)
	assert.Equal(t, "the server has not read all pods and nodes yet (me): ask again in a moment", refused.Message)
}

func TestOfVeryManyDifferencesSomeAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for i := range maxTold + 3 {
			w.observeNode(fmt.Sprint("gone-", i), 1)
		}
		answer, err := w.comparer().Diff(t.Context())
		require.NoError(t, err)
		assert.Len(t, answer.Differences, maxTold)
		assert.Equal(t, 3, answer.More)
	})
}
