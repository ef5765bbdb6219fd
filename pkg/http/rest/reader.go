package rest

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/globalreserve/globalreserve/pkg/decide/reserve"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// maxAsked bounds for how many namespaces the API server is asked within one request. The caller sees no names of
// others.
const maxAsked = 100

// reader knows what the caller of one request may see: the names of all pods, or of those in some namespaces. Of
// the others it sees amounts only.
type reader struct {
	o      *Options
	ctx    context.Context
	caller user.Info
	known  map[string]bool
	err    error // why it is not known
}

func (a *API) readerOf(ctx context.Context) *reader {
	return &reader{o: &a.o, ctx: ctx, caller: auth.Of(ctx), known: map[string]bool{}}
}

// all returns why the caller must not see the names of all namespaces, nil if it may.
func (r *reader) all() error {
	if auth.Trusted(r.caller) {
		return nil
	}
	return r.o.Rights.MayRead(r.ctx, r.caller, "")
}

// sees reports whether the caller may see the names of a namespace.
func (r *reader) sees(namespace string) bool {
	if len(r.known) == 0 {
		r.known[""] = r.ask("")
	}
	if r.known[""] {
		return true
	}
	if _, asked := r.known[namespace]; !asked && len(r.known) <= maxAsked {
		r.known[namespace] = r.ask(namespace)
	}
	return r.known[namespace]
}

// mustSee refuses a question about pods of a namespace whose names the caller may not see, whether or not there are
// such pods.
func (r *reader) mustSee(namespace string) error {
	switch {
	case r.sees(namespace):
		return nil
	case r.err != nil:
		return httpjson.Errorf(statusOf(r.err), "%s", r.err)
	default:
		return httpjson.Errorf(http.StatusForbidden,
			"%q may not see pods of namespace \"%s\": a role has to let it list pods there",
			r.caller.GetName(), httpjson.Clip(namespace))
	}
}

// mustSeePods is mustSee for the pods of a question. The ledger finds a pod by its UID, whatever namespace the request
// names. So the caller must be allowed to see the namespace of the pod that has the UID, too.
func (r *reader) mustSeePods(l ledger.Reader, pods []ledger.PodRef) error {
	for _, pod := range pods {
		if pod.Name != "" { // else it is a UID alone
			if err := r.mustSee(pod.Namespace); err != nil {
				return err
			}
		}
		allocation, _ := l.Allocation(pod)
		kept, _ := l.InMemory(pod)
		switch known := cmp.Or(allocation.Pod.Namespace, kept.Pod.Namespace); {
		case known == "" || r.sees(known):
		case r.err != nil:
			return r.mustSee(known)
		default:
			return httpjson.Errorf(http.StatusForbidden,
				"%q may not see one of the pods by its UID: a role has to let it list the pods of its namespace",
				r.caller.GetName())
		}
	}
	return nil
}

func (r *reader) ask(namespace string) bool {
	if auth.Trusted(r.caller) {
		return true
	}
	err := r.o.Rights.MayRead(r.ctx, r.caller, namespace)
	if err != nil && !errors.As(err, new(*auth.DeniedError)) {
		r.err = err
	}
	return err == nil
}

// allOnly refuses a caller that may not see all namespaces.
func (r *reader) allOnly() error {
	if err := r.all(); err != nil {
		return httpjson.Errorf(statusOf(err), "%s", err)
	}
	r.known[""] = true
	return nil
}

// hideNode takes the names from the devices of a node that the caller may not see.
func (r *reader) hideNode(n *reserver.Node) {
	for i := range n.Devices {
		d := &n.Devices[i]
		if namespace, _, _ := strings.Cut(d.Reservation, "/"); d.Reservation != "" && !r.sees(namespace) {
			d.Reservation = ""
		}
		for k := range d.Pods {
			if !r.sees(d.Pods[k].Namespace) {
				d.Pods[k] = reserver.PodName{}
			}
		}
	}
}

// hideDRA takes the names from the claims that the caller may not see.
func (r *reader) hideDRA(devices []reserver.DRADevice) {
	for _, d := range devices {
		for i, claim := range d.Claims {
			if !r.sees(claim.Namespace) {
				d.Claims[i] = reserver.DRAClaim{State: claim.State}
			}
		}
	}
}

func (r *reader) hideAllocation(a *reserver.Allocation) {
	if !r.sees(a.Namespace) {
		*a = reserver.Allocation{
			Node: a.Node, State: a.State, Priority: a.Priority, Requests: a.Requests,
			HostPorts: a.HostPorts,
		}
	}
}

func (r *reader) hideSlot(s *reserver.NodeSlot) {
	if !r.sees(s.Namespace) {
		*s = reserver.NodeSlot{Priority: s.Priority, Preemptible: s.Preemptible, Policy: s.Policy, Slot: reserver.Slot{
			Node: s.Slot.Node, Requests: s.Slot.Requests, Free: s.Slot.Free, HostPorts: s.Slot.HostPorts,
			AvailableAt: s.Slot.AvailableAt, ExpiresAt: s.Slot.ExpiresAt, Overdue: s.Slot.Overdue,
		}}
	}
}

func (r *reader) hideHolders(holders []reserver.Holder) {
	for i, h := range holders {
		if !r.sees(h.Namespace) {
			holders[i] = reserver.Holder{State: h.State, Amount: h.Amount}
		}
	}
}

// hideRefusals takes out of the reasons of refusals what the caller may not see, in namespaces that it named itself.
func (r *reader) hideRefusals(d *reserve.Decision) {
	for i := range d.Refusals {
		refusal := &d.Refusals[i]
		said := &refusal.Rejection
		if len(said.Holders) == 0 || r.sees(said.Pod.Namespace) || refusal.Message != said.Message() {
			continue
		}
		bare := *said
		bare.Holders = nil
		d.Error = strings.ReplaceAll(d.Error, refusal.Message, bare.Message())
		refusal.Message = bare.Message()
	}
}

// newRejections are the refusals of a decision, as the caller may see them.
func (r *reader) newRejections(d *reserve.Decision) []reserver.Rejection {
	r.hideRefusals(d)
	return listOf(d.Refusals, func(said *reserve.Refusal) reserver.Rejection {
		rejection := newRejection(said.Reason, said.Message, &said.Rejection)
		r.hideHolders(rejection.Holders)
		return rejection
	})
}

// seesSlot reports whether the caller may see a slot.
func (r *reader) seesSlot(view *ledger.SlotView) bool { return r.sees(namespaceOf(view)) }
