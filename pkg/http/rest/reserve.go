package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/decide/reserve"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics/tracing"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// outcome is the answer to a gang, and what it granted.
type outcome struct {
	answer reserver.Answer
	// held is what is reserved according to the answer.
	held []ledger.Placement
	// transient: the next try may end otherwise, so it is not kept for repeats.
	transient bool
}

// retryAfter is when to ask a server again that is not ready, in seconds.
const retryAfter = "1"

// serveReserve serves POST /reserve or /unreserve: it reads a gang, decides on it once, and answers.
func (a *API) serveReserve(v verb) func(w http.ResponseWriter, r *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		g, err := a.readGang(w, r, v)
		if err != nil {
			return err
		}
		ctx, span := g.traced(r.Context())
		defer span.End()
		answer, err := a.decideGang(ctx, g)
		status := http.StatusOK
		if err != nil {
			// Clients of kube-globalreserve look at FailedPods whatever the status is.
			status = statusOf(err)
			failed := a.failAll(g, err.Error())
			answer = &failed
		}
		if status == http.StatusServiceUnavailable || status == http.StatusBadGateway {
			w.Header().Set("Retry-After", retryAfter)
		}
		httpjson.Write(w, status, answer)
		return nil
	}
}

// traced starts the span of a gang's request: that of a single pod is in the pod's trace.
func (g *asked) traced(ctx context.Context) (context.Context, trace.Span) {
	if len(g.Pods) == 1 {
		return tracing.Pod(ctx, string(g.verb), g.Pods[0].Ref)
	}
	return tracing.Gang(ctx, string(g.verb))
}

// statusOf is the one table from errors to statuses.
func statusOf(err error) int {
	var request *reserve.RequestError
	var known *httpjson.Error
	var undecided *gates.Error
	var denied *auth.DeniedError
	switch {
	case errors.As(err, &denied):
		return http.StatusForbidden
	case errors.As(err, &request) && request.Conflict:
		return http.StatusConflict
	case errors.As(err, &request):
		return http.StatusBadRequest
	case errors.As(err, &known):
		return known.Status
	case errors.As(err, new(*reserve.UnknownError)):
		return http.StatusBadGateway // 503 would say that nothing was done
	case errors.As(err, &undecided), errors.Is(err, auth.ErrUnreachable), errors.Is(err, context.Canceled),
		errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// decideGang decides on a gang once, and answers repeats.
func (a *API) decideGang(ctx context.Context, g *asked) (*reserver.Answer, error) {
	fresh := func() (outcome, error) {
		late, err := a.awaitRevision(ctx, g.minRevision)
		switch {
		case err != nil:
			return outcome{}, err
		case late != "":
			return outcome{answer: a.failAll(g, late), transient: true}, nil
		}
		if a.o.ReserveRefusal != "" && g.verb == verbReserve && !g.DryRun {
			return outcome{answer: a.failAll(g, a.o.ReserveRefusal), transient: true}, nil
		}
		ask := a.o.Reserve.Reserve
		if g.verb == verbUnreserve {
			ask = a.o.Reserve.Unreserve
		}
		d, err := ask(ctx, &g.Request)
		if err != nil {
			return outcome{}, err
		}
		if len(g.Pods) > 1 {
			tracing.Members(ctx, string(g.verb), d.Placements)
		}
		out := outcome{answer: newAnswer(d, a.readerOf(ctx)), held: d.Kept, transient: d.Transient}
		if g.verb == verbReserve && d.Error == "" {
			out.answer.Requests, out.answer.Warnings = a.counted(g, d)
			if d.InMemory != "" {
				out.answer.Warnings = append(out.answer.Warnings, notDurable+d.InMemory)
			}
		}
		return out, nil
	}
	if g.RequestID == "" {
		out, err := fresh()
		return g.warned(out.answer), err
	}
	out, remembered, err := a.replays.do(ctx, g, a.o.Clock, fresh)
	if err == nil && remembered > 0 {
		out.answer = a.repeat(g, &out, remembered)
	}
	return g.warned(out.answer), err
}

func newAnswer(d *reserve.Decision, who *reader) reserver.Answer {
	rejections := who.newRejections(d)
	answer := reserver.Answer{
		FailedPods: listOf(d.Failed, func(pod *ledger.PodRef) string { return pod.Name }), Error: d.Error,
		Revision: d.Revision, ExpiresAt: utc(d.ExpiresAt), Durable: d.Durable, Rejections: rejections,
	}
	if d.Reservation.Name != "" {
		answer.Reservation = d.Reservation.String()
	}
	return answer
}

// failAll refuses every pod of a gang, for a reason that does not lie with single pods.
func (a *API) failAll(g *asked, why string) reserver.Answer {
	return reserver.Answer{
		FailedPods: listOf(g.Pods, func(pod *reserve.Pod) string { return pod.Ref.Name }), Error: why,
		Revision: a.o.Ledger.Revision(), Durable: g.Durable,
	}
}

// repeat returns the answer to a repeated request. It is the first answer, unless that
// would say that capacity is kept which is not. A repeated refusal says that it is one.
func (a *API) repeat(g *asked, first *outcome, remembered time.Duration) reserver.Answer {
	var lost []string
	for i := range first.held {
		h := &first.held[i]
		if !a.o.Reserve.Has(h.Pod, h.Node) {
			lost = append(lost, h.Pod.Name)
		}
	}
	if len(lost) == 0 {
		answer := first.answer
		if answer.Error != "" {
			answer.Error += fmt.Sprintf("; this repeats the answer to RequestID \"%s\", which is remembered for %s more: "+
				"to have it decided anew, send a new RequestID", httpjson.Clip(g.RequestID), upToSeconds(remembered))
		}
		return answer
	}
	return reserver.Answer{
		FailedPods: lost, Durable: first.answer.Durable,
		Error: fmt.Sprintf("this repeats RequestID \"%s\", granted at revision %d, but the capacity of %d of its pods has "+
			"been given up since (TTL, /unreserve, or the pod is gone): reserve again with a new RequestID",
			httpjson.Clip(g.RequestID), first.answer.Revision, len(lost)),
		Revision: a.o.Ledger.Revision(),
	}
}

// upToSeconds rounds up, so that a client that waits until then finds the end over.
func upToSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// awaitRevision waits, not long, until the ledger is at revision or beyond. late
// is why that did not happen. The error is errClientGone.
func (a *API) awaitRevision(ctx context.Context, revision uint64) (late string, err error) {
	if a.o.Ledger.Revision() >= revision {
		return "", nil
	}
	wake, cancel := a.o.Ledger.Subscribe()
	defer cancel()
	timer := time.NewTimer(a.revisionWait)
	defer timer.Stop()
	for a.o.Ledger.Revision() < revision {
		select {
		case <-wake:
		case <-ctx.Done():
			return "", errClientGone
		case <-a.o.Serving.Done():
			return "the server is stopping: send the request again", nil
		case <-timer.C:
			return fmt.Sprintf("nothing was done: MinRevision is %d and the ledger is at revision %d still after %s; "+
				"try again, or send the Revision of an answer of this server",
				revision, a.o.Ledger.Revision(), a.revisionWait), nil
		}
	}
	return "", nil
}
