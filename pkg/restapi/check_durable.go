package restapi

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
)

// durableSchedulers are the names the schema of Reservation takes.
var durableSchedulers = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

const inMemoryInstead = `, or send "Durable": false for a reservation in memory, which ends with this server`

// checkDurable finds out whether a /reserve is durable, and refuses what no
// Reservation object can keep.
func (a *API) checkDurable(g *group, req *groupRequest) error {
	if req.Durable != nil {
		g.durable = *req.Durable
	} else {
		g.durable = a.durableByDefault()
	}
	if !g.durable {
		if req.Name+req.Namespace != "" {
			return badRequest("Name and Namespace are of durable reservations, and this one is kept in memory: " +
				"send \"Durable\": true, or leave them out")
		}
		return nil
	}
	if problem := badName(req.Name); req.Name != "" && problem != "" {
		return badRequest("Name \"%s\": %s", httpjson.Clip(req.Name), problem)
	}
	g.name = req.Name
	if len(g.pods) > v1alpha1.MaxSlots {
		return badRequest("Pods has %d pods, and a durable reservation takes at most %d, which is one object with a slot per pod: "+
			"split the group%s", len(g.pods), v1alpha1.MaxSlots, inMemoryInstead)
	}
	if !durableSchedulers.MatchString(g.scheduler) {
		return badRequest("SchedulerName \"%s\" cannot be written to a Reservation object: "+
			"use lower-case letters, digits, '-' and '.'%s", httpjson.Clip(g.scheduler), inMemoryInstead)
	}
	return checkNamespaces(g, req.Namespace)
}

// checkNamespaces refuses a group that is not in one namespace: an object is in
// one, and its slots are for pods of that one only.
func checkNamespaces(g *group, want string) error {
	first := g.pods[0].ref.Namespace
	for i := range g.pods {
		if namespace := g.pods[i].ref.Namespace; namespace != first {
			return badRequest("Pods[%d] is in namespace \"%s\" and Pods[0] in \"%s\", but a durable reservation is one object in one namespace: "+
				"send one request per namespace%s", i, namespace, first, inMemoryInstead)
		}
	}
	if want != "" && want != first {
		return badRequest("Namespace is \"%s\" and the pods are in \"%s\": a reservation is in the namespace of its pods; leave Namespace out",
			httpjson.Clip(want), first)
	}
	return nil
}

// durableByDefault reports whether a request that does not say is durable.
func (a *API) durableByDefault() bool { return a.store != nil && a.durable() }

// parseReservation reads what an /unreserve gives back instead of pods.
func parseReservation(req *groupRequest) (types.NamespacedName, error) {
	var none types.NamespacedName
	if req.Reservation == "" {
		return none, nil
	}
	if len(req.Pods.entries) > 0 {
		return none, badRequest("Pods and Reservation are both given: send Reservation to give it back whole, or Pods to give back theirs")
	}
	namespace, name, ok := strings.Cut(req.Reservation, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || badName(name) != "" {
		return none, badRequest("Reservation \"%s\" is not of the form namespace/name: send the Reservation of the answer to /reserve",
			httpjson.Clip(req.Reservation))
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}
