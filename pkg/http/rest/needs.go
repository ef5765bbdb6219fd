package rest

import (
	"encoding/json"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// needs returns the sizes of the nodes that are waited for: by single pods, by all pods of a gang that have no
// node, and, on the first page, by the first reservations that fit no node.
func (a *API) needs(q *query, pods []decide.Waiting) []reserver.NodeNeed {
	list := newNeedList(a)
	told := map[kinds.Key]bool{}
	for i := range pods {
		e := pods[i].Explanation
		switch {
		case !needsNode(&pods[i]):
		case e.Gang == nil:
			list.add(&reserver.NodeNeed{Namespace: e.Namespace, Pod: e.Pod}, e.Request)
		default: // also for those of its pods that nobody has asked about yet
			gang := kinds.Key{Kind: e.Gang.Kind, Namespace: e.Gang.Namespace, Name: e.Gang.Name}
			if told[gang] {
				continue
			}
			told[gang] = true
			for _, member := range a.o.Arbiter.PendingMembers(gang) {
				list.add(&reserver.NodeNeed{Namespace: gang.Namespace, Gang: gang.Name}, member.Request)
			}
		}
	}
	if q.Get("continue") != "" {
		return list.needs
	}
	seen := 0
	for _, p := range a.o.PendingReservations() {
		if !p.NoNodeFits || !q.has("namespace", p.Reservation.Namespace) ||
			!q.has("scheduler", p.Reservation.Spec.SchedulerName) || !q.sees(p.Reservation.Namespace) {
			continue
		}
		if seen++; seen > maxPending {
			break
		}
		list.addSlots(&p)
	}
	waits := decide.WaitsFor(q.Get("waits"))
	return slices.DeleteFunc(list.needs, func(n reserver.NodeNeed) bool {
		return n.Reservation != "" && waits != "" && waits != waitsFor(&n)
	})
}

// waitsFor is what a reservation waits for that needs a node.
func waitsFor(n *reserver.NodeNeed) decide.WaitsFor {
	if n.NewNode {
		return decide.ForNode
	}
	return decide.ForCapacity
}

// needsNode reports whether a node would help a pod.
func needsNode(w *decide.Waiting) bool {
	switch w.For {
	case decide.ForNode, decide.ForCapacity, decide.ForDevices:
		return true
	default:
		return w.For == decide.ForGang && w.Last.Rejection.Reason == ledger.GangUnplaced
	}
}

// needList lists the needs. Equal needs are one entry with a count.
type needList struct {
	api   *API
	needs []reserver.NodeNeed
	at    map[string]int // where in needs; those of pods alone are not in it
}

func newNeedList(a *API) *needList {
	return &needList{api: a, needs: []reserver.NodeNeed{}, at: map[string]int{}}
}

// add adds a need, whose amounts are filled in, or counts it in one that is the same.
func (l *needList) add(n *reserver.NodeNeed, request *resources.Request) {
	n.Requests = requestAmounts(l.api.o.Ledger.Table(), request)
	if n.Pod == "" {
		key, _ := json.Marshal(n) // which writes maps in order
		if at, ok := l.at[string(key)]; ok {
			l.needs[at].Count++
			return
		}
		l.at[string(key)] = len(l.needs)
	}
	asked := &ledger.Placement{Request: request, NoDRA: n.Pod == ""} // nothing of DRA is kept for what is reserved
	n.Count, n.NewNode = 1, !l.api.o.Ledger.FitsEmpty(asked)
	l.needs = append(l.needs, *n)
}

// addSlots adds what the slots of a reservation need whose nodes the server chooses.
func (l *needList) addSlots(p *reservations.Pending) {
	rsv := p.Reservation
	slots, err := convert.Slots(l.api.o.Ledger.Table(), rsv)
	if err != nil {
		return // it fails
	}
	for i := range slots {
		if slots[i].Node == "" {
			l.add(&reserver.NodeNeed{
				Namespace: rsv.Namespace, Reservation: rsv.Name,
				NodeSelector: rsv.Spec.Slots[i].NodeSelector,
			}, slots[i].Request)
		}
	}
}
