package sim

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// promise is the capacity that a Reservation keeps, as its status says, or the answer to a /reserve.
type promise struct {
	object *v1alpha1.Reservation
	// acknowledged is until when a /reserve has asked for it, zero where none was answered: until then it counts, whatever
	// its status says.
	acknowledged time.Time
	// broken says why it need not be kept any more.
	broken string
}

// keptUntil is how long before its end a promise is not counted on any more: its end is in whole seconds.
const keptUntil = 2 * time.Second

// observeReservation looks at a Reservation that has changed.
func (j *judge) observeReservation(before, after *v1alpha1.Reservation) {
	if after == nil {
		p := j.promises[before.UID]
		if p != nil && p.isAcknowledged() && p.broken == "" && j.owed(p) {
			j.cluster.fail("reservation %s is gone although its scheduler was told that it lasts", before.Name)
		}
		delete(j.promises, before.UID)
		j.former[before.Name] = p
		return
	}
	p := j.promises[after.UID]
	if p == nil {
		p = &promise{object: &v1alpha1.Reservation{}}
		j.promises[after.UID] = p
	}
	changed := p.object.Status.Phase != after.Status.Phase
	if changed || p.object.Name == "" {
		j.cluster.note("API", "reservation %s is %q: %s", after.Name, after.Status.Phase, after.Status.NodeName)
	}
	j.judgeEnd(p, after)
	if p.object = after; after.Status.Phase.IsFinal() && p.broken == "" {
		p.broken = string(after.Status.Phase)
	}
	if changed && after.Status.Phase == v1alpha1.ReservationAvailable {
		j.judgeReservation(after)
	}
}

// judgeEnd looks at what a Reservation keeps no more although it is still to be kept: its time is not over, its nodes
// are there and as large as ever, and nobody has used it or given it back. One that gives way may be ended at any time,
// and one beyond a limit when another server takes over.
func (j *judge) judgeEnd(p *promise, after *v1alpha1.Reservation) {
	if j.cluster.jumped.Load() || j.cluster.options.Limited || p.object.Spec.Preemptible || j.lostNodes(p) {
		return
	}
	for i := range p.object.Spec.Slots {
		slot := &p.object.Spec.Slots[i]
		ends := after.Status.Phase.IsFinal() || (&promise{object: after}).isOver(slot)
		if node, kept := j.keptBy(p, slot); ends && kept {
			j.cluster.fail("reservation %s is %s, and keeps slot %s on %s no more, although it was to last", after.Name,
				after.Status.Phase, slot.Name, node)
		}
	}
}

func (p *promise) isAcknowledged() bool {
	return !p.acknowledged.IsZero() && time.Until(p.acknowledged) > keptUntil
}

// madeBy is the label of the Reservations that a server makes.
const madeBy = "globalreserve.io/made-by"

// ends returns when the time of a Reservation is over, by its status; of one that a server has made and not written
// since, by its TTL. It is zero where that is not known.
func (p *promise) ends() time.Time {
	r := p.object
	switch {
	case r.Status.ExpiresAt != nil:
		return r.Status.ExpiresAt.Time
	case r.Labels[madeBy] != "" && r.Spec.TTL != nil && r.Spec.TTL.Duration > 0:
		return r.CreationTimestamp.Add(r.Spec.TTL.Duration)
	default:
		return time.Time{}
	}
}

// owed reports whether there is a slot that a pod which exists may still need.
func (j *judge) owed(p *promise) bool {
	for i := range p.object.Spec.Slots {
		if _, kept := j.keptBy(p, &p.object.Spec.Slots[i]); kept {
			return true
		}
	}
	return false
}

// breakPromises is called when a node goes: what was kept there is lost, and all that was kept with it.
func (j *judge) breakPromises(node string) {
	for _, p := range j.promises {
		for i := range p.object.Spec.Slots {
			if p.broken == "" && p.nodeOf(&p.object.Spec.Slots[i]) == node {
				p.broken = "node " + node + " is gone"
			}
		}
	}
}

// lostNodes reports whether one of the nodes of a promise has less than it had: a server that takes over may then keep
// nothing of it, on none of its nodes, as all of it is kept or nothing.
func (j *judge) lostNodes(p *promise) bool {
	return slices.ContainsFunc(p.object.Spec.Slots, func(s v1alpha1.Slot) bool { return j.shrank(p.nodeOf(&s)) })
}

// nodeOf returns the node of a slot, "" where it has none.
func (p *promise) nodeOf(slot *v1alpha1.Slot) string {
	for i := range p.object.Status.Slots {
		if s := &p.object.Status.Slots[i]; s.Name == slot.Name && s.NodeName != "" {
			return s.NodeName
		}
	}
	return slot.NodeName
}

