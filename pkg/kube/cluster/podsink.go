package cluster

import (
	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// podFollower takes the pods of the watch into the store and the ledger.
type podFollower struct{ *Cache }

// podSink is the store the pods' reflector writes to.
func (c *Cache) podSink() sink[v1.Pod, Pod] { return sink[v1.Pod, Pod]{podFollower{c}} }

func (c podFollower) compact(pod *v1.Pod) *Pod { return c.reader.Compact(pod) }

func (c podFollower) observe(r *Pod) {
	if change, ok := c.observePod(r); ok && change.renominated() {
		c.options.OnNominated(change.to)
	}
	c.seen(r.ResourceVersion)
}

func (c podFollower) remove(last *Pod) {
	c.removePod(last.Ref, last, last.ResourceVersion)
	c.seen(last.ResourceVersion)
}

func (c podFollower) seen(version uint64) { c.Seen(version) }

// replace records a full state. What was deleted in a gap of the watch is released first.
func (c podFollower) replace(records []*Pod, version uint64) {
	since := c.ledger.Revision()
	c.removeAbsentPods(records, version)
	var nominated []podChange // what they lack is known only once all others are
	for _, r := range records {
		if change, ok := c.observePod(r); ok && change.renominated() {
			nominated = append(nominated, change)
		}
	}
	for _, change := range nominated {
		c.options.OnNominated(change.to)
	}
	c.Seen(version)
	c.replaced(&c.podWatch, len(records), since)
}

// removeAbsentPods removes what is held and not among records, the state of the cluster at version.
func (c *Cache) removeAbsentPods(records []*Pod, version uint64) {
	present := make(map[podKey]types.UID, len(records))
	for _, r := range records {
		present[keyOf(r)] = r.Ref.UID
	}
	for _, r := range c.allPods() {
		if uid, ok := present[keyOf(r)]; !ok || uid != r.Ref.UID {
			// Gone at the version of the list: nothing up to it is news of the pod.
			c.removePod(r.Ref, r, max(version, r.ResourceVersion))
		}
	}
}

// podChange is what became of one pod, to be reported.
type podChange struct {
	from     *Pod // held before under the pod's name; may be a former pod
	to       *Pod // nil: the pod is gone
	gone     ledger.PodRef
	observed ledger.Observed
}

// observePod records a state of a pod and reports it. ok is false where it is older than what is held.
func (c *Cache) observePod(r *Pod) (change podChange, ok bool) {
	c.apply.Lock()
	change, ok = c.applyPod(r)
	c.apply.Unlock()
	if ok {
		c.tell(change)
	}
	return change, ok
}

// renominated reports whether a pod without a node is nominated for another node than before, or for none now.
func (p *podChange) renominated() bool {
	before := ""
	if p.from != nil && p.from.Ref.UID == p.to.Ref.UID {
		before = p.from.Nominated
	}
	return p.to.Node == "" && !p.to.Finished && p.to.Nominated != before
}

// removePod records that a pod was deleted and reports it. last is the pod's last state.
func (c *Cache) removePod(pod ledger.PodRef, last *Pod, version uint64) {
	c.apply.Lock()
	change := c.applyRemovePod(pod, last, version)
	c.apply.Unlock()
	c.tell(change)
}

// applyPod takes a state of a pod into the store and the ledger. ok is false
// where it is older than what is held, and so changes nothing. c.apply is held.
func (c *Cache) applyPod(r *Pod) (change podChange, ok bool) {
	held := c.find(keyOf(r))
	if held != nil && older(r.ResourceVersion, held.ResourceVersion) {
		return podChange{}, false
	}
	if held != nil && held.Ref.UID != r.Ref.UID {
		// The name was given anew and the deletion missed: the former pod is gone.
		c.end(held, held.ResourceVersion)
	}
	c.Pods.Put(r)
	return podChange{from: held, to: r, observed: c.tellLedger(r)}, true
}

// applyRemovePod takes a pod out of the store and the ledger. A newer pod of the same name stays. last is the pod's
// last state, nil where it is not known. c.apply is held.
func (c *Cache) applyRemovePod(pod ledger.PodRef, last *Pod, version uint64) podChange {
	held := c.find(podKey{pod.Namespace, pod.Name})
	if held != nil && held.Ref.UID == pod.UID {
		c.Pods.Remove(held)
		if last == nil {
			last = held
		}
	}
	if last != nil {
		c.end(last, version)
	} else {
		c.ledger.RemovePod(pod, version)
	}
	return podChange{from: held, gone: pod}
}

// end reports to the ledger that a pod uses its capacity no more: it was deleted, or has finished while it was being
// deleted. Where Options.Keep returns a slot, that slot keeps the capacity, in the same step. c.apply is held.
func (c *Cache) end(last *Pod, version uint64) {
	if last.Node != "" {
		if slot, told, keep := c.options.Keep(last); keep {
			if made, refused := c.ledger.RemovePodHolding(last.Ref, version, slot); made || refused != nil {
				told(refused)
			}
			return
		}
	}
	c.ledger.RemovePod(last.Ref, version)
}

// tellLedger reports one state of a pod. c.apply is held.
func (c *Cache) tellLedger(r *Pod) ledger.Observed {
	switch {
	case r.Finished && r.Deleting:
		// The kubelet ends the containers of a pod that is being deleted, and says so, before the pod goes.
		c.end(r, r.ResourceVersion)
		return ledger.ObservedNothing
	case r.Finished:
		c.ledger.RemovePod(r.Ref, r.ResourceVersion)
		return ledger.ObservedNothing
	case r.Node != "":
		return c.ledger.ObservePod(c.observation(r))
	default:
		ObserveUnbound(c.ledger, c.log, r)
		return ledger.ObservedNothing
	}
}

// ObserveUnbound reports a pod that has no node to a ledger. If capacity was reserved for the pod before it existed,
// for another scheduler, that ends, and the log says so.
func ObserveUnbound(l ledger.Observer, log logrus.FieldLogger, pod *Pod) {
	if n := l.ObserveUnbound(pod.Ref, pod.Scheduler); n > 0 {
		log.WithFields(podFields(pod.Ref)).WithFields(logrus.Fields{"scheduler": pod.Scheduler, "slots": n}).
			Warn("what was reserved for this pod before it existed gives way: it was reserved for a pod of another scheduler")
	}
}

// observation returns what the ledger records of a bound pod. A pod whose annotations name no devices may have some all
// the same: the annotations can be removed.
func (c *Cache) observation(r *Pod) ledger.PodObservation {
	o := r.Observation()
	o.Devices = c.options.Devices(r)
	return o
}

// ObserveDevices reports the bound pods that have devices to the ledger again. It is called when it is known which
// devices and claims there are.
func (c *Cache) ObserveDevices() { c.observeDevices(c.allPods()) }

// ObserveClaimants reports the bound pods that name a device claim to the ledger again, when the claim's object came,
// went or was made anew. Devices of these pods may be known now that were not, or belong to another claim.
func (c *Cache) ObserveClaimants(namespace, claim string) {
	c.observeDevices(c.ClaimantsOf(namespace, claim))
}

func (c *Cache) observeDevices(pods []*Pod) {
	for _, found := range pods {
		c.apply.Lock()
		if r := c.find(keyOf(found)); r == found && r.Bound() {
			if o := c.observation(r); o.Devices != nil {
				c.ledger.ObservePod(o)
			}
		}
		c.apply.Unlock()
	}
}

// tell reports a change to the callbacks of Options. No lock is held.
func (c *Cache) tell(change podChange) {
	from, to := change.from, change.to
	if to == nil {
		// A former pod of the name, and one that has finished, were reported before.
		if from == nil || (from.Ref.UID == change.gone.UID && !from.Finished) {
			c.options.OnPodGone(change.gone)
		}
		return
	}
	if from != nil && from.Ref.UID != to.Ref.UID {
		if !from.Finished {
			c.options.OnPodGone(from.Ref)
		}
		from = nil
	}
	if to.err != nil && (from == nil || from.err == nil) {
		c.log.WithError(to.err).WithFields(podFields(to.Ref)).
			Warn("the request of this pod cannot be counted; it is refused everywhere until it is corrected")
	}
	switch {
	case to.Finished && (from == nil || !from.Finished):
		c.options.OnPodGone(to.Ref)
	case to.Bound() && (from == nil || from.Node == ""):
		c.tellBound(to, change.observed)
	case to.Bound() && !from.Devices.Same(to.Devices):
		c.options.OnDeviceAnnotations(to)
	case to.Node == "" && !to.Finished && to.Devices != nil && (from == nil || !from.Devices.Same(to.Devices)):
		c.options.OnDeviceAnnotations(to)
	}
}

func (c *Cache) tellBound(pod *Pod, observed ledger.Observed) {
	unasked := (observed == ledger.ObservedNew || observed == ledger.ObservedMoved) && !pod.Mirror
	c.options.OnPodBound(pod, unasked && c.podWatch.synced.IsOpen())
}

func podFields(pod ledger.PodRef) logrus.Fields {
	return logrus.Fields{"pod": pod.String(), "uid": string(pod.UID)}
}
