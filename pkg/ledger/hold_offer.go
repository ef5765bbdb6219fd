package ledger

// UsableHold is a hold that a pod could be bound with now.
type UsableHold struct {
	Ref  HoldRef
	Node string
	// Shared says that more than one pod may use it (policy Aligned or Restricted).
	Shared bool
}

// UsableHolds returns those of the pod's holds that it could be bound with now,
// the one it prefers first. p.Node is not looked at. There are none for a pod
// that has a claim, or a slot in memory, because that says where it is bound, or
// that is gone.
func (l Reader) UsableHolds(p *Placement) []UsableHold {
	l.mu.RLock()
	defer l.mu.RUnlock()
	candidates := l.candidates(p)
	if len(candidates) == 0 || l.placed(p.Pod) || l.gone.has(p.Pod.UID) {
		return nil
	}
	usable := make([]UsableHold, 0, len(candidates))
	for _, h := range candidates {
		if h.open() && l.fit(h.node, p, h).Reason == Fits {
			usable = append(usable, UsableHold{Ref: h.Ref, Node: h.Node, Shared: h.Policy != Once})
		}
	}
	return usable
}

// HasHolds reports whether there are any slots of reservations.
func (l Reader) HasHolds() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.holds) > 0
}
