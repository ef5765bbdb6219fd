package sim

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

// quotaName is the name of the only ResourceQuota, which comes, changes and goes.
const quotaName = "quota"

// changeQuota has users create, change or delete the quota.
func (c *Cluster) changeQuota(ctx context.Context) {
	if !c.options.Limited {
		return
	}
	quotas := c.admin.CoreV1().ResourceQuotas("default")
	if c.random.IntN(2) == 0 {
		c.must(quotas.Delete(ctx, quotaName, metav1.DeleteOptions{}), "deleting the quota")
		c.note("user", "deletes the quota")
		return
	}
	quota := &v1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: quotaName}}
	quota.Spec.Hard = v1.ResourceList{
		v1.ResourceRequestsCPU: *resource.NewMilliQuantity(int64(2000+500*c.random.IntN(20)), resource.DecimalSI),
		v1.ResourcePods:        *resource.NewQuantity(int64(5+c.random.IntN(30)), resource.DecimalSI),
	}
	_, err := quotas.Create(ctx, quota, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = quotas.Update(ctx, quota, metav1.UpdateOptions{})
	}
	c.must(err, "changing the quota")
	c.note("user", "sets the quota to %s", text(quota.Spec.Hard))
}

// policyFile is a file with the policy of the servers.
type policyFile struct{ dir string }

func (f *policyFile) path() string { return filepath.Join(f.dir, "policy.yaml") }

// limited are the limits that a policy has: of the CPU of who acts for schedulers, and of what Reservations keep.
type limited struct {
	cpu             map[string]int // by scheduler
	reserved, slots int            // 0 for none
}

const policyHead = "apiVersion: config.globalreserve.io/v1alpha1\nkind: GlobalReservePolicy\n"

// changePolicy changes the policy file.
func (c *Cluster) changePolicy(context.Context) {
	if !c.options.Limited {
		return
	}
	l := limited{cpu: map[string]int{}}
	for i := range c.options.Schedulers {
		if c.random.IntN(3) == 0 {
			l.cpu[fmt.Sprintf("scheduler-%d", i)] = 1 + c.random.IntN(2)
		}
	}
	if c.random.IntN(3) == 0 {
		l.reserved, l.slots = 1+c.random.IntN(6), 1+c.random.IntN(6)
	}
	c.setPolicy(l, 60+c.random.IntN(60), c.random.IntN(4) > 0)
}

// setPolicy writes the policy file as the kubelet does, all at once.
func (c *Cluster) setPolicy(l limited, deadline int, deletedPods bool) {
	text := policyHead + fmt.Sprintf("gangs: {deadline: %ds}\ndeletedPods: {enabled: %t}\n", deadline, deletedPods)
	text += "schedulers:\n"
	for _, name := range slices.Sorted(maps.Keys(l.cpu)) {
		text += fmt.Sprintf("- {name: %s, callers: [%s], limits: {cpu: %d}}\n", name, name, l.cpu[name])
	}
	if l.slots > 0 {
		text += fmt.Sprintf("namespaces: {default: {maxReserved: {cpu: %d}, maxSlots: %d}}\n", l.reserved, l.slots)
	}
	next := c.policy.path() + ".next"
	err := os.WriteFile(next, []byte(text), 0o600)
	if err == nil {
		err = os.Rename(next, c.policy.path())
	}
	c.must(err, "writing the policy")
	c.note("user", "sets the policy: %+v, deadline %d, deleted pods %t", l, deadline, deletedPods)
	c.judge.limit(l)
}

// liftLimits ends all limits.
func (c *Cluster) liftLimits(ctx context.Context) {
	if c.options.Limited {
		quotas := c.admin.CoreV1().ResourceQuotas("default")
		c.must(quotas.Delete(ctx, quotaName, metav1.DeleteOptions{}), "lifting the quota")
		c.setPolicy(limited{}, 60, true)
	}
}

// policyTime is unknownFor for the policy: servers read its file all the time, but may be paused, and what they have
// decided is under way.
func (c *Cluster) policyTime() time.Duration { return min(c.unknownFor(), 45*time.Second) }

