package reservations

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/test/bubble"
)

const gpu = "nvidia.com/gpu"

// addDevices gives a node GPUs, each of a model: their IDs are node-0, node-1 and so on.
func (w *world) addDevices(node string, models ...string) {
	w.ledger.ObserveDevices(node, gpusOf(node, models))
	w.settle()
}

func gpusOf(node string, models []string) []devices.Device {
	var list []devices.Device
	for k, model := range models {
		id := node + "-" + string(rune('0'+k))
		list = append(list, devices.Device{Name: id, Resource: gpu, ID: id, Properties: map[string]string{"model": model}})
	}
	return list
}

// keeping makes a slot keep one GPU for each text: a claim and a model, either of which
// may be empty, with a colon between.
func keeping(s v1alpha1.Slot, wanted ...string) v1alpha1.Slot {
	for _, text := range wanted {
		claim, model, _ := strings.Cut(text, ":")
		d := v1alpha1.SlotDevices{ClaimName: claim, ResourceName: gpu, Count: 1}
		if model != "" {
			d.MatchProperties = map[string]string{"model": model}
		}
		s.Devices = append(s.Devices, d)
	}
	return s
}

func claimRequest(claim, model string) *ledger.DeviceRequest {
	spec := &v1alpha1.ExtendedResourceClaimSpec{ResourceName: gpu, Count: 1}
	if model != "" {
		spec.Selector = &v1alpha1.DeviceSelector{MatchProperties: map[string]string{"model": model}}
	}
	compiled, err := devices.Compile(field.NewPath("spec"), spec)
	if err != nil {
		panic(err)
	}
	return &ledger.DeviceRequest{
		Claims:   []ledger.DeviceClaimRef{{Namespace: testNamespace, Name: claim, UID: "uid-of-claim"}},
		Requests: []*devices.Request{compiled},
	}
}

// bindClaiming binds a pod with a claim of a GPU of a model and returns its devices, or why it was refused.
func (w *world) bindClaiming(name, node, claim, model string, kept ...ledger.SlotRef) string {
	p := ledger.Placement{
		Pod: podRef(name), Node: node, Request: request(1000), Slots: kept,
		Devices: claimRequest(claim, model),
	}
	grant, refused := w.ledger.StartBind(&p, time.Now())
	if refused != nil {
		return refused.Reason.String()
	}
	w.ledger.Confirm(p.Pod, p.Node)
	w.settle()
	return strings.Join(convert.DeviceIDs(grant.Devices), ",")
}

// kept returns which devices the slots say that they keep.
func (w *world) kept(name string) (kept []string) {
	for _, s := range w.get(name).Status.Slots {
		kept = append(kept, s.Name+"@"+s.NodeName+":"+strings.Join(s.Devices, ","))
	}
	return kept
}

