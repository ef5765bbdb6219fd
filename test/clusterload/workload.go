package clusterload

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/examples/gangscheduler/gangsched"
)

// Batch is a number of pods of one kind for one scheduler.
type Batch struct {
	Namespace string
	// Prefix and the pod's number make its name.
	Prefix string
	// Scheduler is the pods' schedulerName.
	Scheduler string
	// Count is how many pods there are.
	Count int
	// Sizes are the requests of the pods, taken in turn.
	Sizes []corev1.ResourceList
	// GangSize makes gangs of so many pods, named after the prefix. Count is then the number of
	// gangs times GangSize. 0: no gangs.
	GangSize int
}

// Pods makes the pods of the batch; nothing is created yet.
func (b Batch) Pods() []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, b.Count)
	for i := range b.Count {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Prefix + "-" + strconv.Itoa(i)},
			Spec: corev1.PodSpec{
				SchedulerName: b.Scheduler,
				Containers:    []corev1.Container{{Name: "main", Image: "example.invalid/not-pulled"}},
			},
		}
		if len(b.Sizes) > 0 {
			pod.Spec.Containers[0].Resources.Requests = b.Sizes[i%len(b.Sizes)]
		}
		if b.GangSize > 0 {
			name := fmt.Sprintf("%s-%d", b.Prefix, i/b.GangSize)
			pod.Name = fmt.Sprintf("%s-%d", name, i%b.GangSize)
			gangsched.Mark(pod, name, b.GangSize)
		}
		pods = append(pods, pod)
	}
	return pods
}

// RaceOptions describes a demand that several schedulers compete for capacity for.
type RaceOptions struct {
	Namespace string
	// Capacity is what all nodes offer together, in milli-CPU, and Percent how much of it is asked
	// for: above 100, somebody has to wait.
	Capacity int64
	Percent  int
	// Sizes are the requests of the pods, taken in turn. Each must ask for CPU.
	Sizes []corev1.ResourceList
	// Schedulers each get an equal part of the pods that belong to no gang.
	Schedulers []string
	// GangScheduler gets GangPercent of the demand, in gangs of GangSize pods. "": no gangs.
	GangScheduler string
	GangSize      int
	GangPercent   int
}

// Race makes the pods of a race, those of the schedulers in turn, so that none has all of its pods
// first. Together they ask for at least the wanted share of the capacity.
func Race(o RaceOptions) []*corev1.Pod {
	demand := o.Capacity * int64(o.Percent) / 100
	forGangs := int64(0)
	if o.GangScheduler != "" {
		forGangs = demand * int64(o.GangPercent) / 100
	}
	var batches [][]*corev1.Pod
	for i, scheduler := range o.Schedulers {
		left := int64(len(o.Schedulers) - i)
		part := (demand - forGangs - cpuOf(batches)) / left
		batches = append(batches, Batch{
			Namespace: o.Namespace, Prefix: scheduler, Scheduler: scheduler, Sizes: o.Sizes,
			Count: o.countFor(part),
		}.Pods())
	}
	if forGangs > 0 {
		count := o.countFor(forGangs)
		count += (o.GangSize - count%o.GangSize) % o.GangSize
		batches = append(batches, Batch{
			Namespace: o.Namespace, Prefix: "group", Scheduler: o.GangScheduler, Sizes: o.Sizes,
			Count: count, GangSize: o.GangSize,
		}.Pods())
	}
	return inTurn(batches)
}

// countFor returns how many pods ask for at least so many milli-CPU.
func (o RaceOptions) countFor(milliCPU int64) int {
	count := 0
	for sum := int64(0); sum < milliCPU; count++ {
		size := o.Sizes[count%len(o.Sizes)]
		sum += max(size.Cpu().MilliValue(), 1)
	}
	return count
}

func cpuOf(batches [][]*corev1.Pod) int64 {
	var sum int64
	for _, batch := range batches {
		for _, pod := range batch {
			sum += pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
		}
	}
	return sum
}

func inTurn(batches [][]*corev1.Pod) []*corev1.Pod {
	var all []*corev1.Pod
	for i := 0; ; i++ {
		before := len(all)
		for _, batch := range batches {
			if i < len(batch) {
				all = append(all, batch[i])
			}
		}
		if len(all) == before {
			return all
		}
	}
}
