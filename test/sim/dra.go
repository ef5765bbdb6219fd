package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	draDriver = "gpu.example.com"
	// wholes and parts are how many devices a pool has of either kind. Each part takes partTakes of what they share.
	wholes, parts = 2, 3
	partTakes     = 40
	shared        = 100
	// maxResourceClaims is how many names ResourceClaims have: fewer than there are devices.
	maxResourceClaims = 10
)

// publish has the driver of a node publish its devices, but for one of the parts if there is one of that number.
func (c *Cluster) publish(ctx context.Context, node, but int) error {
	pool := fmt.Sprintf("node-%d", node)
	counters := func(amount int64) map[string]resourcev1.Counter {
		return map[string]resourcev1.Counter{"memory": {Value: *resource.NewQuantity(amount, resource.DecimalSI)}}
	}
	var devices []resourcev1.Device
	for i := range wholes {
		devices = append(devices, resourcev1.Device{Name: fmt.Sprintf("whole-%d", i)})
	}
	for i := range parts {
		if i == but {
			continue
		}
		devices = append(devices, resourcev1.Device{
			Name:             fmt.Sprintf("part-%d", i),
			ConsumesCounters: []resourcev1.DeviceCounterConsumption{{CounterSet: "all", Counters: counters(partTakes)}},
		})
	}
	for i, spec := range []resourcev1.ResourceSliceSpec{
		{Devices: devices}, {SharedCounters: []resourcev1.CounterSet{{Name: "all", Counters: counters(shared)}}},
	} {
		name := []string{pool + "-devices", pool + "-counters"}[i]
		spec.Driver, spec.NodeName = draDriver, &pool
		spec.Pool = resourcev1.ResourcePool{
			Name: pool, Generation: time.Since(c.begun).Nanoseconds() + 1, ResourceSliceCount: 2,
		}
		slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
		client := c.admin.ResourceV1().ResourceSlices()
		known, err := client.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			slice.ResourceVersion = known.ResourceVersion
			_, err = client.Update(ctx, slice, metav1.UpdateOptions{})
		} else if apierrors.IsNotFound(err) {
			_, err = client.Create(ctx, slice, metav1.CreateOptions{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// publishAll has the drivers of all nodes publish all they have.
func (c *Cluster) publishAll(ctx context.Context) error {
	for node := range c.options.Nodes {
		if err := c.publish(ctx, node, parts); err != nil {
			return err
		}
	}
	return nil
}

// changePool has a driver publish its devices anew.
func (c *Cluster) changePool(ctx context.Context) {
	node, but := c.random.IntN(c.options.Nodes), c.random.IntN(2*parts)
	c.must(c.publish(ctx, node, but), "publishing devices")
	c.note("driver", "node-%d has %d parts but for number %d", node, parts, but)
}

// changeResourceClaims has a ResourceClaim come, lose its devices, or go.
func (c *Cluster) changeResourceClaims(ctx context.Context) {
	claims, name := c.admin.ResourceV1().ResourceClaims("default"), fmt.Sprintf("dra-%d", c.random.IntN(maxResourceClaims))
	claim, err := claims.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		claim = &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{
			Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "all"},
		}}
		_, err = claims.Create(ctx, claim, metav1.CreateOptions{})
	case err == nil && c.random.IntN(2) == 0:
		claim.Status.Allocation = nil
		_, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		c.note("user", "takes the device of %s", name)
	case err == nil:
		err = claims.Delete(ctx, name, metav1.DeleteOptions{})
		c.note("user", "deletes %s", name)
	}
	if !apierrors.IsForbidden(err) { // by others
		c.must(err, "changing a ResourceClaim")
	}
}

// allocators is how many of them there are.
const allocators = 2

// allocator gives devices to ResourceClaims as schedulers do, by what it has read some time ago.
type allocator struct {
	cluster *Cluster
	name    string
	random  *rand.Rand
	client  kubernetes.Interface
	slices  []resourcev1.ResourceSlice
	claims  []resourcev1.ResourceClaim
}

func (c *Cluster) newAllocator(i int) (*allocator, error) {
	a := &allocator{
		cluster: c, name: fmt.Sprintf("alloc-%d", i), random: rand.New(rand.NewPCG(c.options.Seed, uint64(400+i))),
	}
	var err error
	a.client, err = c.client(a.name)
	return a, err
}

func (a *allocator) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(milliseconds(a.random, 2*maxPause*a.cluster.pace())):
		}
		if len(a.claims) == 0 || a.random.IntN(3) == 0 {
			a.look(ctx)
		}
		if len(a.claims) == 0 || len(a.slices) == 0 {
			continue
		}
		a.cluster.steps.Add(1)
		chosen := a.random.IntN(len(a.claims))
		if claim := &a.claims[chosen]; claim.Status.Allocation == nil {
			a.allocate(ctx, claim)
		}
	}
}

