package agreement

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/dra/account"
	"github.com/globalreserve/globalreserve/test/ledgertest"
)

// deviceWorlds is how many small worlds of devices are tried: each takes kube-scheduler's allocator many times.
const deviceWorlds = "1000"

// features are those that kube-scheduler's allocator has in 1.37 and that are on by default, or will be.
var features = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
	PartitionableDevices: true, PrioritizedList: true,
}

var celCache = cel.NewCache(100, cel.Features{EnableConsumableCapacity: true})

type classes struct{}

func (classes) List() ([]*resourcev1.DeviceClass, error) { return nil, nil }

func (classes) Get(name string) (*resourcev1.DeviceClass, error) {
	if name != "any" {
		return nil, apierrors.NewNotFound(resourcev1.Resource("deviceclasses"), name)
	}
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "any"}}, nil
}

// deviceWorld is the truth, and the account of it.
type deviceWorld struct {
	slices  []*resourcev1.ResourceSlice
	claims  []*resourcev1.ResourceClaim // those that have devices
	account *account.Account
	version int64
}

func TestDevicesAgreeWithKubeScheduler(t *testing.T) {
	checks := flag.Lookup("rapid.checks").Value
	defer func(before string) { require.NoError(t, checks.Set(before)) }(checks.String())
	require.NoError(t, checks.Set(deviceWorlds))

	allocated, refused := 0, map[account.Reason]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := drawDeviceWorld(t)
		for range 16 {
			switch ledgertest.Pick(t, "what", 4) {
			case 0:
				w.end(t)
			case 1:
				if refusal := w.requireRefused(t); refusal != nil {
					refused[refusal.Reason]++
				}
			default:
				allocated += w.requireGranted(t)
			}
		}
	})
	// A test that never allocates, or where nothing is ever taken, shows nothing.
	require.Greater(t, allocated, 1000)
	for _, why := range []account.Reason{account.DeviceInUse, account.SharedCapacityExceeded, account.CountersExceeded} {
		require.Greater(t, refused[why], 100, why)
	}
}

// requireGranted lets kube-scheduler allocate for a claim from the truth: the account has to agree.
func (w *deviceWorld) requireGranted(t *rapid.T) int {
	w.version++
	c := drawClaim(t, w.version)
	found := w.allocate(t, c)
	if found == nil {
		return 0
	}
	c.Status.Allocation = found
	if refusal := w.account.Grant(c, w.version, time.Unix(0, 0)); refusal != nil {
		require.FailNow(t, refusal.Message(), "%v", found.Devices.Results)
	}
	if chance(t, "lost", 4) {
		w.account.ForgetClaim(c.UID)
		return 1
	}
	w.version++
	c.ResourceVersion = strconv.FormatInt(w.version, 10)
	if !chance(t, "not seen yet", 2) {
		w.account.ObserveClaim(c)
	}
	w.claims = append(w.claims, c)
	require.Empty(t, w.account.Doubles())
	return 1
}

// requireRefused asks for one device, as a scheduler would that does not know who has it. Where kube-scheduler, which
// knows, can have it in an empty world and not in this one, the account has to refuse.
func (w *deviceWorld) requireRefused(t *rapid.T) *account.Refusal {
	devices := w.devices()
	at := devices[ledgertest.Pick(t, "device", len(devices))]
	w.version++
	c := claimFor(w.version, resourcev1.DeviceRequest{Name: "r", Exactly: exactly(nil, at)})
	empty := &deviceWorld{slices: w.slices}
	unaware := empty.allocate(t, c)
	require.NotNil(t, unaware, "an empty world has %s", at)
	aware := w.allocate(t, c)
	c.Status.Allocation = unaware
	refusal := w.account.Grant(c, w.version, time.Unix(0, 0))
	require.Equal(t, aware == nil, refusal != nil, "%v: %v", unaware.Devices.Results, refusal)
	w.account.ForgetClaim(c.UID)
	return refusal
}

// end takes the devices from one claim.
func (w *deviceWorld) end(t *rapid.T) {
	if len(w.claims) == 0 {
		return
	}
	i := ledgertest.Pick(t, "claim", len(w.claims))
	c := w.claims[i].DeepCopy()
	w.claims = slices.Delete(w.claims, i, i+1)
	if chance(t, "deleted", 2) {
		w.account.ForgetClaim(c.UID)
		return
	}
	w.version++
	c.Status.Allocation, c.ResourceVersion = nil, strconv.FormatInt(w.version, 10)
	w.account.ObserveClaim(c)
}

// allocate is what kube-scheduler does with the truth.
func (w *deviceWorld) allocate(t *rapid.T, c *resourcev1.ResourceClaim) *resourcev1.AllocationResult {
	allocator, err := structured.NewAllocator(context.Background(), features, w.allocatedState(), classes{}, w.slices,
		celCache)
	require.NoError(t, err)
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	found, err := allocator.Allocate(context.Background(), node, []*resourcev1.ResourceClaim{c})
	if err != nil || len(found) == 0 {
		return nil
	}
	return &found[0]
}

// allocatedState is gathered from claims as kube-scheduler's plugin does it.
func (w *deviceWorld) allocatedState() structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, c := range w.claims {
		for _, r := range c.Status.Allocation.Devices.Results {
			id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
			switch {
			case ptr.Deref(r.AdminAccess, false):
			case r.ShareID == nil:
				state.AllocatedDevices.Insert(id)
			default:
				state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
				if r.ConsumedCapacity != nil {
					state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
				}
			}
		}
	}
	return state
}

