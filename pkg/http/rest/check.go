package rest

import (
	"cmp"
	"net/http"
	"strings"
	"time"
	"unicode"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/globalreserve/globalreserve/pkg/decide/reserve"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

func badRequest(format string, args ...any) error {
	return httpjson.Errorf(http.StatusBadRequest, format, args...)
}

// check turns a decoded request into the gang of a caller, or says what is wrong with it.
func (a *API) check(v verb, req *gangRequest, caller string) (*asked, error) {
	steps := []func(verb, *gangRequest) error{
		checkVerbFields, checkHeader, checkPods, checkNodes, checkWithout,
	}
	for _, step := range steps {
		if err := step(v, req); err != nil {
			return nil, err
		}
	}
	g := &asked{
		verb: v, minRevision: req.MinRevision, claims: req.Pods.claims, warnings: req.Pods.warnings,
		without: listOf(req.Without, goneRef), Request: reserve.Request{
			Scheduler: req.SchedulerName, Caller: caller, RequestID: req.RequestID, Mode: cmp.Or(req.Mode, ledger.AllOrNothing),
			DryRun: req.DryRun || v == verbWhatIf, Pods: make([]reserve.Pod, len(req.Pods.entries)),
		},
	}
	for i := range req.Pods.entries {
		g.Pods[i] = req.Pods.entries[i].Pod
		if len(req.Nodes) > 0 {
			g.Pods[i].Node = req.Nodes[i]
		}
	}
	var err error
	switch v {
	case verbUnreserve:
		g.Reservation, err = parseReservation(req)
	case verbReserve:
		g.TTL = time.Duration(req.TTLSeconds) * time.Second
		err = a.checkDurable(g, req)
	}
	if err != nil {
		return nil, err
	}
	if g.RequestID != "" || g.Durable {
		g.Fingerprint = fingerprint(g, a.o.Ledger.Table())
	}
	return g, nil
}

// checkVerbFields refuses fields that mean nothing to the verb.
func checkVerbFields(v verb, req *gangRequest) error {
	refuse := func(name, instead string) error {
		return badRequest("%s does not apply to this request: %s", name, instead)
	}
	if v != verbWhatIf && len(req.Without) > 0 {
		return refuse("Without", "ask POST /v1/whatif what would be if pods were gone")
	}
	if v != verbUnreserve && req.Reservation != "" {
		return refuse("Reservation", "it is what an /unreserve gives back; a /reserve names its reservation by Name")
	}
	if v != verbReserve && req.Name+req.Namespace != "" {
		return refuse("Name, as Namespace,",
			"they are of a durable /reserve; an /unreserve sends Reservation: \"namespace/name\"")
	}
	if v != verbUnreserve {
		return nil
	}
	switch {
	case req.DryRun:
		return refuse("DryRun", "an /unreserve is never tried out; GET /v1/allocations shows what there is to give back")
	case req.Mode != "":
		return refuse("Mode", "every pod is given back for itself")
	case req.TTLSeconds != 0:
		return refuse("TTLSeconds", "leave it out")
	}
	return nil
}

func checkHeader(v verb, req *gangRequest) error {
	switch {
	case req.SchedulerName == "" && v != verbWhatIf:
		return badRequest("SchedulerName is missing: send the name of the scheduler that asks")
	case len(req.SchedulerName) > maxSchedulerNameLength || strings.ContainsFunc(req.SchedulerName, notPrintable):
		return badRequest("SchedulerName \"%s\" is longer than %d bytes or has unprintable characters",
			httpjson.Clip(req.SchedulerName), maxSchedulerNameLength)
	case req.Mode != "" && req.Mode != ledger.AllOrNothing && req.Mode != ledger.Partial:
		return badRequest("Mode \"%s\" is not known: send \"AllOrNothing\" or \"Partial\"", httpjson.Clip(string(req.Mode)))
	case req.TTLSeconds < 0:
		return badRequest("TTLSeconds is %d: send a number of seconds above 0, or leave it out for the default",
			req.TTLSeconds)
	case req.TTLSeconds > maxTTLSeconds:
		return badRequest("TTLSeconds is %d, more than ten years: send a smaller number of seconds", req.TTLSeconds)
	case len(req.RequestID) > maxRequestIDLength || !isPrintable(req.RequestID):
		return badRequest("RequestID \"%s\" is longer than %d bytes or has unprintable characters",
			httpjson.Clip(req.RequestID), maxRequestIDLength)
	}
	return nil
}

// notPrintable agrees with the schema of Reservation, which has the scheduler's name.
func notPrintable(r rune) bool { return !unicode.IsPrint(r) }

func checkPods(v verb, req *gangRequest) error {
	if req.Pods.err != nil {
		return req.Pods.err
	}
	pods := req.Pods.entries
	if len(pods) == 0 && v == verbUnreserve && req.Reservation != "" {
		return nil
	}
	if len(pods) == 0 {
		return badRequest("Pods is empty: send at least one pod")
	}
	type name struct{ namespace, name string }
	names := make(map[name]int, len(pods))
	uids := make(map[types.UID]int, len(pods))
	for i := range pods {
		ref := pods[i].Ref
		key := name{ref.Namespace, ref.Name}
		if first, twice := names[key]; twice {
			return badRequest("Pods[%d] is %s, as is Pods[%d]: send every pod once", i, ref, first)
		}
		names[key] = i
		if ref.UID == "" {
			continue
		}
		if first, twice := uids[ref.UID]; twice {
			return badRequest("Pods[%d] has the metadata.uid of Pods[%d]: send every pod once, with its own UID", i, first)
		}
		uids[ref.UID] = i
	}
	return nil
}

func checkNodes(v verb, req *gangRequest) error {
	pods := req.Pods.entries
	if len(req.Nodes) == 0 && v != verbReserve {
		if v == verbWhatIf && len(pods) > maxProposals {
			return badRequest("Pods has %d pods, the limit without Nodes is %d: name the nodes, or send fewer pods",
				len(pods), maxProposals)
		}
		return nil
	}
	if len(req.Nodes) != len(pods) {
		return badRequest("Nodes has %d names for %d pods: send one node name per pod, in the same order",
			len(req.Nodes), len(pods))
	}
	for i, node := range req.Nodes {
		if problem := badName(node); problem != "" {
			return badRequest("Nodes[%d] \"%s\": %s", i, httpjson.Clip(node), problem)
		}
		if on := pods[i].nodeName; on != "" && on != node && v == verbReserve {
			return badRequest("Pods[%d] says in spec.nodeName that it is on node \"%s\", and Nodes[%d] is \"%s\": they must "+
				"be the same",
				i, httpjson.Clip(on), i, node)
		}
	}
	return nil
}

func checkWithout(_ verb, req *gangRequest) error {
	for i := range req.Without {
		gone := &req.Without[i]
		if gone.UID != "" && gone.Name == "" {
			continue
		}
		if err := checkRef(goneRef(gone)); err != nil {
			return badRequest("Without[%d]: %s", i, err)
		}
	}
	return nil
}

func goneRef(p *reserver.GonePod) ledger.PodRef {
	return ledger.PodRef{Namespace: cmp.Or(p.Namespace, v1.NamespaceDefault), Name: p.Name, UID: types.UID(p.UID)}
}

// checkDurable finds out whether a /reserve is durable, and refuses fields that mean nothing then.
func (a *API) checkDurable(g *asked, req *gangRequest) error {
	if req.Durable != nil {
		g.Durable, g.inMemory = *req.Durable, !*req.Durable
	} else {
		g.Durable, g.OrInMemory = a.o.Reserve.Durable(), req.Name+req.Namespace == ""
	}
	if !g.Durable {
		if req.Name+req.Namespace != "" {
			return badRequest("Name and Namespace are of durable reservations, and this one is kept in memory: " +
				"send \"Durable\": true, or leave them out")
		}
		return nil
	}
	if problem := badName(req.Name); req.Name != "" && problem != "" {
		return badRequest("Name \"%s\": %s", httpjson.Clip(req.Name), problem)
	}
	g.Name = req.Name
	for i := range g.Pods {
		if in := g.Pods[i].Ref.Namespace; req.Namespace != "" && req.Namespace != in {
			return badRequest("Namespace is \"%s\" and Pods[%d] is in \"%s\": a reservation is in the namespace of its pods; "+
				"leave Namespace out",
				httpjson.Clip(req.Namespace), i, in)
		}
	}
	return nil
}

// parseReservation reads what an /unreserve gives back instead of pods.
func parseReservation(req *gangRequest) (types.NamespacedName, error) {
	var none types.NamespacedName
	if req.Reservation == "" {
		return none, nil
	}
	if len(req.Pods.entries) > 0 {
		return none, badRequest(
			"Pods and Reservation are both given: send Reservation to give it back whole, or Pods to give back theirs")
	}
	namespace, name, ok := strings.Cut(req.Reservation, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || badName(name) != "" {
		return none,
			badRequest("Reservation \"%s\" is not of the form namespace/name: send the Reservation of the answer to /reserve",
				httpjson.Clip(req.Reservation))
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}
