package dra

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/globalreserve/globalreserve/pkg/dra/account"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

// Events beyond these are written later.
const (
	eventsPerSecond = 5
	eventBurst      = 50
)

// settleDown is how long changes are gathered before doubles are looked for: all devices are looked at for that.
const settleDown = time.Second

// Doubles returns the devices of which more is allocated than there is.
func (c *Controller) Doubles() []account.Double { return c.account.Doubles() }

// look makes tellDoubles look for doubles.
func (c *Controller) look() { informer.Poke(c.news) }

// tellDoubles writes one Event on each owner of a double, until ctx ends.
func (c *Controller) tellDoubles(ctx context.Context) {
	told := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.news:
		}
		current := map[string]bool{}
		for _, d := range c.account.Doubles() {
			c.tell(&d, told, current)
		}
		told = current
		if !informer.Pause(ctx, settleDown) {
			return
		}
	}
}

// tell logs a double and writes its Events, except for those that told has, and adds them to current. Events that are
// too many now are written in the next round.
func (c *Controller) tell(d *account.Double, told, current map[string]bool) {
	key := fmt.Sprint(d.Device, d.Resource, d.Owners)
	if current[key] = true; !told[key] {
		c.Log.WithField("device", d.Device.String()).Warn(aboutDouble(d, d.Owners))
	}
	for _, o := range d.Owners {
		on := &v1.ObjectReference{
			APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: "ResourceClaim", Namespace: o.Namespace, Name: o.Name,
			UID: o.UID,
		}
		each, note := key+string(o.UID), aboutDouble(d, account.NamedIn(o.Namespace, d.Owners))
		if current[each] = told[each] || c.events.Tell(on, v1.EventTypeWarning, "DeviceAllocatedTwice", "Watch",
			note); !current[each] {
			c.look()
		}
	}
}

// aboutDouble names those of the owners that may be named.
func aboutDouble(d *account.Double, named []account.Owner) string {
	owners := make([]string, len(named))
	for i, o := range named {
		if owners[i] = o.String(); o == (account.Owner{}) {
			owners[i] = "(of another namespace)"
		}
	}
	what := "device " + d.Device.String()
	if d.Resource != "" {
		what = fmt.Sprintf("%s of %s", d.Resource, d.Device)
	}
	return fmt.Sprintf("more of %s is allocated than there is, to ResourceClaims %s, by writes that GlobalReserve did "+
		"not decide on; nothing more of it is given until they are gone: delete the pods of all of them but one", what,
		strings.Join(owners, ", "))
}
