package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
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
	doubtful map[types.UID]bool      // pods that something was asked for which may still be carried out
	resized  map[types.UID]time.Time // when a resize of a pod was asked for last: it counts while it may be carried out
	former   map[string]*promise     // by the names of Reservations that are gone
	// crewRecords, podGroups and crewAsked are of gangs, by name: of the last whether somebody wants a pod of it bound.
	crewRecords    map[string]*crewRecord
	crewAsked      map[string]bool
	podGroups      map[string]*groupRecord
	defined        map[*groupKind]time.Time // since when
	resourceClaims map[types.UID]*resourcev1.ResourceClaim
	devices        map[string]*deviceRecord           // by node/ID
	told           map[types.UID][]string             // the devices of pods, as they were told with their binding
	used           map[types.UID]map[string]types.UID // which pods have used the slots of Reservations
	early          map[types.UID]bool                 // pods that did so before that was available, by its status
	// quota is that of the namespace, ofSchedulers what those may use, by name, and ofReservations what may be kept.
	quota, ofReservations limits
	ofSchedulers          map[string]limits
	term                  int64     // the latest of a Binding that was carried out
	tookOver              time.Time // when the server that decides did
	bound                 int       // pods
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
// what it has heard for as long as a watch may be silent, and what it decided is under way for some time. In a calm
// cluster all is heard at once.
func (c *Cluster) unknownFor() time.Duration {
	if c.options.Calm {
		return 10 * time.Second
	}
	return longUnknown
}

const longUnknown = 2 * time.Minute

func newJudge(c *Cluster) *judge {
	return &judge{
		cluster: c, pods: map[types.UID]*v1.Pod{}, nodes: map[string]*nodeRecord{}, gone: map[types.UID]bool{},
		answers: map[types.UID]*answers{}, promises: map[types.UID]*promise{}, used: map[types.UID]map[string]types.UID{},
		early: map[types.UID]bool{}, resized: map[types.UID]time.Time{},
		former: map[string]*promise{}, doubtful: map[types.UID]bool{}, crewRecords: map[string]*crewRecord{},
		crewAsked: map[string]bool{},
		podGroups: map[string]*groupRecord{}, defined: map[*groupKind]time.Time{},
		resourceClaims: map[types.UID]*resourcev1.ResourceClaim{},
		devices:        map[string]*deviceRecord{}, told: map[types.UID][]string{}, ofSchedulers: map[string]limits{},
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
	case of("resourcequotas"):
		j.observeQuota(decode[v1.ResourceQuota](j, change.After))
	case of("resourceclaims"):
		j.observeResourceClaim(decode[resourcev1.ResourceClaim](j, change.Before),
			decode[resourcev1.ResourceClaim](j, change.After))
	case of("scheduling.volcano.sh/podgroups"), of("scheduling.x-k8s.io/podgroups"):
		j.observePodGroup(decodeOwn[podGroup](j, change.Before), decodeOwn[podGroup](j, change.After))
	case of("globalreserve.io/extendedresources"):
		j.observeDevice(decodeOwn[v1alpha1.ExtendedResource](j, change.Before),
			decodeOwn[v1alpha1.ExtendedResource](j, change.After))
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
	object, err := fakekube.Decode(stored)
	if err != nil {
		j.cluster.fail("what is stored cannot be read: %v", err)
		return nil
	}
	typed, _ := object.(any).(*T)
	return typed
}

// decodeOwn is decode for kinds with a CustomResourceDefinition.
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
	if !same {
		j.tookOver = time.Now()
	}
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
		j.observeCrew(before, nil)
		return
	}
	j.pods[after.UID] = after
	j.observeCrew(before, after)
	name := after.Namespace + "/" + after.Name
	switch {
	case after.Spec.NodeName == "" || ended(after):
	case before == nil || before.Spec.NodeName == "":
		j.observeBinding(before, after, name)
	default:
		if grown := more(after, requestsOf(before)); len(grown) > 0 {
			j.cluster.note("API", "pod %s on %s grows", name, after.Spec.NodeName)
			j.observeUse(after, grown, name)
		}
	}
}