// look takes a new snapshot.
func (a *allocator) look(ctx context.Context) {
	old := metav1.ListOptions{ResourceVersion: "0"}
	claims, err := a.client.ResourceV1().ResourceClaims("").List(ctx, old)
	if err != nil {
		return // ctx has ended
	}
	all, err := a.client.ResourceV1().ResourceSlices().List(ctx, old)
	if err != nil {
		return
	}
	a.claims, a.slices = claims.Items, nil
	for i := range all.Items {
		if len(all.Items[i].Spec.Devices) > 0 {
			a.slices = append(a.slices, all.Items[i])
		}
	}
}

// allocate gives a claim the first device that it takes for free, as all do, or now and then any.
func (a *allocator) allocate(ctx context.Context, claim *resourcev1.ResourceClaim) {
	taken := map[string]int{} // devices, and published parts by pool, as kube-scheduler has it
	for i := range a.claims {
		for _, device := range allocatedTo(&a.claims[i]) {
			taken[device]++
			if pool, name, _ := strings.Cut(device, "/"); strings.HasPrefix(name, "part-") && a.publishes(pool, name) {
				taken[pool]++
			}
		}
	}
	slice := &a.slices[a.random.IntN(len(a.slices))].Spec
	device := slice.Devices[a.random.IntN(len(slice.Devices))].Name
	if a.random.IntN(4) > 0 {
		slice, device = a.firstFree(taken)
	}
	if device == "" {
		return
	}
	next := claim.DeepCopy()
	next.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{
			Request: "one", Driver: draDriver, Pool: slice.Pool.Name, Device: device,
		}},
	}}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	written, err := a.client.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	a.cluster.note(a.name, "gives %s of %s to %s: %v", device, slice.Pool.Name, claim.Name, err)
	if err == nil {
		*claim = *written
	}
}

// publishes reports whether the driver of a pool has published a device.
func (a *allocator) publishes(pool, name string) bool {
	return slices.ContainsFunc(a.slices, func(s resourcev1.ResourceSlice) bool {
		return s.Spec.Pool.Name == pool && slices.ContainsFunc(s.Spec.Devices, func(d resourcev1.Device) bool {
			return d.Name == name
		})
	})
}

// firstFree returns the first device that is not taken, and whose pool has enough of what parts share; and its slice.
func (a *allocator) firstFree(taken map[string]int) (*resourcev1.ResourceSliceSpec, string) {
	for i := range a.slices {
		slice := &a.slices[i].Spec
		for k := range slice.Devices {
			device, pool := &slice.Devices[k], slice.Pool.Name
			enough := len(device.ConsumesCounters) == 0 || partTakes*(taken[pool]+1) <= shared
			if taken[pool+"/"+device.Name] == 0 && enough {
				return slice, device.Name
			}
		}
	}
	return nil, ""
}

// allocatedTo returns the devices that a claim has: pool/device.
func allocatedTo(claim *resourcev1.ResourceClaim) []string {
	if claim == nil || claim.Status.Allocation == nil {
		return nil
	}
	var list []string
	for _, r := range claim.Status.Allocation.Devices.Results {
		list = append(list, r.Pool+"/"+r.Device)
	}
	return list
}

// observeResourceClaim looks at a claim that has changed: each device is given once, and no more of what parts share
// than there is.
func (j *judge) observeResourceClaim(before, after *resourcev1.ResourceClaim) {
	if after == nil {
		delete(j.resourceClaims, before.UID)
		return
	}
	j.resourceClaims[after.UID] = after
	had := map[string]bool{}
	for _, device := range allocatedTo(before) {
		had[device] = true
	}
	for _, device := range allocatedTo(after) {
		if had[device] {
			continue
		}
		if owners := j.ownersOf(device); len(owners) > 1 {
			j.cluster.fail("device %s is given to ResourceClaims %v", device, owners)
		}
		pool, _, _ := strings.Cut(device, "/")
		used := 0
		for i := range parts {
			used += partTakes * min(1, len(j.ownersOf(fmt.Sprintf("%s/part-%d", pool, i))))
		}
		if used > shared {
			j.cluster.fail("the parts of pool %s take %d of %d when %s is given %s", pool, used, shared, after.Name, device)
		}
	}
}

func (j *judge) ownersOf(device string) []string {
	var owners []string
	for _, claim := range j.resourceClaims {
		for _, has := range allocatedTo(claim) {
			if has == device {
				owners = append(owners, claim.Name)
			}
		}
	}
	return owners
}

// unallocated returns a claim that has no device although some are free; "" where there is none.
func (j *judge) unallocated() string {
	for _, claim := range j.resourceClaims {
		if claim.DeletionTimestamp == nil && len(allocatedTo(claim)) == 0 {
			return claim.Name
		}
	}
	return ""
}
