package sim

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/gates"
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
	answers  map[types.UID]*answers
	promises map[types.UID]*promise
	used     map[types.UID]map[string]bool // the slots of Reservations that pods have used
	term     int64                         // the latest of a Binding that was carried out
	bound    int                           // pods
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

// unknownFor is how long ago a node may have become smaller, or have gone, where a server could not know: it decides on
// what it has heard for as long as a watch may be silent, and what it decided is under way for some time.
const unknownFor = 2 * time.Minute

func newJudge(c *Cluster) *judge {
	return &judge{
		cluster: c, pods: map[types.UID]*v1.Pod{}, nodes: map[string]*nodeRecord{}, gone: map[types.UID]bool{},
		answers: map[types.UID]*answers{}, promises: map[types.UID]*promise{}, used: map[types.UID]map[string]bool{},
	}
}

// observe is told of every change.
func (j *judge) observe(change fakekube.Change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := func(folder string) bool { return strings.HasPrefix(change.Key, "/registry/"+folder+"/") }
	switch {
	case of("pods"):
		j.observePod(decode[v1.Pod](j, change.Before), decode[v1.Pod](j, change.After))
	case of("minions"):
		j.observeNode(decode[v1.Node](j, change.Before), decode[v1.Node](j, change.After))
	case of("globalreserve.io/reservations"):
		j.observeReservation(decodeOwn[v1alpha1.Reservation](j, change.Before),
			decodeOwn[v1alpha1.Reservation](j, change.After))
	case of("globalreserve.io/ledgerterms"):
		j.observeLedgerTerm(decodeOwn[v1alpha1.LedgerTerm](j, change.Before),
			decodeOwn[v1alpha1.LedgerTerm](j, change.After))
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

// decodeOwn is decode for the product's own kinds.
func decodeOwn[T any](j *judge, stored []byte) *T {
	if stored == nil {
		return nil
	}
	var object T
	if err := json.Unmarshal(stored, &object); err != nil {
		j.cluster.fail("what is stored cannot be read: %v", err)
		return nil
	}
	return &object
}

// observeLedgerTerm looks at who decides by now: the fence knows servers by their terms.
func (j *judge) observeLedgerTerm(before, after *v1alpha1.LedgerTerm) {
	if before == nil || after == nil {
		return
	}
	same := before.Spec.Leader == after.Spec.Leader
	if after.Spec.Term < before.Spec.Term || !same && after.Spec.Term == before.Spec.Term {
		j.cluster.fail("server %s takes over in term %d, after server %s decided in term %d", after.Spec.Leader,
			after.Spec.Term, before.Spec.Leader, before.Spec.Term)
	}
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
	if record.node = after; after == nil {
		j.breakPromises(name)
	}
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
	name := after.Namespace + "/" + after.Name
	switch {
	case after.Spec.NodeName == "" || ended(after):
	case before == nil || before.Spec.NodeName == "":
		j.observeBinding(before, after, name)
	case more(after, resourcehelper.PodRequests(before, resourcehelper.PodResourcesOptions{})):
		j.cluster.note("API", "pod %s on %s grows", name, after.Spec.NodeName)
		j.observeUse(after, name)
	}
}

// observeBinding looks at a pod that has just been bound, or was created with a node.
func (j *judge) observeBinding(before, after *v1.Pod, name string) {
	said := after.Annotations[v1alpha1.TermAnnotation]
	j.cluster.note("API", "pod %s is bound to %s, in term %s", name, after.Spec.NodeName, said)
	j.bound++
	j.use(after)
	if before != nil { // one that is created with its node carries no term
		j.observeTerm(after, name)
	}
	j.observeUse(after, name)
}

// observeTerm looks at a pod that was bound by a Binding.
func (j *judge) observeTerm(pod *v1.Pod, name string) {
	about := j.answersAbout(pod.UID)
	if about.requests == 0 {
		j.cluster.fail("pod %s is bound although nobody has asked for it", name)
	}
	if about.bound = about.requests; about.unmade != "" {
		j.cluster.fail("pod %s is bound although its scheduler was told: %s", name, about.unmade)
	}
	term, err := strconv.ParseInt(pod.Annotations[v1alpha1.TermAnnotation], 10, 64)
	if err != nil {
		j.cluster.fail("pod %s is bound, and no server has decided on it", name)
	}
	if term < j.term {
		j.cluster.fail("pod %s was bound in term %d after another one was in term %d", name, term, j.term)
	}
	j.term = max(j.term, term)
}

// observeUse looks at the node of a pod that uses more of it than before.
func (j *judge) observeUse(pod *v1.Pod, name string) {
	used := j.usedOn(pod.Spec.NodeName)
	if over := j.overcommitted(pod.Spec.NodeName, used); over != "" {
		j.cluster.fail("node %s is overcommitted in %s by pod %s: %v are used", pod.Spec.NodeName, over, name, used)
	}
	kept, by := j.keptOn(pod.Spec.NodeName)
	if add(used, kept); j.overcommitted(pod.Spec.NodeName, used) != "" {
		j.cluster.fail("pod %s has on node %s what is kept by %v", name, pod.Spec.NodeName, by)
	}
}

// overcommitted returns a resource of which more is used than the node had lately.
func (j *judge) overcommitted(name string, used v1.ResourceList) v1.ResourceName {
	record := j.nodes[name]
	if record == nil {
		return "everything: it never was there"
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
			return resource
		}
	}
	return ""
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
func (j *judge) refused(pod *v1.Pod, request int, outcome gates.Outcome, why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	about := j.answersAbout(pod.UID)
	switch {
	case outcome == gates.Unknown || outcome == gates.InFlight:
		about.unknown = true
	case j.gone[pod.UID] || j.pods[pod.UID].DeletionTimestamp != nil || ended(j.pods[pod.UID]): // that is said first
	case about.unknown || about.requests != request:
	case about.bound == request:
		j.cluster.fail("pod %s is bound although its scheduler was told: %s", pod.Name, why)
	default:
		about.unmade = why
	}
}

// usedOn is what the pods on a node have asked for.
func (j *judge) usedOn(node string) v1.ResourceList {
	sum := v1.ResourceList{}
	for _, pod := range j.pods {
		if pod.Spec.NodeName != node || ended(pod) {
			continue
		}
		requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		requests[v1.ResourcePods] = onePod
		add(sum, requests)
	}
	return sum
}

// unbound returns a pod that is without a node although one has capacity for it, and that node; "" where there is none.
func (j *judge) unbound() (pod, node string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.pods {
		if p.Spec.NodeName != "" || p.DeletionTimestamp != nil || p.Labels[gangLabel] != "" {
			continue
		}
		requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
		requests[v1.ResourcePods] = onePod
		for name, record := range j.nodes {
			used := j.usedOn(name)
			kept, _ := j.keptOn(name)
			add(used, kept)
			if record.node != nil && !record.node.Spec.Unschedulable && fits(requests, used, record.node) {
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