func (w *deviceWorld) devices() []string {
	var list []string
	for _, s := range w.slices {
		for _, d := range s.Spec.Devices {
			list = append(list, d.Name)
		}
	}
	return list
}

// drawDeviceWorld makes one or two pools on a node: devices that are plain, can be shared, or take counters.
func drawDeviceWorld(t *rapid.T) *deviceWorld {
	w := &deviceWorld{account: account.New(), version: 1}
	n := 0
	for p := range 1 + ledgertest.Pick(t, "pools", 2) {
		counters := chance(t, "counters", 2)
		count := 1 + ledgertest.Pick(t, "slices", 2)
		total := count
		if counters {
			total++
			s := sliceOfPool(p, count, total)
			s.Spec.SharedCounters = []resourcev1.CounterSet{{Name: "set", Counters: map[string]resourcev1.Counter{
				"memory": {Value: amountOf(t, "4", "6", "7500m")}, "cores": {Value: amountOf(t, "3", "8")},
			}}}
			w.slices = append(w.slices, s)
		}
		for i := range count {
			s := sliceOfPool(p, i, total)
			for range 1 + ledgertest.Pick(t, "devices", 3) {
				s.Spec.Devices = append(s.Spec.Devices, drawDevice(t, n, counters))
				n++
			}
			w.slices = append(w.slices, s)
		}
	}
	for _, s := range w.slices {
		w.account.ObserveSlice(s)
	}
	return w
}

func sliceOfPool(pool, i, count int) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("slice-%d-%d", pool, i)},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "driver.example.com", NodeName: ptr.To("node-1"),
			Pool: resourcev1.ResourcePool{Name: fmt.Sprintf("pool-%d", pool), Generation: 1, ResourceSliceCount: int64(count)},
		},
	}
}

func amountOf(t *rapid.T, values ...string) resource.Quantity {
	return resource.MustParse(oneOf(t, "amount", values...))
}

func drawDevice(t *rapid.T, n int, counters bool) resourcev1.Device {
	name := "device-" + strconv.Itoa(n)
	attributes := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"name": {StringValue: &name}}
	d := resourcev1.Device{Name: name, Attributes: attributes}
	if chance(t, "shareable", 2) {
		d.AllowMultipleAllocations = ptr.To(true)
		d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {
			Value:         amountOf(t, "4", "5500m"),
			RequestPolicy: &resourcev1.CapacityRequestPolicy{Default: ptr.To(resource.MustParse("1"))},
		}}
		if chance(t, "no policy", 4) {
			d.Capacity["cores"] = resourcev1.DeviceCapacity{Value: amountOf(t, "2", "3")}
		}
	}
	if counters && !chance(t, "takes no counters", 4) {
		d.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{
			CounterSet: "set",
			Counters: map[string]resourcev1.Counter{
				"memory": {Value: amountOf(t, "1", "2", "3", "2500m")}, "cores": {Value: amountOf(t, "1", "2")},
			},
		}}
	}
	if chance(t, "binding conditions", 6) {
		d.BindingConditions, d.BindingFailureConditions = []string{"ready"}, []string{"failed"}
	}
	return d
}

func claimFor(n int64, requests ...resourcev1.DeviceRequest) *resourcev1.ResourceClaim {
	name := fmt.Sprintf("claim-%d", n)
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name),
			ResourceVersion: strconv.FormatInt(n, 10),
		},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}},
	}
}

// exactly asks for one device, whichever it is or of a name.
func exactly(capacity *resourcev1.CapacityRequirements, name string) *resourcev1.ExactDeviceRequest {
	r := &resourcev1.ExactDeviceRequest{
		DeviceClassName: "any", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1, Capacity: capacity,
	}
	if name != "" {
		r.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			Expression: fmt.Sprintf("device.attributes['driver.example.com'].name == %q", name),
		}}}
	}
	return r
}

func drawClaim(t *rapid.T, n int64) *resourcev1.ResourceClaim {
	var requests []resourcev1.DeviceRequest
	for i := range 1 + ledgertest.Pick(t, "requests", 3) {
		var capacity *resourcev1.CapacityRequirements
		if chance(t, "capacity", 2) {
			capacity = &resourcev1.CapacityRequirements{
				Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": amountOf(t, "1", "1500m", "2")},
			}
		}
		r := exactly(capacity, "")
		r.Count = int64(1 + ledgertest.Pick(t, "count", 2))
		if chance(t, "admin", 6) {
			r.AdminAccess = ptr.To(true)
		}
		request := resourcev1.DeviceRequest{Name: "r" + strconv.Itoa(i), Exactly: r}
		if chance(t, "list", 4) {
			request.Exactly = nil
			for j, count := range []int64{3, 1} {
				request.FirstAvailable = append(request.FirstAvailable, resourcev1.DeviceSubRequest{
					Name: "s" + strconv.Itoa(j), DeviceClassName: "any", Count: count,
					AllocationMode: resourcev1.DeviceAllocationModeExactCount, Capacity: capacity,
				})
			}
		}
		requests = append(requests, request)
	}
	return claimFor(n, requests...)
}
