package rest

import (
	"context"
	"errors"
	"net/http"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// An API is a Reserver for programs that have it in their own process. The
// requests go through the same checks and decisions as those that come by HTTP.
var _ reserver.Reserver = (*API)(nil)

// Reserve implements reserver.Reserver.
func (a *API) Reserve(ctx context.Context, r *reserver.Request) (*reserver.Answer, error) {
	return a.call(ctx, verbReserve, r)
}

// Unreserve implements reserver.Reserver.
func (a *API) Unreserve(ctx context.Context, r *reserver.Request) (*reserver.Answer, error) {
	return a.call(ctx, verbUnreserve, r)
}

// Revision implements reserver.Reserver.
func (a *API) Revision(context.Context) (uint64, error) {
	leave, err := a.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	return a.o.Ledger.Revision(), nil
}

// enter begins a call of this process. The error is a *reserver.UnavailableError; leave ends the call.
func (a *API) enter() (leave func(), err error) {
	leave, why := a.calls.enter()
	if why == "" {
		if why = a.o.Arbiter.Undecided(); why == "" {
			return leave, nil
		}
		leave()
	}
	return nil, &reserver.UnavailableError{Err: errors.New(why)}
}

// call decides on a request that comes from this process.
func (a *API) call(ctx context.Context, v verb, r *reserver.Request) (*reserver.Answer, error) {
	if err := ctx.Err(); err != nil {
		return nil, &reserver.UnavailableError{Err: err}
	}
	ctx = auth.Inside(ctx)
	leave, err := a.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	g, err := a.check(v, a.newGangRequest(v, r), auth.Name(ctx))
	if err != nil {
		return nil, goError(ctx, r, err)
	}
	answer, err := a.decideGang(ctx, g)
	switch {
	case err != nil:
		return nil, goError(ctx, r, err)
	case answer.Error != "":
		return answer, &reserver.RefusedError{Answer: answer}
	default:
		return answer, nil
	}
}

// goError turns the error of a request, as an HTTP client gets it, into the error for a Go program.
func goError(ctx context.Context, r *reserver.Request, err error) error {
	switch status := statusOf(err); {
	case status == http.StatusBadGateway:
		return &reserver.UnknownOutcomeError{RequestID: r.RequestID, Err: err}
	case ctx.Err() != nil && r.RequestID != "":
		return &reserver.UnknownOutcomeError{RequestID: r.RequestID, Err: ctx.Err()} // an equal one may be under way
	case ctx.Err() != nil:
		return &reserver.UnavailableError{Err: ctx.Err()}
	case status >= http.StatusInternalServerError:
		return &reserver.UnavailableError{Err: err}
	default:
		return &reserver.BadRequestError{Status: status, Message: err.Error()}
	}
}

// newGangRequest returns what decoding the request's JSON would return.
func (a *API) newGangRequest(v verb, r *reserver.Request) *gangRequest {
	req := &gangRequest{
		SchedulerName: r.SchedulerName, Nodes: r.Nodes, Mode: ledger.Mode(r.Mode), TTLSeconds: r.TTLSeconds,
		RequestID: r.RequestID, DryRun: r.DryRun, MinRevision: r.MinRevision, Durable: r.Durable,
		Name: r.Name, Namespace: r.Namespace, Reservation: r.Reservation,
		Pods: podList{table: a.o.Ledger.Table(), identityOnly: v == verbUnreserve},
	}
	if len(r.Pods) > MaxPods || len(r.Nodes) > MaxPods {
		req.Pods.err = badRequest("Pods has %d pods and Nodes %d names, the limit is %d: split the request",
			len(r.Pods), len(r.Nodes), MaxPods)
		return req
	}
	for i, pod := range r.Pods {
		if pod == nil {
			pod = new(v1.Pod) // which is refused for its missing name
		}
		req.Pods.add(i, incoming(pod))
	}
	return req
}

// incoming copies the parts of a pod that count. The copy shares nothing with the pod that is changed later: the pod
// may belong to an informer.
func incoming(pod *v1.Pod) *v1.Pod {
	in := &v1.Pod{Spec: *pod.Spec.DeepCopy()}
	in.Namespace, in.Name, in.UID = pod.Namespace, pod.Name, pod.UID
	in.Annotations = map[string]string{
		v1alpha1.ExtendedResourceClaimsAnnotation: pod.Annotations[v1alpha1.ExtendedResourceClaimsAnnotation],
	}
	return in
}

// calls keeps count of what goes on for this process, so that a stop can wait for it.
type calls struct {
	mu      sync.Mutex // guards stopped, and adding to group while a stop begins
	stopped bool
	group   sync.WaitGroup
}

// enter begins a call; why says why it must not. leave ends it.
func (c *calls) enter() (leave func(), why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, "the server has stopped"
	}
	c.group.Add(1)
	return c.group.Done, ""
}

// stop lets no more calls begin, and waits for the rest.
func (c *calls) stop() {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.group.Wait()
}
