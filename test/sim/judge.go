package sim

import (
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/gates"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/sim/fakekube"
)

// judge looks at every write that is carried out, at the moment when it is. It counts by itself, with Kubernetes' own
// rules and nothing of the product.
type judge struct {
	cluster *Cluster

	mu    sync.Mutex // guards what follows
	pods  map[types.UID]*v1.Pod
	nodes map[string]*nodeRecord
	gone  map[types.UID]bool
	// answers are those about each pod.
	answers map[types.UID]*answers
	term    int64 // the latest of a Binding that was carried out
	bound   int   // pods
}

// nodeRecord is what a node had to give, and since when.
type nodeRecord struct {
	node *v1.Node // nil where it is gone
	had  []given
}

type given struct {
	until       time.Time // zero: now
	allocatable v1.ResourceList
}

// unknownFor is how long ago a node may have become smaller, or have gone, where a server could not know: what it
// decided before is still under way.
const unknownFor = 30 * time.Second

func newJudge(c *Cluster) *judge {
	return &judge{
		cluster: c, pods: map[types.UID]*v1.Pod{}, nodes: map[string]*nodeRecord{}, gone: map[types.UID]bool{},
		answers: map[types.UID]*answers{},
	}
}

// observe is told of every change.
func (j *judge) observe(change fakekube.Change) {
	switch {
	case strings.HasPrefix(change.Key, "/registry/pods/"):
		before, after := decode[v1.Pod](j, change.Before), decode[v1.Pod](j, change.After)
		j.mu.Lock()
		defer j.mu.Unlock()
		j.observePod(before, after)
	case strings.HasPrefix(change.Key, "/registry/minions/"):
		before, after := decode[v1.Node](j, change.Before), decode[v1.Node](j, change.After)
		j.mu.Lock()
		defer j.mu.Unlock()
		j.observeNode(before, after)
	}
}

// decode returns nil for nothing.
func decode[T any](j *judge, stored []byte) *T {
	if stored == nil {
		return nil
	}
	object, err := fakekube.Decode(stored, v1.SchemeGroupVersion)
	if err != nil {
		j.cluster.fail("what is stored cannot be read: %v", err)
		return nil
	}
	typed, _ := object.(any).(*T)
	return typed
}

func (j *judge) observeNode(before, after *v1.Node) {
	name := ""
	if before != nil {
		name = before.Name
	} else {
		name = after.Name
	}
	record := j.nodes[name]
	if record == nil {
		record = &nodeRecord{}
		j.nodes[name] = record
	}
	record.node = after
	if last := len(record.had) - 1; last >= 0 && record.had[last].until.IsZero() {
		record.had[last].until = time.Now()
	}
	if after != nil {
		record.had = append(record.had, given{allocatable: after.Status.Allocatable})
	}
}

func (j *judge) observePod(before, after *v1.Pod) {
	if after == nil {
		delete(j.pods, before.UID)
		j.gone[before.UID] = true
		return
	}
	j.pods[after.UID] = after
	if after.Spec.NodeName == "" || before != nil && before.Spec.NodeName != "" {
		return
	}
	name := after.Namespace + "/" + after.Name
	j.cluster.note("API", "pod %s is bound to %s, in term %s", name, after.Spec.NodeName,
		after.Annotations[v1alpha1.TermAnnotation])
	term, err := strconv.ParseInt(after.Annotations[v1alpha1.TermAnnotation], 10, 64)
	if err != nil {
		return // no server bound it
	}
	j.bound++
	about := j.answersAbout(after.UID)
	if about.requests == 0 {
		j.cluster.fail("pod %s is bound although nobody has asked for it", name)
	}
	if about.bound = about.requests; about.unmade != "" {
		j.cluster.fail("pod %s is bound although its scheduler was told: %s", name, about.unmade)
	}
	if term < j.term {
		j.cluster.fail("pod %s was bound in term %d after another one was in term %d", name, term, j.term)
	}
	j.term = max(j.term, term)
	if used, over := j.overcommitted(after.Spec.NodeName); over != "" {
		j.cluster.fail("node %s is overcommitted in %s by pod %s: %v are used", after.Spec.NodeName, over, name, used)
	}
}

