package sim

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// createCrew creates the pods of a gang that no scheduler reserves for. Now and then it is one that was there before.
// How many pods it needs they say themselves, or a PodGroup does.
func (c *Cluster) createCrew(ctx context.Context) {
	if c.random.IntN(3) > 0 {
		c.crews++
	}
	name, needed := crewName(c.crews), 2+c.crews/2%2
	kind := kindOf(name)
	if kind != nil && c.random.IntN(3) == 0 {
		c.createPodGroup(ctx, name)
	}
	pending := c.choose(func(p *v1.Pod) bool { return p.Spec.NodeName == "" })
	for i := range min(needed+c.random.IntN(3), maxPending-len(pending)) {
		pod := c.newPod()
		pod.Name = fmt.Sprintf("%s-%d", name, i)
		pod.Spec.SchedulerName = fmt.Sprintf("scheduler-%d", c.crews%c.options.Schedulers)
		pod.Labels[crewLabel] = name
		if kind != nil {
			kind.join(pod, name, i)
		} else {
			pod.Annotations[v1alpha1.GangAnnotation] = name
			pod.Annotations[v1alpha1.GangMinAnnotation] = strconv.Itoa(needed)
		}
		c.createPod(ctx, pod)
	}
	if kind != nil && c.random.IntN(5) > 0 { // else it comes later
		c.createPodGroup(ctx, name)
	}
}

// crewLabel is on the pods of a gang that no scheduler reserves for.
const crewLabel = "crew"

func crewName(n int) string { return fmt.Sprintf("crew-%d", n) }

// crew is what the judge knows of a gang.
type crew struct {
	needed         int            // 0 where nobody says it
	tasks          map[string]int // of these, how many of each task
	bound, waiting []*v1.Pod
}

// crewRecord is what became of a gang: when a pod of it was bound the last time, and when one ended, went or was
// resized, which a server may hear of late.
type crewRecord struct{ bound, disturbed time.Time }

// crewTime is how long capacity is kept for the rest of a gang after a pod of it was bound, at least.
const crewTime = time.Minute - keptUntil

func crewOf(pod *v1.Pod) string { return pod.Labels[crewLabel] }

// crews returns the gangs that there are. Those with a PodGroup need what that says now, or the least it ever said.
func (j *judge) crews(now bool) map[string]*crew {
	all := map[string]*crew{}
	for _, pod := range j.pods {
		name := crewOf(pod)
		if name == "" || ended(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		if all[name] == nil {
			all[name] = &crew{}
		}
		if needed, err := strconv.Atoi(pod.Annotations[v1alpha1.GangMinAnnotation]); err == nil {
			all[name].needed = needed
		} else if group := j.podGroups[name]; group != nil {
			all[name].needed, all[name].tasks = group.least, group.tasks
			if now {
				all[name].needed = group.needed
			}
		}
		if pod.Spec.NodeName == "" {
			all[name].waiting = append(all[name].waiting, pod)
		} else {
			all[name].bound = append(all[name].bound, pod)
		}
	}
	return all
}

// lacks returns what a gang needs beside those that are bound: so many of each task, or of all of them where it needs
// other ones, too. They are of its smallest pods.
func (g *crew) lacks() []need {
	slices.SortFunc(g.waiting, func(a, b *v1.Pod) int {
		asks, others := requestsOf(a), requestsOf(b)
		return cmp.Or(asks.Cpu().Cmp(*others.Cpu()), asks.Memory().Cmp(*others.Memory()))
	})
	ofTasks := 0
	for _, count := range g.tasks {
		ofTasks += count
	}
	if ofTasks != g.needed { // the tasks do not count, or others do, too
		return []need{{g.waiting, g.needed - len(g.bound)}}
	}
	var needs []need
	for _, task := range slices.Sorted(maps.Keys(g.tasks)) {
		needs = append(needs, need{ofTask(g.waiting, task), g.tasks[task] - len(ofTask(g.bound, task))})
	}
	return needs
}

func ofTask(pods []*v1.Pod, task string) (list []*v1.Pod) {
	for _, pod := range pods {
		if pod.Annotations[taskAnnotation] == task {
			list = append(list, pod)
		}
	}
	return list
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
	for gang, g := range j.crews(false) {
		record := j.crewRecords[gang]
		calm := time.Since(record.disturbed) > longUnknown && j.isKnown(kindOf(gang))
		if len(g.bound) == 0 || g.needed == 0 || !calm || time.Since(record.bound) > crewTime {
			continue
		}
		for _, n := range g.lacks() {
			if n.count > 0 {
				rest, of = append(rest, n), append(of, fmt.Sprintf("%d pods of %s", n.count, gang))
				pods = append(pods, n.pods...)
			}
		}
	}
	if !j.cluster.jumped.Load() && !j.packs(rest, j.taken(pods...), (*judge).had) {
		j.cluster.fail("there is no capacity for %v when pod %s is bound to %s", of, name, pod.Spec.NodeName)
	}
}

// taken is what is used on each node, and kept, but for what some may use themselves.
func (j *judge) taken(but ...*v1.Pod) map[string]v1.ResourceList {
	all := map[string]v1.ResourceList{}
	for node := range j.nodes {
		all[node] = j.usedOn(node)
		kept, _ := j.keptOn(node, but...)
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
	for gang, g := range j.crews(true) {
		var needs []need
		enough := g.needed > 0
		for _, n := range g.lacks() {
			if n.count > 0 {
				enough = enough && n.count <= len(n.pods)
				needs = append(needs, need{n.pods[:min(n.count, len(n.pods))], n.count})
			}
		}
		if enough && len(needs) > 0 && j.packs(needs, j.taken(), (*judge).has) {
			return gang
		}
	}
	return ""
}
