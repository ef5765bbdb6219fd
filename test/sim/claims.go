package sim

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// deviceRecord is what the judge knows of a device.
type deviceRecord struct {
	objects map[string]bool // that say they are the device, and whether it is kept from being given out
	since   time.Time       // of when that is; zero: of the start
}

func (j *judge) recent(d *deviceRecord) bool { return time.Since(d.since) < j.cluster.unknownFor() }

func (j *judge) observeDevice(before, after *v1alpha1.ExtendedResource) {
	device := after
	if after == nil {
		device = before
	} else if before != nil {
		return // what it is does not change
	}
	name := device.Spec.NodeName + "/" + device.Spec.DeviceID
	record := j.devices[name]
	if record == nil {
		record = &deviceRecord{objects: map[string]bool{}}
		j.devices[name] = record
	} else {
		record.since = time.Now()
	}
	if delete(record.objects, device.Name); after != nil {
		record.objects[device.Name] = after.Spec.Unschedulable
	}
}

// observeDevices looks at the devices that a pod is told of with its binding: nobody else has one of them, and a claim
// serves one pod.
func (j *judge) observeDevices(pod *v1.Pod, name string) {
	asked, counts := requestsOf(pod)[gpu]
	if !claims(pod) && !counts {
		return // what its author may have written means nothing
	}
	if most := j.mostOf(pod.Spec.NodeName, gpu, 0); asked.Cmp(most) > 0 {
		j.cluster.fail("pod %s asks for %s devices by number on node %s, whose device plugin has %s", name, asked.String(),
			pod.Spec.NodeName, most.String())
	}
	told := devicesOf(pod)
	j.told[pod.UID] = told
	j.cluster.note("API", "pod %s has devices %v", name, told)
	for _, device := range told {
		record := j.devices[pod.Spec.NodeName+"/"+device]
		if record == nil || len(record.objects) == 0 && !j.recent(record) {
			j.cluster.fail("pod %s is told of device %s, which is not on node %s", name, device, pod.Spec.NodeName)
			return
		}
		for uid, other := range j.told {
			if has := j.pods[uid]; uid != pod.UID && has != nil && !ended(has) && has.Spec.NodeName == pod.Spec.NodeName &&
				slices.Contains(other, device) {
				j.cluster.fail("pods %s and %s are told of device %s", name, has.Name, device)
			}
		}
		if by := j.deviceKept(pod.Spec.NodeName, device); by != "" {
			j.cluster.fail("pod %s is told of device %s, which is kept by %s", name, device, by)
		}
	}
	claimed := pod.Annotations[v1alpha1.ExtendedResourceClaimsAnnotation]
	for _, other := range j.pods {
		if claims(pod) && !claimsOwn(pod) && other.UID != pod.UID && !ended(other) &&
			other.Spec.NodeName != "" && other.Annotations[v1alpha1.ExtendedResourceClaimsAnnotation] == claimed {
			j.cluster.fail("pods %s and %s have %s both", name, other.Name, claimed)
		}
	}
}

// deviceKept returns the Reservation that keeps a device, "" where none does.
func (j *judge) deviceKept(node, device string) string {
	if j.cluster.jumped.Load() || j.recent(j.devices[node+"/"+device]) {
		return ""
	}
	for _, p := range j.promises {
		if p.givesWay() {
			continue
		}
		for i := range p.object.Spec.Slots {
			slot := &p.object.Spec.Slots[i]
			if on, kept := j.keptBy(p, slot); kept && on == node && slices.Contains(p.devicesOf(slot.Name), device) {
				return p.object.Name
			}
		}
	}
	return ""
}

// devicesOf returns the devices that a slot keeps.
func (p *promise) devicesOf(slot string) []string {
	for i := range p.object.Status.Slots {
		if s := &p.object.Status.Slots[i]; s.Name == slot {
			return s.Devices
		}
	}
	return nil
}

// hasDevice reports whether a node has a device that nobody is told of, and that nothing keeps.
func (j *judge) hasDevice(node string) bool {
	for name, device := range j.devices {
		on, id, _ := strings.Cut(name, "/")
		free := on == node && len(device.objects) == 1 && !j.recent(device) && j.deviceKept(node, id) == ""
		for _, back := range device.objects {
			free = free && !back
		}
		for uid, told := range j.told {
			if pod := j.pods[uid]; pod != nil && !ended(pod) && pod.Spec.NodeName == node && slices.Contains(told, id) {
				free = false
			}
		}
		if free {
			return true
		}
	}
	return false
}

// keptBack is how many devices of a node are not to be given out.
func (j *judge) keptBack(node string) (count int64) {
	for name, device := range j.devices {
		for _, back := range device.objects {
			if on, _, _ := strings.Cut(name, "/"); on == node && back {
				count++
			}
		}
	}
	return count
}

// claims reports whether a pod asks for devices by claims.
func claims(pod *v1.Pod) bool {
	return pod.Annotations[v1alpha1.ExtendedResourceClaimsAnnotation] != ""
}

// claimsOwn reports whether the claim of a pod is made for it.
func claimsOwn(pod *v1.Pod) bool {
	return pod.Annotations[v1alpha1.ExtendedResourceClaimsAnnotation] == v1alpha1.ClaimTemplatePrefix+template
}

// claimedBy is what a pod has of devices by its claims beyond what it asks for by number: the claims are part of that.
func (j *judge) claimedBy(pod *v1.Pod) v1.ResourceList {
	if !claims(pod) {
		return nil
	}
	return beyond(requestsOf(pod), len(j.told[pod.UID]))
}

// beyond is how many devices are more than what is asked for.
func beyond(requests v1.ResourceList, devices int) v1.ResourceList {
	asked := requests[gpu]
	return v1.ResourceList{gpu: *resource.NewQuantity(max(0, int64(devices)-asked.Value()), resource.DecimalSI)}
}

// edited returns a pod that does not say any more which devices it was given; "" where there is none.
func (j *judge) edited() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	for uid, told := range j.told {
		if pod := j.pods[uid]; pod != nil && !ended(pod) && !slices.Equal(devicesOf(pod), told) {
			return pod.Name
		}
	}
	return ""
}

// portUsed returns another pod on a node with the same port of it, "" where there is none.
func (j *judge) portUsed(pod *v1.Pod, node string) string {
	if len(pod.Spec.Containers[0].Ports) == 0 {
		return ""
	}
	for _, other := range j.pods {
		if other.UID != pod.UID && other.Spec.NodeName == node && !ended(other) && len(other.Spec.Containers[0].Ports) > 0 {
			return other.Name
		}
	}
	return ""
}