// overcommitted returns what is used on a node, and a resource of which that is more than the node had lately.
func (j *judge) overcommitted(name string) (v1.ResourceList, v1.ResourceName) {
	record := j.nodes[name]
	used := j.used(name)
	if record == nil {
		return used, "everything: it never was there"
	}
	for resource, sum := range used {
		most, known := int64(0), false
		for _, g := range record.had {
			if g.until.IsZero() || time.Since(g.until) < unknownFor {
				has := g.allocatable[resource]
				most, known = max(most, has.MilliValue()), true
			}
		}
		if !known || sum.MilliValue() > most {
			return used, resource
		}
	}
	return used, ""
}

// answers is what schedulers were told of their requests to bind one pod.
type answers struct {
	requests, bound int    // how many there were, and by then when it was bound
	unknown         bool   // what became of one of them is not known: it may be carried out at any time
	unmade          string // why the latest was not carried out
}

func (j *judge) answersAbout(pod types.UID) *answers {
	if j.answers[pod] == nil {
		j.answers[pod] = &answers{}
	}
	return j.answers[pod]
}

// asked notes that a pod is to be bound, and returns how often that was.
func (j *judge) asked(pod types.UID) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	about := j.answersAbout(pod)
	about.requests++
	about.unmade = ""
	return about.requests
}

// lost notes that a scheduler was told nothing.
func (j *judge) lost(pod types.UID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.answersAbout(pod).unknown = true
}

// granted notes that a scheduler was told that a pod is bound.
func (j *judge) granted(pod *v1.Pod, node string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if known := j.pods[pod.UID]; !j.gone[pod.UID] && (known == nil || known.Spec.NodeName != node) {
		j.cluster.fail("pod %s is not bound to %s although its scheduler was told so", pod.Name, node)
	}
}

// refused notes that a scheduler was told that nothing came of a request.
func (j *judge) refused(pod *v1.Pod, request int, said *reserver.BindAnswer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	about := j.answersAbout(pod.UID)
	switch outcome := gates.Outcome(said.Outcome); {
	case outcome == gates.Unknown || outcome == gates.InFlight:
		about.unknown = true
	case j.gone[pod.UID] || j.pods[pod.UID].DeletionTimestamp != nil || ended(j.pods[pod.UID]): // that is said first
	case about.unknown || about.requests != request:
	case about.bound == request:
		j.cluster.fail("pod %s is bound although its scheduler was told: %s", pod.Name, said.Error)
	default:
		about.unmade = said.Error
	}
}

// used is what the pods on a node have asked for.
func (j *judge) used(node string) v1.ResourceList {
	sum := v1.ResourceList{}
	for _, pod := range j.pods {
		if pod.Spec.NodeName != node || ended(pod) {
			continue
		}
		requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		requests[v1.ResourcePods] = onePod
		for resource, quantity := range requests {
			total := sum[resource]
			total.Add(quantity)
			sum[resource] = total
		}
	}
	return sum
}

// unbound returns a pod that is without a node although one has capacity for it, and that node; "" where there is none.
func (j *judge) unbound() (pod, node string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.pods {
		if p.Spec.NodeName != "" || p.DeletionTimestamp != nil {
			continue
		}
		requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
		requests[v1.ResourcePods] = onePod
		for name, record := range j.nodes {
			if record.node != nil && !record.node.Spec.Unschedulable && fits(requests, j.used(name), record.node) {
				return p.Namespace + "/" + p.Name, name
			}
		}
	}
	return "", ""
}

func fits(requests, used v1.ResourceList, node *v1.Node) bool {
	for resource, quantity := range requests {
		free := node.Status.Allocatable[resource].DeepCopy()
		free.Sub(used[resource])
		if quantity.Cmp(free) > 0 {
			return false
		}
	}
	return true
}