// limits are those that somebody has, now and before: a list without a resource is no limit of it.
type limits []given

func (l limits) now() v1.ResourceList {
	if len(l) == 0 {
		return nil
	}
	return l[len(l)-1].allocatable
}

// set has another list hold from now on. What holds from the start has held for ever: no server has run before.
func (j *judge) set(l limits, list v1.ResourceList) limits {
	if len(l) == 0 && len(j.cluster.servers) > 0 {
		l = limits{{}}
	}
	if len(l) > 0 {
		l[len(l)-1].until = time.Now()
	}
	return append(l, given{allocatable: list})
}

// most returns the highest limit of a resource there was for a time, and false where there may be none.
func (l limits) most(within time.Duration, name v1.ResourceName) (most resource.Quantity, ok bool) {
	for _, g := range l {
		limit, limited := g.allocatable[name]
		if g.recent(within) && !limited {
			return most, false
		}
		if g.recent(within) && limit.Cmp(most) > 0 {
			most = limit
		}
	}
	return most, len(l) > 0
}

// exceeded returns what of a sum is beyond the limits that there were for a time, of what is asked for.
func (l limits) exceeded(within time.Duration, sum, asked v1.ResourceList) string {
	for name, amount := range asked {
		if most, limited := l.most(within, name); limited && !amount.IsZero() {
			if used := sum[name]; used.Cmp(most) > 0 {
				return fmt.Sprintf("%s of %s %s", used.String(), most.String(), name)
			}
		}
	}
	return ""
}

// limit notes what a policy says.
func (j *judge) limit(l limited) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.cluster.options.Schedulers {
		name, list := fmt.Sprintf("scheduler-%d", i), v1.ResourceList(nil)
		if cpu, ok := l.cpu[name]; ok {
			list = v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(cpu), resource.DecimalSI)}
		}
		j.ofSchedulers[name] = j.set(j.ofSchedulers[name], list)
	}
	reserved := v1.ResourceList(nil)
	if l.slots > 0 {
		reserved = v1.ResourceList{
			v1.ResourceCPU: *resource.NewQuantity(int64(l.reserved), resource.DecimalSI),
			slots:          *resource.NewQuantity(int64(l.slots), resource.DecimalSI),
		}
	}
	j.ofReservations = j.set(j.ofReservations, reserved)
}

// slots is what the slots of Reservations are counted as.
const slots v1.ResourceName = "slots"

func (j *judge) observeQuota(after *v1.ResourceQuota) {
	if after == nil {
		j.quota = j.set(j.quota, nil)
		return
	}
	j.quota = j.set(j.quota, v1.ResourceList{
		v1.ResourceCPU: after.Spec.Hard[v1.ResourceRequestsCPU], v1.ResourcePods: after.Spec.Hard[v1.ResourcePods],
	})
}

// usedAndKept is what all pods use, and what is kept beyond that.
func (j *judge) usedAndKept() (used, kept v1.ResourceList) {
	used, kept = v1.ResourceList{}, v1.ResourceList{}
	for node := range j.nodes {
		add(used, j.usedOn(node))
		of, by := j.keptOn(node)
		add(kept, of)
		add(kept, v1.ResourceList{slots: *resource.NewQuantity(int64(len(by)), resource.DecimalSI)})
	}
	return used, kept
}

// usedBy is what the pods use that a scheduler had bound, and the rest of its gangs, if that counts.
func (j *judge) usedBy(scheduler string, rest bool) v1.ResourceList {
	sum := v1.ResourceList{}
	for _, pod := range j.pods {
		if pod.Spec.SchedulerName == scheduler && pod.Spec.NodeName != "" && !ended(pod) &&
			(j.answersAbout(pod.UID).requests > 0 || rest && crewOf(pod) != "") {
			add(sum, requestsOf(pod))
		}
	}
	return sum
}

