package cluster

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// devicesAre says which claims of devices a pod names, and what it was bound with.
func devicesAre(allocations, given string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Annotations = map[string]string{
			v1alpha1.ExtendedResourceClaimsAnnotation: allocations, v1alpha1.ExtendedResourcesAnnotation: given,
		}
	}
}

// TestComparerCountsDevices has a bound pod count for the devices of its claims: that is no difference from its spec.
func TestComparerCountsDevices(t *testing.T) {
	table := resources.NewTable()
	pod := &Pod{Node: "n1", Request: &resources.Request{Amounts: []resources.Amount{{Column: resources.Pods, Value: 1}}}}
	allocation := &ledger.AllocationView{
		Node: "n1", State: ledger.Bound, Request: pod.Request.AtLeast(table, "nvidia.com/gpu", 2),
		Given: []ledger.GivenDevices{{Resource: "nvidia.com/gpu", IDs: []string{"a", "b"}}},
	}
	assert.Empty(t, diagnosePod(table, allocation, pod))
	allocation.Given = nil
	assert.Equal(t, WrongAmount, diagnosePod(table, allocation, pod))
}

// TestPodsWithDevices has the ledger told of the devices of bound pods: when these are seen, and
// when an object of their claims changes.
func TestPodsWithDevices(t *testing.T) {
	f := newFixture(objects(aPod("p", 2, on("n1"), devicesAre("c,d", "GPU-0")),
		aPod("other", 3, on("n1"), devicesAre("e", "GPU-1"))),
		objects(aNode("n1", 1, "4")))
	uid, asked := types.UID("first"), []string{}
	var marked []string
	f.options.Devices = func(pod *Pod) *ledger.DeviceRequest {
		asked = append(asked, pod.Ref.Name)
		if pod.Devices == nil {
			return nil
		}
		r := &ledger.DeviceRequest{Given: pod.Devices.Given, Err: "claims are not looked at here"}
		for _, name := range pod.Devices.Claims {
			r.Claims = append(r.Claims, ledger.DeviceClaimRef{Namespace: pod.Ref.Namespace, Name: name, UID: uid})
		}
		return r
	}
	f.options.OnDeviceAnnotations = func(pod *Pod) { marked = append(marked, pod.Ref.Name) }
	run(t, f, func(t *testing.T) {
		allocation := f.claim("p")
		require.NotNil(t, allocation)
		require.Len(t, allocation.Given, 3)
		assert.Equal(t, "c", allocation.Given[0].Claim.Name)
		assert.Equal(t, []string{"GPU-0"}, allocation.Given[2].IDs)

		asked = nil
		f.ObserveClaimants("default", "d")
		f.ObserveClaimants("elsewhere", "d")
		f.ObserveClaimants("default", "none")
		assert.Equal(t, []string{"p"}, asked, "of the claim that changed")

		f.podServer.send(watch.Modified, aPod("p", 4, on("n1"), devicesAre("c,d", "GPU-0")))
		synctest.Wait()
		assert.Empty(t, marked, "something else of the pod changed")
		f.podServer.send(watch.Modified, aPod("p", 5, on("n1"), devicesAre("c,d", "GPU-1")))
		f.podServer.send(watch.Modified, aPod("other", 6, on("n1")))
		synctest.Wait()
		assert.Equal(t, []string{"p", "other"}, marked)

		marked = nil
		f.podServer.send(watch.Added, aPod("waits", 7, devicesAre("c", "")))
		f.podServer.send(watch.Added, aPod("claims-nothing", 8))
		f.podServer.send(watch.Modified, aPod("waits", 9, devicesAre("c", ""),
			func(p *v1.Pod) { p.Spec.Priority = new(int32) }))
		synctest.Wait()
		assert.Equal(t, []string{"waits"}, marked, "when it is first seen")
		f.podServer.send(watch.Modified, aPod("waits", 10, devicesAre("template:d", "")))
		synctest.Wait()
		assert.Equal(t, []string{"waits", "waits"}, marked, "it names another claim")
	})
}