// observeBinding looks at a pod that has just been bound, or was created with a node.
func (j *judge) observeBinding(before, after *v1.Pod, name string) {
	said := after.Annotations[v1alpha1.TermAnnotation]
	j.cluster.note("API", "pod %s is bound to %s, in term %s", name, after.Spec.NodeName, said)
	j.bound++
	j.use(after)
	j.observeFirst(after, name)
	if before != nil {
		j.observeTerm(after, name)
	} else { // one that is created with its node carries no term
		j.judgeCreation(after, name)
	}
	j.observeDevices(after, name)
	if other := j.portUsed(after, after.Spec.NodeName); other != "" {
		j.cluster.fail("pods %s and %s have port %d of node %s both", name, other, port, after.Spec.NodeName)
	}
	asked := requestsOf(after)
	add(asked, j.claimedBy(after))
	j.observeUse(after, asked, name)
}

// observeTerm looks at a pod that was bound by a Binding.
func (j *judge) observeTerm(pod *v1.Pod, name string) {
	about := j.answersAbout(pod.UID)
	node, crew := pod.Spec.NodeName, crewOf(pod)
	if from := pod.Annotations[v1alpha1.RedirectedFromAnnotation]; from != "" {
		node = from
	}
	switch { // the rest of a gang the servers bind by themselves
	case about.requests == 0 && !j.crewAsked[crew]:
		j.cluster.fail("pod %s is bound although nobody has asked for it", name)
	case !about.nodes[node] && crew == "":
		j.cluster.fail("pod %s is bound to %s, and nobody has asked for %s", name, pod.Spec.NodeName, node)
	}
	if about.bound = about.requests; about.unmade != "" && crewOf(pod) == "" {
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

// observeUse looks at the node of a pod that uses more of it than before: more of what was asked for.
func (j *judge) observeUse(pod *v1.Pod, asked v1.ResourceList, name string) {
	node, used := pod.Spec.NodeName, j.usedOn(pod.Spec.NodeName)
	if !j.had(node, used, asked) {
		j.cluster.fail("node %s is overcommitted by pod %s, which asks for %s: %s are used", node, name, text(asked),
			text(used))
	}
	kept, by := j.keptOn(node)
	if add(used, kept); !j.had(node, used, asked) {
		j.cluster.fail("pod %s has on node %s what is kept by %v: %s are used and kept", name, node, by, text(used))
	}
	j.judgeCrews(pod, name)
	j.judgeLimits(pod, asked, name)
}

// mostOf is the most that a node had lately of a resource, where none is said to be as many as otherwise.
func (j *judge) mostOf(node string, resource v1.ResourceName, otherwise int64) (most quantity.Quantity) {
	if record := j.nodes[node]; record != nil {
		for _, g := range record.had {
			has := g.allocatable[resource]
			if has.IsZero() {
				has = *quantity.NewQuantity(otherwise, quantity.DecimalSI)
			}
			if g.recent(j.cluster.unknownFor()) && has.Cmp(most) > 0 {
				most = has
			}
		}
	}
	return most
}

// had reports whether a node had as much lately of what is asked for.
func (j *judge) had(node string, used, asked v1.ResourceList) bool {
	for resource, amount := range asked {
		if amount.IsZero() {
			continue
		}
		most := j.mostOf(node, resource, 0)
		if resource == gpu { // claims are served without a device plugin
			most = j.mostOf(node, resource, maxDevices)
		}
		if sum := used[resource]; sum.Cmp(most) > 0 {
			return false
		}
	}
	return true
}

// text is what a list of resources is in histories.
func text(list v1.ResourceList) string {
	var parts []string
	for name, amount := range list {
		parts = append(parts, fmt.Sprintf("%s %s", name, amount.String()))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func (g *given) recent(within time.Duration) bool {
	return g.until.IsZero() || time.Since(g.until) < within
}

// answers is what schedulers were told of their requests to bind one pod.
type answers struct {
	requests, bound int             // how many there were, and by then when it was bound
	nodes           map[string]bool // that were asked for
	unknown         bool            // what became of one of them is not known: it may be carried out at any time
	unmade          string          // why the latest was not carried out
}

func (j *judge) answersAbout(pod types.UID) *answers {
	if j.answers[pod] == nil {
		j.answers[pod] = &answers{nodes: map[string]bool{}}
	}
	return j.answers[pod]
}

// asked notes that a pod is to be bound to a node, and returns how often it was to be bound.
func (j *judge) asked(pod *v1.Pod, node string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	about := j.answersAbout(pod.UID)
	about.requests++
	about.nodes[node] = true
	if crew := crewOf(pod); crew != "" {
		j.crewAsked[crew] = true
	}
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
	known := j.pods[pod.UID]
	if known != nil && known.Annotations[v1alpha1.RedirectedFromAnnotation] == node && known.Spec.NodeName != "" {
		return // for a gang the servers may have chosen another one
	}
	if !j.gone[pod.UID] && (known == nil || known.Spec.NodeName != node) {
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
	case crewOf(pod) != "": // the servers may bind it by themselves
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
		if pod.Spec.NodeName == node && !ended(pod) {
			add(sum, requestsOf(pod))
			add(sum, j.claimedBy(pod))
		}
	}
	return sum
}

// isGone reports whether there was a pod that is not there any more.
func (j *judge) isGone(pod types.UID) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.gone[pod]
}

// requestsOf is what a pod asks for, itself included.
func requestsOf(pod *v1.Pod) v1.ResourceList {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	requests[v1.ResourcePods] = onePod
	return requests
}

// waits says what still waits although there is capacity for it; "" where nothing does.
func (j *judge) waits() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if gang := j.stuckCrew(); gang != "" && !j.limited() {
		return "gang " + gang + " is not whole, though there is capacity for it"
	}
	if claim := j.unallocated(); claim != "" {
		return "ResourceClaim " + claim + " has no device, though some are free"
	}
	taken := j.taken()
	for _, p := range j.pods {
		if p.Spec.NodeName != "" || p.DeletionTimestamp != nil || p.Labels[gangLabel] != "" || crewOf(p) != "" ||
			claims(p) && !claimsOwn(p) || !j.within(p) {
			continue
		}
		asked := requestsOf(p)
		if claims(p) {
			asked[gpu] = oneDevice
		}
		for node, used := range taken {
			sum := used.DeepCopy()
			if add(sum, asked); j.has(node, sum, asked) && j.portUsed(p, node) == "" &&
				(!claims(p) || j.hasDevice(node)) {
				return fmt.Sprintf("pod %s/%s is without a node, though %s has capacity", p.Namespace, p.Name, node)
			}
		}
	}
	return ""
}

// describe notes what is taken of each node, and what waits.
func (j *judge) describe() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for name, sum := range j.taken() {
		if node := j.nodes[name].node; node != nil {
			j.cluster.note("judge", "%s: taken %s of %s", name, text(sum), text(node.Status.Allocatable))
		}
	}
	for _, pod := range j.pods {
		if pod.Spec.NodeName == "" {
			j.cluster.note("judge", "%s waits for %s", pod.Name, text(requestsOf(pod)))
		}
	}
}

// has reports whether a node has as much now of what is asked for, for whoever comes.
func (j *judge) has(name string, used, asked v1.ResourceList) bool {
	node := j.nodes[name].node
	if node == nil || node.Spec.Unschedulable {
		return false
	}
	for resource := range asked {
		has, sum := node.Status.Allocatable[resource], used[resource]
		if resource == gpu {
			has = *quantity.NewQuantity(has.Value()-j.keptBack(name), quantity.DecimalSI)
		}
		if sum.Cmp(has) > 0 {
			return false
		}
	}
	return true
}
