package ledger

import (
	"fmt"
	"slices"
)

// checkDevices recounts which devices of a node are free, one by one.
func (l *account) checkDevices(n *node) error {
	if n.devices == nil {
		return nil
	}
	for k := range n.devices.pool.Len() {
		d := n.devices.pool.Device(k)
		is := func(g GivenDevices) bool {
			return (g.Resource == d.Resource || g.Resource == "") && slices.Contains(g.IDs, d.ID)
		}
		free := !d.Unschedulable
		for e := n.first; e != nil; e = e.next {
			free = free && !slices.ContainsFunc(e.given(), is)
		}
		if kept := n.devices.free.Has(k); kept != free {
			return fmt.Errorf("device %s is free: %v, kept as %v", d.Name, free, kept)
		}
	}
	return nil
}

// checkDeviceOwners recounts who has which claims of devices.
func (l *account) checkDeviceOwners() error {
	owned := 0
	for _, n := range l.nodes {
		if n == nil {
			continue
		}
		for e := n.first; e != nil; e = e.next {
			for _, g := range e.given() {
				if g.Claim.Name == "" {
					continue
				}
				owned++
				if !slices.Contains(l.deviceOwners[g.Claim.key()], deviceOwner{g.Claim.UID, e}) {
					return fmt.Errorf("claim of devices %s is had by who is not known to have it", g.Claim)
				}
			}
		}
	}
	for key, owners := range l.deviceOwners {
		if owned -= len(owners); len(owners) == 0 {
			return fmt.Errorf("claim of devices %s/%s is kept though nobody has it", key.namespace, key.name)
		}
	}
	if owned != 0 {
		return fmt.Errorf("%d more claims of devices are had than are known to be", owned)
	}
	return nil
}
