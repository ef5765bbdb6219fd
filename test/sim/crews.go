package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// createCrew creates the pods of a gang that no scheduler reserves for. Now and then it is one that was there before.
func (c *Cluster) createCrew(ctx context.Context) {
	if c.random.IntN(3) > 0 {
		c.crews++
	}
	name, needed := fmt.Sprintf("crew-%d", c.crews), 2+c.crews%2
	pending := c.choose(func(p *v1.Pod) bool { return p.Spec.NodeName == "" })
	for i := range min(needed+c.random.IntN(2), maxPending-len(pending)) {
		pod := c.newPod()
		pod.Name = fmt.Sprintf("%s-%d", name, i)
		pod.Spec.SchedulerName = fmt.Sprintf("scheduler-%d", c.crews%c.options.Schedulers)
		pod.Annotations = map[string]string{
			v1alpha1.GangAnnotation: name, v1alpha1.GangMinAnnotation: strconv.Itoa(needed),
		}
		c.createPod(ctx, pod)
	}
}

// crew is what the judge knows of a gang.
type crew struct {
	needed         int
	bound, waiting []*v1.Pod
}

// crewRecord is what became of a gang: when a pod of it was bound the last time, and when one ended, went or was
// resized, which a server may hear of late.
type crewRecord struct{ bound, disturbed time.Time }

// crewTime is how long capacity is kept for the rest of a gang after a pod of it was bound, at least.
const crewTime = time.Minute - keptUntil

func crewOf(pod *v1.Pod) string { return pod.Annotations[v1alpha1.GangAnnotation] }

// crews returns the gangs that there are.
func (j *judge) crews() map[string]*crew {
	all := map[string]*crew{}
	for _, pod := range j.pods {
		name := crewOf(pod)
		if name == "" || ended(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		if all[name] == nil {
			all[name] = &crew{}
		}
		all[name].needed, _ = strconv.Atoi(pod.Annotations[v1alpha1.GangMinAnnotation])
		if pod.Spec.NodeName == "" {
			all[name].waiting = append(all[name].waiting, pod)
		} else {
			all[name].bound = append(all[name].bound, pod)
		}
	}
	return all
}

// missing is how many pods of a gang that has begun are not bound yet.
func (g *crew) missing() int {
	if len(g.bound) == 0 {
		return 0
	}
	return max(g.needed-len(g.bound), 0)
}

// observeCrew notes what becomes of a pod of a gang.
func (j *judge) observeCrew(before, after *v1.Pod) {
	pod := after
	if after == nil {
		pod = before
	}
	name := crewOf(pod)
	if name == "" {
		return
	}
	if j.crewRecords[name] == nil {
		j.crewRecords[name] = &crewRecord{}
	}
	record := j.crewRecords[name]
	switch {
	case before == nil:
	case before.Spec.NodeName == "" && after != nil && after.Spec.NodeName != "":
		record.bound = time.Now()
	case after == nil || len(more(after, requestsOf(before))) > 0 || ended(before) != ended(after) ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil):
		record.disturbed = time.Now()
	}
}

// need is how many of some pods have to find a node.
type need struct {
	pods  []*v1.Pod
	count int
}

// judgeCrews looks whether there still is capacity for the rest of each gang that has begun.
func (j *judge) judgeCrews(pod *v1.Pod, name string) {
	var rest []need
	var pods []*v1.Pod
	var of []string
	for gang, g := range j.crews() {
		record := j.crewRecords[gang]
		calm := time.Since(record.disturbed) > unknownFor
		if missing := g.missing(); missing > 0 && calm && time.Since(record.bound) < crewTime {
			rest, of = append(rest, need{g.waiting, missing}), append(of, fmt.Sprintf("%d pods of %s", missing, gang))
			pods = append(pods, g.waiting...)
		}
	}
	if !j.cluster.options.Jumps && !j.packs(rest, j.taken(0, pods...), (*judge).had) {
		j.cluster.fail("there is no capacity for %v when pod %s is bound to %s", of, name, pod.Spec.NodeName)
	}
}

// taken is what is used on each node, and kept against pods of a priority, but for what some may use themselves.
func (j *judge) taken(priority int32, but ...*v1.Pod) map[string]v1.ResourceList {
	all := map[string]v1.ResourceList{}
	for node := range j.nodes {
		all[node] = j.usedOn(node)
		kept, _ := j.keptOn(node, priority, but...)
		add(all[node], kept)
	}
	return all
}

// packs reports whether there is a node for as many of the pods as need one, beside what is taken, where has says
// whether a node has as much of what is asked for.
func (j *judge) packs(needs []need, taken map[string]v1.ResourceList,
	has func(j *judge, node string, sum, asked v1.ResourceList) bool,
) bool {
	switch {
	case len(needs) == 0:
		return true
	case needs[0].count == 0:
		return j.packs(needs[1:], taken, has)
	case len(needs[0].pods) < needs[0].count:
		return false
	}
	first, others := needs[0], needs[1:]
	asked := requestsOf(first.pods[0])
	with := append([]need{{first.pods[1:], first.count - 1}}, others...)
	for node, before := range taken {
		sum := before.DeepCopy()
		if add(sum, asked); has(j, node, sum, asked) {
			taken[node] = sum
			if j.packs(with, taken, has) {
				return true
			}
			taken[node] = before
		}
	}
	return j.packs(append([]need{{first.pods[1:], first.count}}, others...), taken, has)
}

// stuckCrew returns a gang that is not whole although there is capacity for what it lacks; "" where there is none. Of a
// gang with more pods than it needs the smallest count, by CPU and then memory.
func (j *judge) stuckCrew() string {
	for gang, g := range j.crews() {
		missing := g.needed - len(g.bound)
		if missing <= 0 || missing > len(g.waiting) {
			continue
		}
		slices.SortFunc(g.waiting, func(a, b *v1.Pod) int {
			asks, others := requestsOf(a), requestsOf(b)
			return cmp.Or(asks.Cpu().Cmp(*others.Cpu()), asks.Memory().Cmp(*others.Memory()))
		})
		if j.packs([]need{{g.waiting[:missing], missing}}, j.taken(0), (*judge).has) {
			return gang
		}
	}
	return ""
}