func TestSlotsKeepDevices(t *testing.T) {
	everyone := func(rsv *v1alpha1.Reservation) *v1alpha1.Reservation {
		rsv.Spec.Consumers = &v1alpha1.ConsumerSpec{Selector: &metav1.LabelSelector{}}
		return rsv
	}
	cases := map[string]func(t *testing.T, w *world){
		"on the node that has them": func(t *testing.T, w *world) {
			w.create(newReservation("r", time.Minute, keeping(slot("a", "", 1000), ":K80")))
			assert.Equal(t, []string{"a@n2:n2-0"}, w.kept("r"))
			assert.Equal(t, "InsufficientDevices", w.bindClaiming("p", "n2", "c", "K80"), "they are kept from others")
			assert.Equal(t, "n2-1", w.bindClaiming("p", "n2", "c", ""))
		},
		"a slot that will take any leaves what another one needs": func(t *testing.T, w *world) {
			w.create(newReservation("r", time.Minute, keeping(slot("a", "", 1000), ":"), keeping(slot("b", "", 1000), ":K80")))
			assert.Equal(t, []string{"a@n2:n2-1", "b@n2:n2-0"}, w.kept("r"))
		},
		"all slots or none": func(t *testing.T, w *world) {
			w.create(newReservation("r", time.Minute, slot("b", "n1", 1000), keeping(slot("a", "n2", 1000), ":A100")))
			assert.Equal(t, "Pending InsufficientDevices", strings.TrimSpace(w.shown("r"))[:27])
			assert.Empty(t, w.held("r"))
			w.addDevices("n2", "A100")
			assert.Equal(t, []string{"b@n1:", "a@n2:n2-0"}, w.kept("r"), "a device that comes is taken")
		},
		"a consumer gets them": func(t *testing.T, w *world) {
			w.create(everyone(newReservation("r", time.Minute, keeping(slot("a", "", 1000), ":K80"))))
			assert.Equal(t, "n2-0", w.bindClaiming("p", "n2", "c", "", slotRef("r", "a")), "though n2-1 would do as well")
			assert.Equal(t, "Succeeded", string(w.get("r").Status.Phase))
			assert.Equal(t, []string{"a@n2:"}, w.kept("r"), "the pod has them now")
		},
		"an allocation in use is waited for": func(t *testing.T, w *world) {
			require.Equal(t, "n2-0", w.bindClaiming("p", "n2", "c", ""))
			w.create(newReservation("r", time.Minute, keeping(slot("a", "", 1000), "c:")))
			assert.Equal(t,
				"slot a asks for 1 CPU, 1 nvidia.com/gpu: no node of 2 fits: 2 because another pod has a claim that the slot "+
					"keeps devices for",
				w.get("r").Status.Conditions[0].Message)
			w.deletePod("p")
			w.settle()
			assert.Equal(t, []string{"a@n2:n2-0"}, w.kept("r"))
		},
		"deleting gives them back, and who waits gets them": func(t *testing.T, w *world) {
			w.create(newReservation("r", time.Minute, keeping(slot("a", "n2", 1000), ":K80")))
			w.create(newReservation("later", time.Minute, keeping(slot("a", "", 1000), ":K80")))
			assert.Empty(t, w.held("later"))
			w.delete("r")
			assert.Equal(t, []string{"a@n2:n2-0"}, w.kept("later"))
		},
		"one that is lost is said to be": func(t *testing.T, w *world) {
			w.create(everyone(newReservation("r", time.Minute, keeping(slot("a", "", 1000), ":", ":K80"), slot("b", "n2", 100))))
			lost := func() []string { return w.get("r").Status.Slots[0].LostDevices }
			require.Equal(t, []string{"a@n2:n2-1,n2-0", "b@n2:"}, w.kept("r"))
			assert.Empty(t, lost())
			w.addDevices("n2", "K80")
			assert.Equal(t, []string{"a@n2:n2-1,n2-0", "b@n2:"}, w.kept("r"), "what it was given stays on record")
			assert.Equal(t, []string{"n2-1"}, lost())
			w.addDevices("n2")
			assert.Equal(t, []string{"n2-1", "n2-0"}, lost())
			w.addDevices("n2", "K80", "A100")
			assert.Empty(t, lost(), "it has them again")
			w.addDevices("n2", "K80")
			w.delete("r")
			assert.Equal(t, "n2-0", w.bindClaiming("p", "n2", "c", ""))
		},
		"what makes no sense fails": func(t *testing.T, w *world) {
			s := keeping(slot("a", "n2", 1000), ":")
			s.Devices[0].MatchExpressions = []v1alpha1.SlotDeviceRequirement{{Key: "model", Operator: v1alpha1.PropertyIn}}
			w.create(newReservation("r", time.Minute, s))
			rsv := w.get("r")
			assert.Equal(t, v1alpha1.ReservationFailed, rsv.Status.Phase)
			assert.Equal(t, reasonInvalidSpec, rsv.Status.Conditions[0].Reason)
			assert.Contains(t, rsv.Status.Conditions[0].Message, "slot a: devices[0].matchExpressions[0].values")
		},
	}
	bubble.Each(t, cases, func(t *testing.T, test func(t *testing.T, w *world)) {
		w := newWorld(t, "n1", "n2")
		w.addDevices("n2", "K80", "P100")
		test(t, w)
	})
}

// boundClaiming makes a pod with a device, which may be that of a slot.
func boundClaiming(w *world, name, id string, slot ledger.SlotRef) {
	info := podInfo(name)
	info.Node, info.Devices = "n", &cluster.DeviceAnnotations{Claims: []string{"c"}, Given: id}
	if slot.Name != "" {
		info.Annotations = &cluster.Annotations{Matched: slot}
	}
	w.putPod(info)
}