// keptBy returns the node where a slot is kept, if it is: nobody has used it, and who may use it can still come.
func (j *judge) keptBy(p *promise, slot *v1alpha1.Slot) (node string, kept bool) {
	r := p.object
	granted := p.isAcknowledged() || r.Status.Phase == v1alpha1.ReservationAvailable
	if !granted || p.broken != "" || r.DeletionTimestamp != nil {
		return "", false
	}
	if end := r.Status.ExpiresAt; end != nil && time.Until(end.Time) < keptUntil && !p.isAcknowledged() {
		return "", false
	}
	if p.isOver(slot) || j.tookOver.After(r.CreationTimestamp.Time) && j.lostNodes(p) {
		return "", false
	}
	if slot.Pod != nil && !j.comes(slot.Pod) || j.used[r.UID][slot.Name] != "" {
		return "", false
	}
	return p.nodeOf(slot), true
}

// isOver reports whether the status says of a slot that nothing is kept there any more.
func (p *promise) isOver(slot *v1alpha1.Slot) bool {
	return slices.ContainsFunc(p.object.Status.Slots, func(s v1alpha1.SlotStatus) bool {
		return s.Name == slot.Name && (s.State == v1alpha1.SlotConsumed || s.State == v1alpha1.SlotReleased)
	})
}

// givesWay reports whether others may have what a Reservation keeps: a pod of higher priority may have ended it that is
// not bound in the end, before the status says so.
func (p *promise) givesWay() bool { return p.object.Spec.Preemptible }

// selects reports whether one of the pods has the label of those that may use a Reservation.
func (p *promise) selects(pods []*v1.Pod) bool {
	consumers := p.object.Spec.Consumers
	return consumers != nil && consumers.Selector != nil && slices.ContainsFunc(pods, func(pod *v1.Pod) bool {
		return pod.Labels[appLabel] == consumers.Selector.MatchLabels[appLabel]
	})
}

// comes reports whether a pod that a slot names exists and has no node yet.
func (j *judge) comes(named *v1alpha1.PodReference) bool {
	for _, pod := range j.pods {
		if pod.Name == named.Name && (named.UID == "" || named.UID == pod.UID) {
			return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !ended(pod)
		}
	}
	return false
}

// use notes which slot a pod that is bound has used.
func (j *judge) use(pod *v1.Pod) {
	slot := pod.Annotations[v1alpha1.MatchedReservationAnnotation]
	if slot == "" {
		return
	}
	j.cluster.note("API", "pod %s uses %s", pod.Name, slot)
	name := strings.Split(slot, "/")
	for uid, p := range j.promises {
		of := pod.Annotations[v1alpha1.MatchedReservationUIDAnnotation]
		if len(name) == 3 && p.object.Namespace == name[0] && p.object.Name == name[1] && (of == "" || of == string(uid)) {
			j.judgeUser(p, name[2], pod)
			j.early[pod.UID] = p.object.Labels[madeBy] == "" && p.object.Status.Phase != v1alpha1.ReservationAvailable
			if j.used[uid] == nil {
				j.used[uid] = map[string]types.UID{}
			}
			j.used[uid][name[2]] = pod.UID
		}
	}
}

// judgeUser looks whether a slot is free, on the node of a pod, and for it. Where another pod has used it and is over
// no server may have seen that. A pod that used it before the status of a user's Reservation said that it is available
// does not count where another server takes over: that one keeps the Reservation anew.
func (j *judge) judgeUser(p *promise, slot string, pod *v1.Pod) {
	at := slices.IndexFunc(p.object.Spec.Slots, func(s v1alpha1.Slot) bool { return s.Name == slot })
	if at < 0 {
		j.cluster.fail("pod %s uses slot %s of reservation %s, which it does not have", pod.Name, slot, p.object.Name)
		return
	}
	other := j.pods[j.used[p.object.UID][slot]]
	if other != nil && other.UID != pod.UID && !ended(other) && !j.early[other.UID] {
		j.cluster.fail("pods %s and %s use slot %s of reservation %s both", pod.Name, other.Name, slot, p.object.Name)
	}
	s := &p.object.Spec.Slots[at]
	consumers := ptr.Deref(p.object.Spec.Consumers, v1alpha1.ConsumerSpec{})
	switch {
	case s.NodeName != "" && s.NodeName != pod.Spec.NodeName:
		j.cluster.fail("pod %s on %s uses slot %s of reservation %s, which is on %s", pod.Name, pod.Spec.NodeName, slot,
			p.object.Name, s.NodeName)
	case s.Pod != nil && s.Pod.Name == pod.Name && (s.Pod.UID == "" || s.Pod.UID == pod.UID):
	case s.Pod == nil && p.selects([]*v1.Pod{pod}):
	case s.Pod == nil && consumers.Index != "" && consumers.Index == pod.Annotations[v1alpha1.ReservationIndexAnnotation]:
	default:
		j.cluster.fail("pod %s uses slot %s of reservation %s, which is for others", pod.Name, slot, p.object.Name)
	}
}

