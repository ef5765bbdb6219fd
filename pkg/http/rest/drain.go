package rest

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/drain"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// maxDrained bounds the nodes of one plan: each is a question to the API server.
const maxDrained = 500

// drainRequest is the body of POST /v1/drain/plan: a reserver.DrainPlanRequest.
type drainRequest struct {
	Nodes, Pods, SkipNamespaces few[string]
	Drain                       string
}

// planDrain serves POST /v1/drain/plan. It names the pods of nodes, and so is for those who may see all pods, and may
// cordon nodes.
func (a *API) planDrain(w http.ResponseWriter, r *http.Request) error {
	req := drainRequest{}
	release, err := a.o.Intake.Decode(w, r, maxBody, &req, json.RejectUnknownMembers(true))
	defer release()
	if err != nil {
		return err
	}
	if err := a.o.Rights.MayDrain(r.Context(), auth.Of(r.Context())); err != nil {
		return httpjson.Errorf(statusOf(err), "%s", err)
	}
	if err := a.readerOf(r.Context()).allOnly(); err != nil {
		return err
	}
	if err := req.check(); err != nil {
		return err
	}
	choose, err := a.o.Drains.Plan(r.Context(), &reserver.DrainPlanRequest{
		Nodes: req.Nodes, Pods: req.Pods, SkipNamespaces: req.SkipNamespaces, Drain: req.Drain,
	})
	switch {
	case errors.Is(err, drain.ErrUnknownNode):
		return httpjson.Errorf(http.StatusNotFound, "%s: kubectl get nodes lists those that are", err)
	case err != nil:
		return httpjson.Errorf(statusOf(err), "%s", err)
	}
	return a.answer(w, r, func() (any, error) { return newDrainPlan(a.o.Ledger.Table(), choose()), nil })
}

func (req *drainRequest) check() error {
	if n := len(req.Nodes); n == 0 || n > maxDrained {
		return badRequest("Nodes has %d names: send those of 1 to %d nodes", n, maxDrained)
	}
	seen := map[string]bool{}
	for i, node := range req.Nodes {
		if problem := badName(node); problem != "" {
			return badRequest("Nodes[%d] \"%s\": %s", i, httpjson.Clip(node), problem)
		}
		if seen[node] {
			return badRequest("Nodes[%d] is \"%s\" again: send every node once", i, httpjson.Clip(node))
		}
		seen[node] = true
	}
	for i, namespace := range req.SkipNamespaces {
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			return badRequest("SkipNamespaces[%d] \"%s\": %s", i, httpjson.Clip(namespace), problems[0])
		}
	}
	if problem := badName(req.Drain); req.Drain != "" && problem != "" {
		return badRequest("Drain \"%s\": %s", httpjson.Clip(req.Drain), problem)
	}
	return nil
}

// maxDrainOwners bounds the Reservations of drains in an answer, and maxDrainText, in bytes, each of their annotations:
// anybody may write these on Reservations of their own.
const maxDrainOwners, maxDrainText = 1_000, 4_000

// drains are the drains that go on, as far as the caller sees them. One is known by its name and its nodes.
func (a *API) drains(q *query) (list []reserver.Drain) {
	owners, at := 0, map[[2]string]int{}
	for _, d := range a.o.DrainReservations() {
		rsv := d.Reservation
		if !q.has("namespace", rsv.Namespace) || !q.sees(rsv.Namespace) || owners == maxDrainOwners {
			continue
		}
		owners++
		key := [2]string{rsv.Labels[v1alpha1.DrainLabel], rsv.Annotations[v1alpha1.DrainedNodesAnnotation]}
		if _, ok := at[key]; !ok {
			at[key] = len(list)
			nodes := strings.FieldsFunc(informer.Clip(key[1], maxDrainText), func(c rune) bool { return c == ',' })
			list = append(list, reserver.Drain{Name: key[0], Nodes: nodes})
		}
		of := reserver.DrainOwner{
			Namespace: rsv.Namespace, Reservation: rsv.Name, Done: d.Used, Left: d.Unused,
			Owner:    informer.Clip(rsv.Annotations[v1alpha1.DrainedOwnerAnnotation], maxDrainText),
			WaitsFor: informer.Clip(rsv.Annotations[v1alpha1.DrainWaitsForAnnotation], maxDrainText),
		}
		switch d.Phase {
		case v1alpha1.ReservationAvailable, v1alpha1.ReservationSucceeded:
		default:
			of.WaitsFor = fmt.Sprintf("its places are not kept (%s): %s", d.Phase, d.Message)
		}
		list[at[key]].Owners = append(list[at[key]].Owners, of)
	}
	slices.SortFunc(list, func(a, b reserver.Drain) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), slices.Compare(a.Nodes, b.Nodes))
	})
	return list
}

func newDrainPlan(t *resources.Table, plan *drain.Plan) *reserver.DrainPlanAnswer {
	answer := &reserver.DrainPlanAnswer{Revision: plan.Revision, Pods: []reserver.DrainPod{}}
	for _, pod := range plan.Pods {
		if pod.Action == reserver.DrainMove && pod.To == "" {
			answer.Unplaced++
		}
		asks := pod.Next.Request
		pod.Requests, pod.HostPorts = requestAmounts(t, asks), hostPortNames(asks)
		answer.Pods = append(answer.Pods, pod.DrainPod)
	}
	return answer
}
