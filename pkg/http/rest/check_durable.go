package rest

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
)

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
		return none,
			badRequest(
				"Pods and Reservation are both given: send Reservation to give it back whole, or Pods to give back theirs",
			)
	}
	namespace, name, ok := strings.Cut(req.Reservation, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || badName(name) != "" {
		return none,
			badRequest("Reservation \"%s\" is not of the form namespace/name: send the Reservation of the answer to /reserve",
				httpjson.Clip(req.Reservation))
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}
