package ledger

import (
	"slices"
	"strings"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// claimsUsable checks what does not depend on the node: the pod's claims of devices
// exist, and no other pod has one of them. The pod has claims.
func (l *account) claimsUsable(p *Placement, h *entry) Verdict {
	if p.Devices.Err != "" {
		return Verdict{Reason: DeviceClaimUnusable}
	}
	if len(l.deviceOwners) > 0 {
		if _, owner := l.ownerOf(p, h); owner != nil {
			return Verdict{Reason: DeviceClaimInUse}
		}
	}
	return Verdict{Reason: Fits}
}

// fitsDevices checks a pod's claims of devices against a node: had is what it was given
// before for the same claims, or nil.
func (l *account) fitsDevices(i int32, p *Placement, h *entry, had []GivenDevices) Verdict {
	n, ok := l.nodes[i], true
	switch {
	case had != nil:
		ok = n.keepsDevices(had, h)
	case len(p.Devices.Requests) > 0:
		ok = n.devices != nil && n.devices.pool.Fits(n.freeDevices(h), p.Devices.Requests).Reason == devices.Fits
	}
	if !ok {
		return Verdict{Reason: InsufficientDevices}
	}
	return Verdict{Reason: Fits}
}

// keepsDevices checks whether devices that were given are all there still, and nobody else has one of them.
func (n *node) keepsDevices(had []GivenDevices, h *entry) bool {
	others := n.allDevices()
	if n.devices != nil {
		n.takeUsed(others, h)
	}
	return len(n.without(others, had)) == 0
}

// keeps returns the devices that a slot in memory, or nil, keeps for its pod, which asks
// for r now: nil where that is something else than the slot was made for.
func (e *entry) keeps(r *DeviceRequest) []GivenDevices {
	if e == nil || r == nil || !r.Same(e.asks()) {
		return nil
	}
	return e.given()
}

// allotInPlace gives a pod what the slot it has in memory keeps for it, as long as it asks
// for the same, and else other devices. The slot must be off the account.
func (l *account) allotInPlace(e *entry, r *DeviceRequest) *deviceGrant {
	if e.keeps(r) != nil {
		return e.devices
	}
	return l.allot(e.node, r, e.within)
}

// allot gives a pod devices of a node, where it was found to fit.
func (l *account) allot(i int32, r *DeviceRequest, h *entry) *deviceGrant {
	if r == nil {
		return nil
	}
	a := &deviceGrant{request: r}
	var choice [][]int
	n := l.nodes[i]
	if n.devices != nil && len(r.Requests) > 0 {
		var preferred devices.Set
		if h != nil {
			preferred = n.devices.setOf(h.given())
		}
		choice, _ = n.devices.pool.Choose(n.freeDevices(h), preferred, r.Requests)
	}
	a.given = n.chosen(r, choice)
	return a
}

// chosen returns what was chosen, by resource and ID.
func (n *node) chosen(r *DeviceRequest, choice [][]int) []GivenDevices {
	given := make([]GivenDevices, len(r.Requests))
	for k, request := range r.Requests {
		given[k].Resource = request.Resource()
		if k < len(r.Claims) {
			given[k].Claim = r.Claims[k]
		}
		if k < len(choice) {
			for _, d := range choice[k] {
				given[k].IDs = append(given[k].IDs, n.devices.pool.Device(d).ID)
			}
		}
	}
	return given
}

// giveEach gives what it can, one by one, to the requests that have nothing in soFar,
// which may be nil. It is for slots that are there whether they fit or not.
func (n *node) giveEach(r *DeviceRequest, free devices.Set, soFar []GivenDevices) []GivenDevices {
	given := n.chosen(r, nil)
	for k, request := range r.Requests {
		if k < len(soFar) && len(soFar[k].IDs) > 0 {
			given[k] = soFar[k]
		} else if n.devices != nil {
			choice, _ := n.devices.pool.Choose(free, nil, []*devices.Request{request})
			one := n.chosen(&DeviceRequest{Requests: []*devices.Request{request}}, choice)
			given[k].IDs = one[0].IDs
		}
		if n.devices != nil {
			n.devices.visit(given[k:k+1], free.Remove)
		}
	}
	return given
}

// ids are what the annotation names.
func (r *DeviceRequest) ids() []string {
	if r.Given == "" {
		return nil
	}
	return strings.Split(r.Given, ",")
}

// split returns which of some IDs each request was given, and which are left. It returns none where there are too few:
// then it is not known what the IDs are for.
func (r *DeviceRequest) split(ids []string) (byRequest [][]string, rest []string) {
	for _, request := range r.Requests {
		count := request.Count()
		if len(ids) < count {
			return nil, nil
		}
		byRequest = append(byRequest, ids[:count:count])
		ids = ids[count:]
	}
	return byRequest, ids
}

// givenBefore returns the devices that a slot was given when it was granted; nil where that is not known.
func (r *DeviceRequest) givenBefore() []GivenDevices {
	byRequest, rest := r.split(r.ids())
	if r.Given == "" || len(byRequest) != len(r.Requests) || len(rest) > 0 {
		return nil
	}
	given := (*node)(nil).chosen(r, nil)
	for k := range given {
		given[k].IDs = byRequest[k]
	}
	return given
}

// observedGiven returns the devices a slot that is observed is taken to keep: those it
// was given; where that is not known, those its pods have, and else such as are free.
func (l *account) observedGiven(spec *Slot) *deviceGrant {
	r := spec.Devices
	if r == nil {
		return nil
	}
	if given := r.givenBefore(); given != nil {
		return &deviceGrant{request: r, given: given}
	}
	n := l.nodes[l.ensureNode(spec.Node)]
	if n.devices == nil || len(r.Requests) == 0 {
		return &deviceGrant{request: r, given: n.chosen(r, nil)}
	}
	free, preferred := slices.Clone(n.devices.free), n.devices.pool.NewSet()
	for c := n.first; c != nil; c = c.next {
		if c.devices != nil && c.boundBy != nil && c.boundBy.ref == spec.Ref {
			n.devices.visit(c.devices.given, func(k int) { free.Add(k); preferred.Add(k) })
		}
	}
	choice, v := n.devices.pool.Choose(free, preferred, r.Requests)
	if v.Reason != devices.Fits {
		return &deviceGrant{request: r, given: n.giveEach(r, free, nil)}
	}
	return &deviceGrant{request: r, given: n.chosen(r, choice)}
}

// keepsDevicesFor returns how many devices of the resources asked for a slot keeps.
func (e *entry) keepsDevicesFor(r *DeviceRequest) (count int64) {
	for _, g := range e.given() {
		if slices.ContainsFunc(r.Requests, func(o *devices.Request) bool { return o.Resource() == g.Resource }) {
			count += int64(len(g.IDs))
		}
	}
	return count
}

// leftDevices is what a slot keeps of the devices of a pod that is gone: those that were
// claimed, for no claim in particular.
func (e *entry) leftDevices() *deviceGrant {
	r := e.asks()
	if r == nil || r.Err != "" || len(r.Requests) == 0 {
		return nil
	}
	given := slices.Clone(claimed(e.devices.given))
	others := e.devices.given[len(given):]
	unclear := slices.ContainsFunc(others, func(g GivenDevices) bool { return g.Resource == "" })
	if len(given) != len(r.Requests) || unclear {
		return nil // what it was given was not for these claims
	}
	for k := range given {
		if given[k].Resource != r.Requests[k].Resource() {
			return nil // nor what they ask for now
		}
		given[k].Claim = DeviceClaimRef{}
	}
	return &deviceGrant{request: &DeviceRequest{Requests: r.Requests}, given: given}
}

// said returns what a bound pod was given, as the pod itself says: the devices of its claims, and then those for what
// it asks for by count. Where its claims are not known any more, or it names another number of devices, it is not
// known of which resource a device is, or which claim it was for. A pod without claims
// has no more devices than it asks for by count.
func (l *account) said(r *DeviceRequest, req *resources.Request) []GivenDevices {
	if r.Recorded != nil {
		return r.Recorded
	}
	ids := r.ids()
	resource, most := l.byCount(r, req)
	if len(r.Claims) == 0 && r.Err == "" {
		ids = ids[:min(int64(len(ids)), most)]
	}
	byRequest, rest := r.split(ids)
	known := len(r.Requests) == len(r.Claims) && r.Err == "" && len(byRequest) == len(r.Requests) &&
		int64(len(rest)) <= most
	if !known {
		byRequest, rest, resource = nil, ids, ""
	}
	given := make([]GivenDevices, len(r.Claims), len(r.Claims)+1)
	for k, ref := range r.Claims {
		given[k].Claim = ref
		if k < len(r.Requests) {
			given[k].Resource = r.Requests[k].Resource()
		}
		if k < len(byRequest) {
			given[k].IDs = byRequest[k]
		}
	}
	if len(rest) > 0 {
		given = append(given, GivenDevices{Resource: resource, IDs: rest})
	}
	return given
}

// observedDevices returns what a pod that is bound to the node of its entry has, as the pod says. A pod has the devices
// it was bound with until it goes. Its annotations can be edited, but its containers do not get that change. An edit
// after which it is not known what the devices were for changes nothing either.
func (l *account) observedDevices(e *entry, o *PodObservation) *deviceGrant {
	had, r := e.devices, o.Devices
	var ids []string
	if had != nil {
		ids = idsOf(had.given)
	}
	if had != nil && had.said && len(ids) > 0 {
		return l.keepSaid(had, ids, o)
	}
	if r == nil {
		return nil
	}
	same := had != nil && strings.Join(ids, ",") == r.Given
	if same && r.Err != "" {
		return &deviceGrant{request: had.request, given: had.given, said: true}
	}
	a := &deviceGrant{request: r, given: l.said(r, o.Request), said: true}
	switch {
	case same && len(ids) > 0 && slices.EqualFunc(claimed(had.given), r.Claims,
		func(g GivenDevices, ref DeviceClaimRef) bool { return g.Claim == ref }):
		a.given = had.given // which says of which resource each is
	case len(a.given) == 0 && r.Err == "":
		return nil
	}
	return a
}

// keepSaid returns what a pod that is known to have devices has once it is observed anew:
// its claims may be other objects of the same names, or be known at last.
func (l *account) keepSaid(had *deviceGrant, ids []string, o *PodObservation) *deviceGrant {
	r := o.Devices
	if r == nil || r.Err != "" || len(r.Claims) == 0 || strings.Join(ids, ",") != r.Given {
		return had
	}
	if slices.ContainsFunc(had.given, func(g GivenDevices) bool { return g.Resource == "" }) {
		return &deviceGrant{request: r, given: l.said(r, o.Request), said: true}
	}
	same := func(g GivenDevices, ref DeviceClaimRef) bool { return g.Claim.key() == ref.key() }
	if !slices.EqualFunc(claimed(had.given), r.Claims, same) {
		return had
	}
	given := slices.Clone(had.given)
	for k, ref := range r.Claims {
		given[k].Claim = ref
	}
	return &deviceGrant{request: had.request, given: given, said: true}
}

func (a *deviceGrant) same(b *deviceGrant) bool {
	if a == b || a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(a.given, b.given, sameGiven)
}

func sameGiven(a, b GivenDevices) bool {
	return a.Claim == b.Claim && a.Resource == b.Resource && slices.Equal(a.IDs, b.IDs)
}

// idsOf lists the IDs of devices in the order of their claims.
func idsOf(given []GivenDevices) []string {
	var ids []string
	for _, g := range given {
		ids = append(ids, g.IDs...)
	}
	return ids
}
