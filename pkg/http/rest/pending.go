package rest

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// maxPending is how many pods one answer has at most. It is bounded because all nodes are looked at for each pod that
// fits nowhere.
const maxPending = 500

// pending serves GET /v1/pending: the pods that were refused and have no node since, of the namespaces that the caller
// may see.
func (a *API) pending(q *query) (any, error) {
	limit, err := q.limit()
	if err != nil {
		return nil, err
	}
	limit = min(limit, maxPending)
	waits := decide.WaitsFor(q.Get("waits"))
	if waits != "" && !slices.Contains(decide.WaitsForAll, waits) {
		return nil, badRequest("waits \"%s\" is not known: send one of %v", httpjson.Clip(string(waits)), decide.WaitsForAll)
	}
	answer := reserver.PendingAnswer{Revision: a.o.Ledger.Revision(), Pods: []reserver.PendingPod{}}
	waiters := a.o.Waiting.Waiters(func(namespace string) bool {
		return q.has("namespace", namespace) && q.sees(namespace)
	})
	waiters = slices.DeleteFunc(waiters, func(w requeue.Waiter) bool {
		return !q.has("scheduler", w.Last.Scheduler) || !q.isLater(&w)
	})
	if len(waiters) > limit {
		waiters = waiters[:limit]
		last := &waiters[limit-1]
		answer.Continue = strconv.FormatInt(last.Since.UnixNano(), 10) + "/" + string(last.Last.Rejection.Pod.UID)
	}
	listed := slices.DeleteFunc(a.o.Arbiter.ExplainWaiting(waiters),
		func(w decide.Waiting) bool { return waits != "" && w.For != waits })
	for i := range listed {
		answer.Pods = append(answer.Pods, a.newPendingPod(q, &listed[i]))
	}
	answer.Needs = a.needs(q, listed)
	return &answer, nil
}

// isLater reports whether a pod comes after that of ?continue=.
func (q *query) isLater(w *requeue.Waiter) bool {
	since, uid, _ := strings.Cut(q.Get("continue"), "/")
	at, _ := strconv.ParseInt(since, 10, 64)
	return cmp.Or(w.Since.Compare(time.Unix(0, at)), cmp.Compare(string(w.Last.Rejection.Pod.UID), uid)) > 0
}

func (a *API) newPendingPod(q *query, w *decide.Waiting) reserver.PendingPod {
	pod := reserver.PendingPod{
		Since: w.Since.UTC(), LastRefused: w.Last.At.UTC(), Times: w.Times, Path: w.Last.Path, LastReason: w.Last.Reason,
		WaitsFor: string(w.For), Explanation: *a.newExplainAnswer(w.Explanation),
	}
	if closest := pod.Explanation.Closest; closest != nil {
		q.hideHolders(closest.Holders)
	}
	return pod
}