// judgeLimits looks at a pod that uses more than before: more of what was asked for.
func (j *judge) judgeLimits(pod *v1.Pod, asked v1.ResourceList, name string) {
	used, kept := j.usedAndKept()
	add(used, kept)
	if over := j.quota.exceeded(j.cluster.unknownFor(), used, asked); over != "" {
		j.cluster.fail("pod %s is beyond the quota: %s are used and kept", name, over)
	}
	scheduler := pod.Spec.SchedulerName
	if over := j.ofSchedulers[scheduler].exceeded(j.cluster.policyTime(), j.usedBy(scheduler, false), asked); over != "" {
		j.cluster.fail("pod %s is beyond the limit of %s: %s are used", name, scheduler, over)
	}
}

// judgeReservation looks at a Reservation that keeps capacity from now on. What a deleted pod had on a node that has
// shrunk since is kept there as it was.
func (j *judge) judgeReservation(r *v1alpha1.Reservation) {
	used, kept := j.usedAndKept()
	asked := v1.ResourceList{slots: onePod}
	for i := range r.Spec.Slots {
		add(asked, r.Spec.Slots[i].Requests)
	}
	for i := range r.Status.Slots {
		node := r.Status.Slots[i].NodeName
		on := j.usedOn(node)
		kept, _ := j.keptOn(node) // what gives way may have been ended for it
		same := r.Labels[madeBy] == convert.MadeByDeletedPod && j.shrank(node)
		if add(on, kept); node != "" && !same && !j.had(node, on, asked) {
			j.cluster.fail("reservation %s becomes available on %s, which has no capacity: %s are used and kept", r.Name, node,
				text(on))
		}
	}
	if time.Since(j.tookOver) < j.cluster.policyTime() {
		return // what is beyond lower limits the next server does not keep, and may not have written so yet
	}
	if over := j.ofReservations.exceeded(j.cluster.policyTime(), j.beyondBinds(kept), asked); over != "" {
		j.cluster.fail("reservation %s is beyond what may be kept: %s", r.Name, over)
	}
	add(used, kept)
	if over := j.quota.exceeded(j.cluster.unknownFor(), used, asked); over != "" {
		j.cluster.fail("reservation %s is beyond the quota: %s are used and kept", r.Name, over)
	}
}

// beyondBinds is what is kept beyond what pods may use of it by then that are being bound.
func (j *judge) beyondBinds(kept v1.ResourceList) v1.ResourceList {
	beyond := kept.DeepCopy()
	for uid, about := range j.answers {
		pod := j.pods[uid]
		if pod == nil || pod.Spec.NodeName != "" || about.requests == 0 || about.unmade != "" {
			continue
		}
		for name, amount := range requestsOf(pod) {
			left := beyond[name]
			left.Sub(amount)
			beyond[name] = left
		}
	}
	return beyond
}

// within reports whether a pod that waits is within all limits there are.
func (j *judge) within(pod *v1.Pod) bool {
	asked := requestsOf(pod)
	used, kept := j.usedAndKept()
	of := j.usedBy(pod.Spec.SchedulerName, true)
	add(used, kept)
	add(used, asked)
	add(of, asked)
	within := func(sum, limits v1.ResourceList) bool {
		for name, limit := range limits {
			if got := sum[name]; got.Cmp(limit) > 0 {
				return false
			}
		}
		return true
	}
	return within(used, j.quota.now()) && within(of, j.ofSchedulers[pod.Spec.SchedulerName].now())
}

// limited reports whether there is a limit now.
func (j *judge) limited() bool {
	for _, l := range j.ofSchedulers {
		if len(l.now()) > 0 {
			return true
		}
	}
	return len(j.quota.now()) > 0 || len(j.ofReservations.now()) > 0
}

// judgeCreation looks at a pod that was created with its node, by somebody whom no policy lists.
func (j *judge) judgeCreation(pod *v1.Pod, name string) {
	if _, limited := j.ofSchedulers[pod.Spec.SchedulerName].most(j.cluster.policyTime(), v1.ResourceCPU); limited {
		j.cluster.fail("pod %s was created on %s by somebody who may not act for %s", name, pod.Spec.NodeName,
			pod.Spec.SchedulerName)
	}
}