// TestDevicesAfterRestart kills the server and starts another one. What was kept is
// not what would be chosen now: a device that comes first by its name was freed.
func TestDevicesAfterRestart(t *testing.T) {
	everyone := &v1alpha1.ConsumerSpec{Selector: &metav1.LabelSelector{}}
	byServer := func() *v1alpha1.Reservation {
		rsv := madeBy(newReservation("r", time.Minute, keeping(slot("a", "n", 1000), "c:")), convert.MadeByReserve)
		rsv.Spec.Slots[0].Devices[0].DeviceIDs = []string{"n-1"}
		return rsv
	}
	type testCase struct {
		before, between func(w *world)
		late            bool // devices are known after reservations
		want            []string
		free            []string
	}
	plain := func(w *world) { w.create(newReservation("r", time.Minute, keeping(slot("a", "n", 1000), ":"))) }
	cases := map[string]testCase{
		"devices that come late": {before: plain, late: true, want: []string{"a@n:n-0"}, free: []string{"n-1", "n-2"}},
		"others kept the devices that it says are its own": {before: func(w *world) {
			w.create(newReservation("older", time.Minute, keeping(slot("a", "n", 1000), ":")))
			w.pass(time.Second)
		}, between: func(w *world) { w.create(byServer()) }, want: []string{"a@n:n-0"}, free: []string{"n-2"}},
		"the same device twice": {before: func(*world) {}, between: func(w *world) {
			rsv := byServer()
			rsv.Spec.Slots[0].Devices[0].Count, rsv.Spec.Slots[0].Devices[0].DeviceIDs = 2, []string{"n-1", "n-1"}
			w.create(rsv)
		}, want: []string{"a@n:n-0,n-1"}, free: []string{"n-2"}},
		"more devices than it asks for": {before: func(*world) {}, between: func(w *world) {
			rsv := byServer()
			rsv.Spec.Slots[0].Devices[0].DeviceIDs = []string{"n-1", "n-2"}
			w.create(rsv)
		}, want: []string{"a@n:n-0"}, free: []string{"n-1", "n-2"}},
		"a consumer keeps those it was given": {
			before: func(w *world) {
				rsv := newReservation("r", time.Minute, keeping(slot("a", "n", 1000), ":"))
				rsv.Spec.AllocatePolicy, rsv.Spec.Consumers = v1alpha1.AllocateAligned, everyone
				w.create(rsv)
			},
			between: func(w *world) { boundClaiming(w, "p", "n-1", slotRef("r", "a")) },
			want:    []string{"a@n:n-1"}, free: []string{"n-0", "n-2"},
		},
	}
	bubble.Each(t, cases, func(t *testing.T, tc testCase) {
		w := newWorld(t, "n")
		models := []string{"", "", ""}
		w.addDevices("n", models...)
		require.Equal(t, "n-0", w.bindClaiming("first", "n", "other", ""))
		tc.before(w)
		w.stop()
		if tc.between != nil {
			tc.between(w)
		}
		w.newServer()
		if !tc.late {
			w.ledger.ObserveDevices("n", gpusOf("n", models))
		}
		w.start()
		w.settle()
		if tc.late {
			w.addDevices("n", models...)
		}
		assert.Equal(t, tc.want, w.kept("r"))
		node, _, _ := w.ledger.Node("n")
		var free []string
		for _, d := range node.Devices {
			if d.Free {
				free = append(free, d.ID)
			}
		}
		assert.Equal(t, tc.free, free)
	})
}

// Devices of two resources may have the same ID.
func TestDevicesOfOneIDAfterRestart(t *testing.T) {
	const nic = "example.com/nic"
	pair := keeping(slot("a", "n", 100), ":")
	pair.Devices = append(pair.Devices, v1alpha1.SlotDevices{ResourceName: nic, Count: 1})
	type testCase struct {
		slot v1alpha1.Slot
		pod  string // the device that a pod has after the restart
		want string
	}
	cases := map[string]testCase{
		"both are free":      {pair, "", "a@n:n-1,n-1"},
		"one is a pod's":     {keeping(slot("a", "n", 100), ":"), "n-1", "a@n:n-0"},
		"another is a pod's": {keeping(slot("a", "n", 100), ":"), "n-0", "a@n:n-1"},
	}
	bubble.Each(t, cases, func(t *testing.T, tc testCase) {
		w := newWorld(t, "n")
		list := gpusOf("n", []string{"", ""})
		for _, d := range slices.Clone(list) {
			list = append(list, devices.Device{Name: "nic-" + d.Name, Resource: nic, ID: d.ID})
		}
		w.ledger.ObserveDevices("n", list)
		w.create(newReservation("older", time.Minute, pair))
		w.create(newReservation("r", time.Minute, tc.slot))
		w.delete("older")
		w.stop()
		if tc.pod != "" {
			boundClaiming(w, "p", tc.pod, ledger.SlotRef{})
		}
		w.newServer()
		w.ledger.ObserveDevices("n", list)
		w.start()
		w.settle()
		assert.Equal(t, []string{tc.want}, w.kept("r"))
	})
}
