package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// Client asks a server. Make one with New; safe for concurrent use.
type Client struct {
	options Options
	base    *url.URL
	http    *http.Client
	// reached: the server has answered once.
	reached atomic.Bool
}

var _ reserver.Reserver = (*Client)(nil)

// New returns a client, and connects to nothing yet.
func New(o Options) (*Client, error) {
	base, err := o.validate()
	if err != nil {
		return nil, err
	}
	o.setDefaults()
	httpClient, err := o.httpClient()
	if err != nil {
		return nil, err
	}
	return &Client{options: o, base: base, http: httpClient}, nil
}

// Close closes connections that are kept for the next request. The client can still be used.
func (c *Client) Close() { utilnet.CloseIdleConnectionsFor(c.http.Transport) }

// Response gets a path once, such as /readyz, and returns the answer, whatever its status. The caller closes its body.
func (c *Client) Response(ctx context.Context, path string) (*http.Response, error) {
	target, query, _ := strings.Cut(path, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, &reserver.BadRequestError{Message: err.Error()}
	}
	get, err := c.newRequest(ctx, &request{method: http.MethodGet, path: target, query: values}, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(get)
	if err != nil {
		return nil, c.unreached(err)
	}
	return response, nil
}

// Reserve implements reserver.Reserver.
func (c *Client) Reserve(ctx context.Context, r *reserver.Request) (*reserver.Answer, error) {
	return c.decide(ctx, "/reserve", r)
}

// Unreserve implements reserver.Reserver.
func (c *Client) Unreserve(ctx context.Context, r *reserver.Request) (*reserver.Answer, error) {
	return c.decide(ctx, "/unreserve", r)
}

func (c *Client) decide(ctx context.Context, path string, r *reserver.Request) (*reserver.Answer, error) {
	sent := *r
	sent.Pods = withoutBallast(r.Pods)
	if sent.RequestID == "" {
		sent.RequestID = rand.Text()
	}
	answer, err := call(ctx, c, &request{
		method: http.MethodPost, path: path, body: &sent, id: sent.RequestID,
		writes: true,
	},
		func(answer *reserver.Answer) error { return decided(answer, sent.RequestID) })
	switch {
	case err != nil:
		return nil, err
	case answer.Error != "":
		return answer, &reserver.RefusedError{Answer: answer}
	default:
		return answer, nil
	}
}

// decided makes sure that the ledger has decided, which the revision of every decision shows:
// an answer of nothing but defaults is no grant.
func decided(answer *reserver.Answer, id string) error {
	switch {
	case answer.Revision != 0:
		return nil
	case answer.Error != "":
		return &reserver.UnavailableError{Err: errors.New(answer.Error)}
	default:
		return &reserver.UnknownOutcomeError{
			RequestID: id,
			Err:       errors.New("the answer has no Revision, so it is not one of GlobalReserve"),
		}
	}
}

// withoutBallast leaves out of the pods what is long and never asked for.
func withoutBallast(pods []*v1.Pod) []*v1.Pod {
	light := slices.Clone(pods)
	for i, pod := range light {
		if pod != nil {
			slim := *pod // the caller's own stays as it is
			slim.ManagedFields, slim.Status = nil, v1.PodStatus{}
			light[i] = &slim
		}
	}
	return light
}

// Revision implements reserver.Reserver.
func (c *Client) Revision(ctx context.Context) (uint64, error) {
	answer, err := Get[reserver.RevisionAnswer](ctx, c, "/v1/revision", nil)
	if err != nil {
		return 0, err
	}
	return answer.Revision, nil
}

// Bind asks the server to bind a pod. The server makes sure of the capacity, which the pod may have
// from a Reserve or not, and binds. A repeat of a bind that succeeded succeeds. Where
// the pod was not bound the error is a *reserver.BindError.
func (c *Client) Bind(ctx context.Context, args *extenderv1.ExtenderBindingArgs) error {
	_, err := call(ctx, c, &request{method: http.MethodPost, path: "/bind", body: args, writes: true}, bindError)
	return err
}

// bindAnswer is a reserver.BindAnswer that distinguishes an empty Error from none.
type bindAnswer struct {
	Error *string
	reserver.BindAnswer
}

// bindError is the error of a bind's answer, if it has one.
func bindError(answer *bindAnswer) error {
	switch {
	case answer.Error == nil:
		return &reserver.UnknownOutcomeError{Err: errors.New("the answer to /bind has no Error, so it is not one of " +
			"GlobalReserve")}
	case *answer.Error == "":
		return nil
	default:
		answer.BindAnswer.Error = *answer.Error
		return reserver.NewBindError(&answer.BindAnswer)
	}
}

// Explain says why a pod is pending, or where it is. A pod that is not known is a
// *reserver.BadRequestError with status 404.
func (c *Client) Explain(ctx context.Context, namespace, pod string) (*reserver.ExplainAnswer, error) {
	return Get[reserver.ExplainAnswer](ctx, c, "/v1/explain", url.Values{"namespace": {namespace}, "pod": {pod}})
}

// Gangs returns the gangs of a namespace that are known, or of all that the caller may see where it is empty.
func (c *Client) Gangs(ctx context.Context, namespace string) (*reserver.GangsAnswer, error) {
	query := url.Values{}
	if namespace != "" {
		query.Set("namespace", namespace)
	}
	return Get[reserver.GangsAnswer](ctx, c, "/v1/gangs", query)
}

// Refusals returns the refusals that the server remembers after one of a number: 0 for all of them, or the After of an
// answer of the same Instance.
func (c *Client) Refusals(ctx context.Context, after uint64) (*reserver.RefusalsAnswer, error) {
	return Get[reserver.RefusalsAnswer](ctx, c, "/v1/refusals", url.Values{"after": {strconv.FormatUint(after, 10)}})
}

// Pending returns pods of a namespace that were refused and have no node since, or of all that the caller may see where
// it is empty: those that wait longest first, a page of them. next is the Continue of the page before, or empty.
func (c *Client) Pending(ctx context.Context, namespace, next string) (*reserver.PendingAnswer, error) {
	query := url.Values{}
	for name, value := range map[string]string{"namespace": namespace, "continue": next} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return Get[reserver.PendingAnswer](ctx, c, "/v1/pending", query)
}

// Nodes returns the account of all nodes: those of each page of the answer as they were then. Revision is the first
// page's.
func (c *Client) Nodes(ctx context.Context) (*reserver.NodesAnswer, error) {
	return List(ctx, c, "/v1/nodes", nil, func(a *reserver.NodesAnswer) (*[]reserver.Node,
		*string,
	) {
		return &a.Nodes, &a.Continue
	})
}

// Node returns the account of one node, with the allocations and slots there. A node that is not known is a
// *reserver.BadRequestError with status 404.
func (c *Client) Node(ctx context.Context, name string) (*reserver.NodeAnswer, error) {
	return Get[reserver.NodeAnswer](ctx, c, "/v1/nodes/"+name, nil)
}

// Allocations returns the allocations that the caller may see, of those that query selects: namespace, pod, node,
// scheduler and state, as /openapi.yaml says; nil selects all. Pages are as in Nodes.
func (c *Client) Allocations(ctx context.Context, query url.Values) (*reserver.AllocationsAnswer, error) {
	return List(ctx, c, "/v1/allocations", query, func(a *reserver.AllocationsAnswer) (*[]reserver.Allocation, *string) {
		return &a.Allocations, &a.Continue
	})
}

// Reservations returns the reservations that the caller may see, of those that query selects: namespace, name, node,
// scheduler and pod, as /openapi.yaml says; nil selects all. Pages are as in Nodes.
func (c *Client) Reservations(ctx context.Context, query url.Values) (*reserver.ReservationsAnswer, error) {
	return List(ctx, c, "/v1/reservations", query, func(a *reserver.ReservationsAnswer) (*[]reserver.Reservation,
		*string,
	) {
		return &a.Reservations, &a.Continue
	})
}

// List reads all pages of a list that has no method of its own here. of returns what an answer lists, and where the
// next page begins; all else is the first page's.
func List[A, T any](ctx context.Context, c *Client, path string, query url.Values,
	of func(*A) (items *[]T, next *string),
) (*A, error) {
	all, err := Get[A](ctx, c, path, query)
	if err != nil {
		return nil, err
	}
	items, next := of(all)
	for *next != "" {
		more := url.Values{}
		maps.Copy(more, query)
		more.Set("continue", *next) // also where query says where to begin
		page, err := Get[A](ctx, c, path, more)
		if err != nil {
			return nil, err
		}
		added, after := of(page)
		if *after == *next {
			return nil, &reserver.UnavailableError{
				Permanent: true, Err: fmt.Errorf("the answer to %s is followed by itself: %s", path, quote([]byte(*after))),
			}
		}
		*items, *next = append(*items, *added...), *after
	}
	return all, nil
}

// WhatIf reports what Reserve would answer, and proposes nodes where the request has
// none. It changes nothing; an answer that is no is not an error here.
func (c *Client) WhatIf(ctx context.Context, r *reserver.WhatIfRequest) (*reserver.WhatIfAnswer, error) {
	sent := *r
	sent.Pods = withoutBallast(r.Pods)
	return call[reserver.WhatIfAnswer](ctx, c, &request{method: http.MethodPost, path: "/v1/whatif", body: &sent}, nil)
}

// PlanDrain reports where the pods of nodes would go, if the nodes were drained. It changes nothing.
func (c *Client) PlanDrain(ctx context.Context, r *reserver.DrainPlanRequest) (*reserver.DrainPlanAnswer, error) {
	return call[reserver.DrainPlanAnswer](ctx, c, &request{method: http.MethodPost, path: "/v1/drain/plan", body: r}, nil)
}

// Get reads the answer of a route that has no method of its own here.
func Get[A any](ctx context.Context, c *Client, path string, query url.Values) (*A, error) {
	return call[A](ctx, c, &request{method: http.MethodGet, path: path, query: query}, nil)
}
