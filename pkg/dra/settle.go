package dra

import (
	"context"
	"fmt"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/dra/account"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

// withdrawnAnnotation is written to a claim so that no write that was granted on an earlier version is carried out. Its
// value is when.
const withdrawnAnnotation = "globalreserve.io/allocation-withdrawn"

const (
	// grace is how long a granted write has to show up before it is withdrawn for somebody else who wants its devices.
	grace = 3 * time.Second
	// abandonedAfter is when the API server has ended a request, where nothing else shows it: it does so after 34s
	// (kubernetes staging/src/k8s.io/apiserver/pkg/endpoints/handlers, requestTimeoutUpperBound), or after its
	// --request-timeout where that is shorter, and etcd may take some seconds for a write that it has begun.
	abandonedAfter = 45 * time.Second
	// settlers is how many claims are looked at at once, and requestTimeout how long one request may take. What fails is
	// tried again after grace, and then after up to mostGrace.
	settlers       = 16
	requestTimeout = 5 * time.Second
	mostGrace      = 5 * grace
)

// write is a write of a claim's devices that may be carried out, and was not seen: this server has granted it, or one
// before may have.
type write struct {
	claim  types.NamespacedName
	base   int64 // the version of the claim that it is made on
	since  time.Time
	due    time.Time // when it is to be settled
	tried  bool      // that was tried
	former bool      // a server before this one may have granted it
}

// claimKey names one claim, and no other one of its name.
type claimKey struct {
	types.NamespacedName
	uid types.UID
}

// expect records what was granted. The write has as long as the API server gives it, while nobody else wants the same
// devices: else, with another webhook that is slow, no write would ever be carried out. c.mu is held.
func (c *Controller) expect(claim *resourcev1.ResourceClaim, base int64, now time.Time) {
	w := c.open[claim.UID]
	if w == nil {
		w = &write{claim: types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}}
		c.open[claim.UID] = w
	}
	w.base, w.since, w.due, w.tried = max(w.base, base), now, now.Add(abandonedAfter), false
	c.queue.AddAfter(claimKey{w.claim, claim.UID}, abandonedAfter)
}

// hurry brings forward the settling of the writes that a claim was refused for. c.mu is held.
func (c *Controller) hurry(refused types.UID, refusal *account.Refusal) {
	for _, o := range refusal.Owners {
		w := c.open[o.UID]
		if w == nil || w.tried || o.UID == refused {
			continue
		}
		if soon := w.since.Add(grace); soon.Before(w.due) {
			w.due = soon
			c.queue.AddAfter(claimKey{w.claim, o.UID}, time.Until(soon))
		}
	}
}

// present is called when the watch has delivered all claims and slices: nobody else decides any more.
func (c *Controller) present(ctx context.Context) {
	c.Log.WithField("waiting", c.suspect()).Info("ResourceClaims are decided on")
	<-ctx.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deciding, c.settled = false, informer.NewLatch() // until all is known anew nothing is granted
}

// suspect expects the writes that a server before this one may have granted, and returns how many these can be. None is
// for a claim that is too large: it is granted nothing, and there may be no place for the annotation.
func (c *Controller) suspect() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.deciding, c.former = true, 0
	for uid, claim := range c.claims {
		if claim.Status.Allocation == nil && !isTooLarge(claim.ResourceClaim) {
			c.former++
			c.open[uid] = &write{
				claim: types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name},
				base:  account.Version(claim.ResourceVersion), since: now, due: now, former: true,
			}
		}
	}
	for uid, w := range c.open {
		c.queue.AddAfter(claimKey{w.claim, uid}, time.Until(w.due))
	}
	c.settleFormer(0)
	return c.former
}

// close forgets the write of a claim, which is settled. c.mu is held.
func (c *Controller) close(uid types.UID) {
	if w := c.open[uid]; w != nil && w.former {
		c.settleFormer(1)
	}
	delete(c.open, uid)
}

// settleFormer counts the writes of the server before that are settled. When none is left, devices can be granted. c.mu
// is held.
func (c *Controller) settleFormer(settled int) {
	if c.former -= settled; c.deciding && c.former == 0 {
		c.settled.Open()
	}
}

// settle finds out what became of a write that has not shown up in time.
func (c *Controller) settle(ctx context.Context, key claimKey) error {
	c.mu.Lock()
	w := c.open[key.uid]
	if w == nil || !c.deciding {
		c.mu.Unlock()
		return nil
	}
	left, last := time.Until(w.due), time.Until(w.since.Add(abandonedAfter+time.Second))
	w.tried = w.tried || left <= 0
	c.mu.Unlock()
	if left > 0 {
		c.queue.AddAfter(key, left)
		return nil
	}
	if err := c.settleOne(ctx, key); err != nil {
		if last > 0 {
			c.queue.AddAfter(key, last) // however long the pause is
		}
		return fmt.Errorf("it is not known whether devices were allocated to the ResourceClaim; they stay taken until it "+
			"is. If this stays: the server needs the rights in manifests/base/rbac.yaml: %w", err)
	}
	return nil
}

// settleOne makes sure that a write is not carried out any more, unless it was. The error says why it could not.
func (c *Controller) settleOne(ctx context.Context, key claimKey) error {
	asked, uid := time.Now(), key.uid
	claim, failure := c.withdraw(ctx, uid, key.NamespacedName)
	err := failure
	if err != nil && !apierrors.IsNotFound(err) {
		claim, err = c.get(ctx, key.NamespacedName)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.open[uid]
	switch {
	case now == nil: // the watch has reported it
		return nil
	case apierrors.IsNotFound(err) || err == nil && claim.UID != uid:
		c.forgetUID(uid)
		return nil
	case err != nil:
		return err
	case claim.Status.Allocation != nil: // the watch reports it
		return failure
	case failure == nil && account.Version(claim.ResourceVersion) > now.base:
		c.account.ObserveClaim(claim)
		c.close(uid)
		return nil
	case asked.Sub(now.since) > abandonedAfter:
		c.account.GiveUp(uid, asked.Add(-abandonedAfter))
		c.close(uid)
		return nil
	default:
		return failure
	}
}

// withdraw makes a new version of a claim by an annotation, and returns it. It writes a label where the author of the
// claim left no place for another annotation, to keep all waiting for the claim.
func (c *Controller) withdraw(ctx context.Context, uid types.UID,
	name types.NamespacedName,
) (*resourcev1.ResourceClaim, error) {
	now := time.Now().UTC()
	claim, err := c.patch(ctx, name, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, uid, withdrawnAnnotation,
		now.Format(time.RFC3339Nano))
	if apierrors.IsInvalid(err) {
		claim, err = c.patch(ctx, name, `{"metadata":{"uid":%q,"labels":{%q:"%d"}}}`, uid, withdrawnAnnotation,
			now.UnixNano())
	}
	return claim, err
}

func (c *Controller) patch(ctx context.Context, name types.NamespacedName, format string,
	args ...any,
) (*resourcev1.ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	patch := fmt.Appendf(nil, format, args...)
	return c.Client.ResourceV1().ResourceClaims(name.Namespace).
		Patch(ctx, name.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}

func (c *Controller) get(ctx context.Context, name types.NamespacedName) (*resourcev1.ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.Client.ResourceV1().ResourceClaims(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
}