// keptOn is what is kept on a node for pods that are still to come, and for whom. What some may use
// themselves is left out, and what gives way.
func (j *judge) keptOn(node string, but ...*v1.Pod) (sum v1.ResourceList, by []string) {
	sum = v1.ResourceList{}
	if j.cluster.jumped.Load() {
		return sum, nil // ends are times of day
	}
	for _, p := range j.promises {
		if p.givesWay() || p.selects(but) {
			continue
		}
		for i := range p.object.Spec.Slots {
			slot := &p.object.Spec.Slots[i]
			if on, kept := j.keptBy(p, slot); kept && on == node {
				add(sum, slot.Requests)
				devices := 0
				for _, d := range slot.Devices {
					devices += int(d.Count)
				}
				add(sum, beyond(slot.Requests, devices))
				by = append(by, p.object.Name+"/"+slot.Name)
			}
		}
	}
	return sum, by
}

// acknowledged notes that a scheduler was told that a Reservation keeps capacity for its pods. The answer may have been
// on its way until that was over.
func (j *judge) acknowledged(name types.NamespacedName, until time.Time, pods []v1.Pod) {
	if j.cluster.jumped.Load() || time.Until(until) < keptUntil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.promises {
		if p.object.Name == name.Name && p.object.Namespace == name.Namespace {
			if p.acknowledged = until; p.broken == "" {
				j.judgeGang(name.Name, pods)
			}
			return
		}
	}
	if p := j.former[name.Name]; p != nil && (p.broken != "" || !j.owed(p)) {
		return // it has ended since
	}
	for i := range pods {
		if known := j.pods[pods[i].UID]; known != nil && known.Spec.NodeName == "" {
			j.cluster.fail("reservation %s was acknowledged, and there is none", name.Name)
		}
	}
}

// judgeGang looks whether something is kept for each pod of a gang that a /reserve was granted to.
func (j *judge) judgeGang(name string, pods []v1.Pod) {
	for i := range pods {
		pod := j.pods[pods[i].UID]
		if pod != nil && pod.Spec.NodeName == "" && !j.doubtful[pod.UID] &&
			j.keepsFor(pods[i:i+1], anyOf) == "" {
			j.cluster.fail("reservation %s was acknowledged, and nothing is kept for pod %s", name, pod.Name)
		}
	}
}

// keepsFor returns a Reservation of some kind in which a slot is for one of the pods alone, and neither used nor given
// back; "" where there is none. One whose time is over keeps nothing: no server may have been able to write that.
func (j *judge) keepsFor(pods []v1.Pod, kind func(*v1alpha1.Reservation) bool) string {
	for _, p := range j.promises {
		if end := p.ends(); !end.IsZero() && !end.After(time.Now()) {
			continue
		}
		if !kind(p.object) || p.object.DeletionTimestamp != nil || p.object.Status.Phase.IsFinal() {
			continue
		}
		for i := range p.object.Spec.Slots {
			slot := &p.object.Spec.Slots[i]
			if slot.Pod != nil && !p.isOver(slot) && j.comes(slot.Pod) &&
				slices.ContainsFunc(pods, func(pod v1.Pod) bool { return pod.UID == slot.Pod.UID }) {
				return p.object.Name
			}
		}
	}
	return ""
}

func anyOf(*v1alpha1.Reservation) bool { return true }

// requestID is the annotation of a Reservation that says which request it was made for.
const requestID = "globalreserve.io/request-id"

// doubt notes that nobody knows what was done for pods: it may be done later, too.
func (j *judge) doubt(pods []v1.Pod) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range pods {
		j.doubtful[pods[i].UID] = true
	}
}

// refusedGang notes that a scheduler was told that nothing came of a /reserve.
func (j *judge) refusedGang(id string, pods []v1.Pod, why string) {
	j.nothingKept(pods, why, func(r *v1alpha1.Reservation) bool { return r.Annotations[requestID] == id })
}

// givenBack notes that what was kept for pods was given back, since a scheduler asked for that. What is written late
// ends by its TTL.
func (j *judge) givenBack(pods []v1.Pod, asked time.Time) {
	j.nothingKept(pods, "it was given back", func(r *v1alpha1.Reservation) bool {
		return r.CreationTimestamp.Time.Before(asked)
	})
}

