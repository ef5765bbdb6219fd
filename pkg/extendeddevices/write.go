package extendeddevices

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Writes that fail are repeated after retryFirst, then after twice as long each time, up to retryMost. One
// write may take writeTimeout.
const (
	retryFirst   = 20 * time.Millisecond
	retryMost    = 10 * time.Second
	writeTimeout = 10 * time.Second
)

// settleTime is how long a claim that no pod has is kept after the watch has reported its deletion: a decision that
// was made for it before has reached the ledger by then.
const settleTime = 2 * time.Second

// String returns namespace/name, or the name of a device.
func (o object) String() string {
	if o.namespace == "" {
		return o.name
	}
	return o.namespace + "/" + o.name
}

// sync writes the API server's object, once it is known what it has to be.
func (c *Controller) sync(ctx context.Context, key object) error {
	if err := c.Ready.Wait(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var err error
	switch {
	case key.pod != "":
		err = c.bringPod(ctx, ledger.PodRef{Namespace: key.namespace, Name: key.name, UID: key.pod})
	case key.namespace == "":
		err = c.bringDeviceObject(ctx, key.name)
	default:
		err = c.bringClaim(ctx, types.NamespacedName{Namespace: key.namespace, Name: key.name})
	}
	if apierrors.IsNotFound(err) {
		return nil // the watch is about to report that the object is gone
	}
	return err
}

func (c *Controller) bringDeviceObject(ctx context.Context, name string) error {
	d := c.deviceToWrite(name)
	if d == nil {
		return nil
	}
	_, err := c.Client.GlobalreserveV1alpha1().ExtendedResources().
		UpdateStatus(ctx, d, metav1.UpdateOptions{FieldManager: c.Term.Get().Manager()})
	if err != nil {
		return fmt.Errorf("writing the status of device %s: %w", name, err)
	}
	c.tellDevice(d)
	return nil
}

// deviceToWrite returns a device with the status it has to have; nil where it has it.
func (c *Controller) deviceToWrite(name string) *v1alpha1.ExtendedResource {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.devices.byName[name]
	if d == nil {
		return nil
	}
	key := identityOf(d)
	_, exists := c.Nodes.Node(d.Spec.NodeName)
	facts := deviceFacts{nodeExists: exists, use: c.boundTo(key)}
	if first := c.devices.objectsOf(key)[0]; first != name {
		facts.same = first
	}
	status := projectDevice(d, &facts, time.Now())
	if apiequality.Semantic.DeepEqual(&status, &d.Status) {
		return nil
	}
	next := *d // shared: only the status differs
	next.Status = status
	return &next
}

func (c *Controller) bringClaim(ctx context.Context, key types.NamespacedName) error {
	client := c.Client.GlobalreserveV1alpha1().ExtendedResourceClaims(key.Namespace)
	next, former, finalizers := c.claimToWrite(key)
	switch {
	case next == nil:
		return nil
	case finalizers != nil:
		patch, err := finalizerPatch(next, finalizers)
		if err != nil {
			return err
		}
		if _, err := client.Patch(ctx, key.Name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: c.Term.Get().Manager()}); err != nil {
			return fmt.Errorf("writing the finalizers of claim %s: %w", key, err)
		}
		return nil // the watch brings it back for what is left to do
	}
	if _, err := client.UpdateStatus(ctx, next, metav1.UpdateOptions{FieldManager: c.Term.Get().Manager()}); err != nil {
		return fmt.Errorf("writing the status of claim %s: %w", key, err)
	}
	c.tellClaim(next, former)
	return nil
}

// claimToWrite returns what has to be written of a claim, nil where that is nothing: the finalizers, where these are
// not right, before the status. former is the phase it has.
func (c *Controller) claimToWrite(key types.NamespacedName) (
	next *v1alpha1.ExtendedResourceClaim, former v1alpha1.ExtendedResourceClaimPhase, finalizers []string,
) {
	c.mu.Lock()
	defer c.mu.Unlock()
	claim := c.claims.get(key)
	if claim == nil {
		return nil, "", nil
	}
	obj := claim.obj
	u := c.useOf(key, obj.UID)
	if finalizers := c.finalizers(claim, u); finalizers != nil {
		return obj, "", finalizers
	}
	facts := claimFacts{}
	if u != nil && u.bound() {
		facts.use = u
		for _, id := range u.given.IDs {
			names := c.devices.objectsOf(identity{u.Node, u.given.Resource, id})
			if len(names) == 0 {
				facts.gone = append(facts.gone, id)
				continue
			}
			facts.names = append(facts.names, names[0])
		}
	}
	status := projectClaim(claim, &facts, time.Now())
	if apiequality.Semantic.DeepEqual(&status, &obj.Status) {
		return nil, "", nil
	}
	changed := *obj // shared: only the status differs
	changed.Status = status
	return &changed, obj.Status.Phase, nil
}

// finalizers returns the finalizers a claim has to have instead of those it has; nil: these are right. u is what
// the claim serves, or nil. c.mu is held.
func (c *Controller) finalizers(claim *claim, u *use) []string {
	obj := claim.obj
	has := slices.Contains(obj.Finalizers, v1alpha1.ExtendedResourceClaimFinalizer)
	if obj.DeletionTimestamp == nil && !has {
		return append(slices.Clone(obj.Finalizers), v1alpha1.ExtendedResourceClaimFinalizer)
	}
	if obj.DeletionTimestamp == nil || !has || (u != nil && u.bound()) {
		return nil
	}
	left := time.Until(claim.deleted.Add(settleTime))
	if u != nil {
		left = settleTime // no event says that a slot in memory keeps other devices now
	}
	if left > 0 {
		c.queue.AddAfter(object{namespace: obj.Namespace, name: obj.Name}, left)
		return nil
	}
	return slices.DeleteFunc(slices.Clone(obj.Finalizers), func(f string) bool {
		return f == v1alpha1.ExtendedResourceClaimFinalizer
	})
}

// finalizerPatch replaces the finalizers of the very state of an object that is known here.
func finalizerPatch(obj *v1alpha1.ExtendedResourceClaim, finalizers []string) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": obj.UID, "resourceVersion": obj.ResourceVersion, "finalizers": finalizers,
	}})
}