func (j *judge) nothingKept(pods []v1.Pod, why string, by func(*v1alpha1.Reservation) bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	pods = slices.DeleteFunc(slices.Clone(pods), func(pod v1.Pod) bool { return j.doubtful[pod.UID] })
	if name := j.keepsFor(pods, by); name != "" {
		j.cluster.fail("reservation %s keeps capacity although its scheduler was told: %s", name, why)
	}
}

// repeated notes what the repeat of a /reserve for pods was answered that had been granted. Servers may have been
// unable to decide it, but not refuse it, unless a pod was resized since.
func (j *judge) repeated(pods []v1.Pod, first, again *reserver.Answer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range pods {
		pod := j.pods[pods[i].UID]
		if pod != nil && !equality.Semantic.DeepEqual(requestsOf(pod), requestsOf(&pods[i])) {
			return
		}
	}
	refused := strings.Contains(again.Error, "RequestID") || slices.ContainsFunc(again.Rejections,
		func(r reserver.Rejection) bool { return r.Reason != "PodUnknown" })
	_, name, _ := strings.Cut(first.Reservation, "/")
	if j.lasts(name) && (refused || again.Error == "" && again.Reservation != first.Reservation) {
		j.cluster.fail("the repeat of a request that was granted reservation %s was answered %q %s", name, again.Reservation,
			again.Error)
	}
}

// lasts reports whether all of a Reservation is kept that was acknowledged.
func (j *judge) lasts(name string) bool {
	for _, p := range j.promises {
		if p.object.Name != name || !p.isAcknowledged() {
			continue
		}
		for i := range p.object.Spec.Slots {
			if _, kept := j.keptBy(p, &p.object.Spec.Slots[i]); !kept {
				return false
			}
		}
		return true
	}
	return false
}

// listed notes what a server says that is kept. Nobody can have known less when it was asked.
func (j *judge) listed(server string, list []reserver.Reservation, acknowledged string, givenBack []v1.Pod) {
	j.mu.Lock()
	defer j.mu.Unlock()
	found := false
	for i := range list {
		found = found || list[i].Name == acknowledged
		for _, slot := range list[i].Slots {
			for k := range givenBack {
				if pod := &givenBack[k]; string(pod.UID) == slot.UID && !j.doubtful[pod.UID] &&
					j.keepsFor(givenBack[k:k+1], anyOf) == "" {
					j.cluster.fail("%s lists what is kept for pod %s, which was given back", server, pod.Name)
				}
			}
		}
	}
	if !found && j.lasts(acknowledged) {
		j.cluster.fail("%s does not list reservation %s, which was acknowledged", server, acknowledged)
	}
}

// returned notes that a scheduler gives back what it reserved.
func (j *judge) returned(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.promises {
		if p.object.Name == name && p.broken == "" {
			p.broken = "given back"
		}
	}
}

// resizes notes that a pod is to be resized.
func (j *judge) resizes(pod types.UID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.resized[pod] = time.Now()
}

// refusedKept notes that a pod was refused for want of capacity on a node where some is kept for it. What it was
// resized to lately counts, although it may not have been carried out yet, or never will be.
func (j *judge) refusedKept(pod *v1.Pod, node, why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if time.Since(j.resized[pod.UID]) < longUnknown {
		return
	}
	for _, p := range j.promises {
		for i := range p.object.Spec.Slots {
			slot := &p.object.Spec.Slots[i]
			if slot.Pod == nil || slot.Pod.Name != pod.Name || !p.isAcknowledged() || j.cluster.jumped.Load() ||
				j.pods[pod.UID] == nil || len(more(j.pods[pod.UID], slot.Requests)) > 0 {
				continue
			}
			if on, kept := j.keptBy(p, slot); kept && on == node && !j.lostNodes(p) {
				j.cluster.fail("pod %s is refused on %s, where reservation %s keeps capacity for it: %s", pod.Name, node,
					p.object.Name, why)
			}
		}
	}
}

// more returns of what a pod asks for more than there is.
func more(pod *v1.Pod, than v1.ResourceList) v1.ResourceList {
	list := v1.ResourceList{}
	for resource, quantity := range requestsOf(pod) {
		if resource != v1.ResourcePods && quantity.Cmp(than[resource]) > 0 {
			list[resource] = quantity
		}
	}
	return list
}

// shrank reports whether a node has less than it had lately, or was not there: what is kept there may have no place any
// more.
func (j *judge) shrank(node string) bool {
	record := j.nodes[node]
	if record == nil || record.node == nil {
		return true
	}
	return slices.ContainsFunc(record.had, func(g given) bool {
		for name, amount := range g.allocatable {
			if has := record.node.Status.Allocatable[name]; amount.Cmp(has) > 0 {
				return true
			}
		}
		return false
	})
}

func add(sum, more v1.ResourceList) {
	for resource, quantity := range more {
		total := sum[resource]
		total.Add(quantity)
		sum[resource] = total
	}
}
